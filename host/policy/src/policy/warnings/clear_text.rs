//! Credentials in clear text, and variables that nothing expands.
//!
//! A policy is read, copied and committed like code, so a credential belongs into `[secrets]`, which names its source. What
//! looks like a credential is recognized by the name of its key, variable, header, option or parameter, or by its own form.

use super::super::document::WrittenText;
use super::{CheckInput, CheckReport};
use crate::problem::PathStep;

/// Words of names that hold credentials, without separators.
const CREDENTIAL_WORDS: [&str; 20] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "authkey",
    "subscriptionkey",
    "functionskey",
    "signingkey",
    "masterkey",
    "accountkey",
    "pass",
    "credential",
    "credentials",
    "authorization",
    "cookie",
];
/// Ends of words that are credentials, whatever is before: `PGPASSWORD`.
const CREDENTIAL_ENDS: [&str; 4] = ["password", "passwd", "passphrase", "apikey"];
/// Last words of several that are credentials. Alone they are common: `PWD` is a folder.
const CREDENTIAL_LAST_WORDS: [&str; 2] = ["pwd", "pat"];
/// Parameters of URLs that are credentials if their value looks random.
const CREDENTIAL_PARAMETERS: [&str; 4] = ["key", "sig", "signature", "code"];
/// Shortest value of such a parameter, and of a token after `Bearer`.
const MIN_RANDOM: usize = 8;
/// Ends of names that only point to a credential, or describe it.
const REFERENCE_WORDS: [&str; 12] =
    ["file", "path", "dir", "url", "name", "id", "type", "ttl", "limit", "count", "header", "env"];
/// Begins of credentials that their issuers mark, each with the shortest length.
const MARKED_FORMS: [(&str, usize); 14] = [
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("github_pat_", 20),
    ("glpat-", 15),
    ("sk-", 20),
    ("sk_live_", 16),
    ("xoxb-", 15),
    ("xoxp-", 15),
    ("AKIA", 20),
    ("ASIA", 20),
    ("AIza", 30),
    ("eyJ", 40),
    ("npm_", 30),
];
/// Keys with texts for people and models.
const PROSE_KEYS: [&str; 2] = ["reason", "instructions"];

/// Adds a problem for each text that looks like a credential.
pub(super) fn check_credentials(input: &CheckInput<'_>, report: &mut CheckReport) {
    for written in input.texts {
        let Some(what) = credential(written, input.texts).filter(|_| !names_secret(written, input)) else {
            continue;
        };
        let message = format!("{what} is in clear text, and everybody who reads the policy has it");
        let help = "name its source in [secrets.NAME], such as `from = \"env:NAME\"`, and the secret here"
            .to_owned();
        report.warn_at_text(written, message, help);
    }
}

/// Whether a setting of a plugin is the name of a secret, as the plugin asks for it: `search` for `[secrets."web/search"]`.
fn names_secret(written: &WrittenText, input: &CheckInput<'_>) -> bool {
    let ["plugins", id, "config", ..] = *written.keys().as_slice() else { return false };
    let is_its = |name: &str| {
        name == written.text
            || name.strip_prefix(id).and_then(|rest| rest.strip_prefix('/')) == Some(&written.text)
    };
    input.policy.secrets().any(|(name, _)| is_its(name))
}

/// Adds a problem for each variable that a shell or another program would expand.
pub(super) fn check_placeholders(input: &CheckInput<'_>, report: &mut CheckReport) {
    for written in input.texts {
        let keys = written.keys();
        let is_prose = matches!(keys.as_slice(), [.., key] if PROSE_KEYS.contains(key))
            || keys.iter().rev().nth(1).is_some_and(|table| *table == "args");
        if is_prose || is_shell_script(written, input.texts) {
            continue;
        }
        let Some(variable) = variable(&written.text).or_else(|| unexpanded_value(written)) else { continue };
        let message = format!("nothing expands `{variable}`: it is taken as it is");
        let help = "write the value; a credential has its source in [secrets.NAME]".to_owned();
        report.warn_at_text(written, message, help);
    }
}

/// Whether a text is a script for a shell, which expands it: the argument after `-c`.
fn is_shell_script(written: &WrittenText, all: &[WrittenText]) -> bool {
    let option = all.iter().find(|before| is_next(before, written));
    option.is_some_and(|option| {
        let flags = option.text.strip_prefix('-').filter(|flags| flags.ends_with('c'));
        flags.is_some_and(|flags| flags.bytes().all(|b| b.is_ascii_alphabetic()))
    })
}

/// A form that a shell or a template expands, as the whole value of a variable or a header, or as the begin of a path.
fn unexpanded_value(written: &WrittenText) -> Option<&str> {
    let value = match written.keys().as_slice() {
        ["mcp" | "programs" | "profile" | "plugins", .., "env"] => written.text.split_once('=')?.1,
        ["mcp" | "openapi", _, "headers", _] => &written.text,
        _ => return None,
    };
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    let between = |begin, end| value.strip_prefix(begin).and_then(|rest: &str| rest.strip_suffix(end));
    let is_whole = between("{{", "}}").is_some_and(|name| is_name(name.trim()))
        || between("%", "%").is_some_and(is_name)
        || between("$(", ")").is_some();
    (is_whole || value.starts_with("~/")).then_some(value)
}

/// What a text holds, if it looks like a credential. `all` are the texts of the file.
fn credential(written: &WrittenText, all: &[WrittenText]) -> Option<String> {
    let text = written.text.as_str();
    // A variable is no value. Another check reports it.
    if text.is_empty() || variable(text).is_some() {
        return None;
    }
    let keys = written.keys();
    if let Some(what) = marked_form(text).or_else(|| url_credential(text)) {
        return Some(what);
    }
    let is_sent = matches!(keys.as_slice(), ["mcp" | "openapi", _, "headers" | "command" | "args", ..]);
    if is_sent && has_bearer_token(text) {
        return Some("a credential".to_owned());
    }
    match keys.as_slice() {
        ["mcp" | "programs" | "profile", _, "env"] | ["plugins", .., "env"] => {
            let (name, value) = text.split_once('=')?;
            named(name, value, "the variable").or_else(|| assignment(value))
        }
        ["mcp" | "openapi", _, "headers", header] => {
            let is_known =
                header.eq_ignore_ascii_case("authorization") || header.eq_ignore_ascii_case("cookie");
            if is_known { Some(format!("the header `{header}`")) } else { named(header, text, "the header") }
        }
        ["openapi", _, "variables", name] => named(name, text, "the variable"),
        ["plugins", _, "config", .., name] => named(name, text, "the setting"),
        ["mcp", _, "command" | "args"] => argument(written, all),
        _ => None,
    }
}

/// An option of a program with its value: `--token=…`, or `--token` and then the value.
fn argument(written: &WrittenText, all: &[WrittenText]) -> Option<String> {
    let text = written.text.as_str();
    if let Some((option, value)) = text.split_once('=').filter(|(option, _)| option.starts_with('-')) {
        return named(option, value, "the value of");
    }
    if let Some((header, value)) = text.split_once(": ").filter(|(name, _)| !name.contains(' '))
        && let Some(what) = named(header, value, "the header")
    {
        return Some(what);
    }
    if let Some(what) = assignment(text) {
        return Some(what);
    }
    let option = all.iter().find(|before| is_next(before, written))?.text.as_str();
    let is_option = option.starts_with("--") && !option.contains('=') && !text.starts_with('-');
    if is_option { named(option, text, "the value of") } else { None }
}

/// A credential in a list of assignments, such as a connection string: `Server=a;Password=b`.
fn assignment(text: &str) -> Option<String> {
    let parts = text.contains(';').then(|| text.split(';'))?;
    let pairs = parts.filter_map(|part| part.trim().split_once('='));
    pairs.into_iter().find_map(|(name, value)| named(name, value, "the value of"))
}

/// Whether a text is the entry of a list after another one.
fn is_next(before: &WrittenText, written: &WrittenText) -> bool {
    match (before.path.split_last(), written.path.split_last()) {
        (Some((PathStep::Index(one), list)), Some((PathStep::Index(two), same))) => {
            list == same && one + 1 == *two
        }
        _ => false,
    }
}

/// What a value holds, if its name is that of a credential.
fn named(name: &str, value: &str, what: &str) -> Option<String> {
    let is_path = value.starts_with(['/', '.', '~', '$']) || value.contains("://");
    let is_word = matches!(value, "" | "true" | "false" | "none" | "yes" | "no");
    (!is_path && !is_word && is_credential_name(name)).then(|| format!("{what} `{name}`"))
}

/// Whether a name says that its value is a credential: `GITHUB_TOKEN`, `--api-key`, `clientSecret`, but not `token_file`.
fn is_credential_name(name: &str) -> bool {
    let words = name_words(name);
    let Some(last) = words.last() else { return false };
    if REFERENCE_WORDS.contains(&last.as_str()) {
        return false;
    }
    let pair = words.iter().rev().nth(1).map(|before| format!("{before}{last}"));
    CREDENTIAL_ENDS.iter().any(|end| last.ends_with(end))
        || (pair.is_some() && CREDENTIAL_LAST_WORDS.contains(&last.as_str()))
        || [Some(last.clone()), pair]
            .into_iter()
            .flatten()
            .any(|word| CREDENTIAL_WORDS.contains(&word.as_str()))
}

/// The words of a name in lower case: `clientSecret` has `client` and `secret`.
fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let is_new = !c.is_alphanumeric() || (c.is_uppercase() && was_lower);
        was_lower = c.is_lowercase() || c.is_numeric();
        if is_new {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A credential that its issuer marks, alone or after `Bearer `.
fn marked_form(text: &str) -> Option<String> {
    let words = text.split([' ', '=', ':', '"', '\'']);
    let is_marked = |word: &str| {
        let is_plain = |rest: &str| rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        MARKED_FORMS.iter().any(|(begin, least)| {
            // A short mark is also the begin of words.
            let is_random = begin.len() > 3 || word.len() >= 30 || word.bytes().any(|b| b.is_ascii_digit());
            is_random && word.strip_prefix(begin).is_some_and(|rest| word.len() >= *least && is_plain(rest))
        })
    };
    let has_key = text.contains("-----BEGIN ") && text.contains("PRIVATE KEY-----");
    if has_key {
        return Some("a private key".to_owned());
    }
    words.into_iter().any(is_marked).then(|| "a credential".to_owned())
}

/// Whether a text has a token after `Bearer` or `Basic` (RFC 6750, RFC 7617).
fn has_bearer_token(text: &str) -> bool {
    let words: Vec<&str> = text.split([' ', '"', '\'']).collect();
    words.windows(2).any(|pair| match pair {
        [scheme, token] => {
            let is_scheme = ["bearer", "basic"].iter().any(|one| scheme.eq_ignore_ascii_case(one));
            is_scheme && looks_random(token)
        }
        _ => false,
    })
}

/// Whether a text has no word of a language: it is long, has a digit, and nothing but the characters of tokens.
fn looks_random(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=%".contains(&b);
    text.len() >= MIN_RANDOM && text.bytes().any(|b| b.is_ascii_digit()) && text.bytes().all(is_plain)
}

/// A password in a URL, or a parameter with the name of a credential.
fn url_credential(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    if password.is_some_and(|(_, password)| !password.is_empty()) {
        return Some("the password of a URL".to_owned());
    }
    let (_, query) = rest.split_once('?')?;
    query.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let is_key = CREDENTIAL_PARAMETERS.contains(&name) && looks_random(value);
        named(name, value, "the parameter").or_else(|| is_key.then(|| format!("the parameter `{name}`")))
    })
}

/// The first variable of a text: `${NAME}`, or `$NAME` in upper case. `$workspace` is the only one that a policy has.
fn variable(text: &str) -> Option<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices('$').find_map(|(at, _)| {
        let rest = text.get(at + 1..)?;
        if let Some(inside) = rest.strip_prefix('{') {
            let end = inside.find('}').filter(|end| *end > 0)?;
            let begins = inside.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            return text.get(at..at + end + 3).filter(|_| begins);
        }
        let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        let name = rest.get(..end)?;
        let is_upper = name.len() > 1
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && !name.contains(|c: char| c.is_ascii_lowercase());
        text.get(at..=at + end).filter(|_| is_upper)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_that_its_value_is_a_credential() {
        for (name, expected) in [
            ("GITHUB_TOKEN", true),
            ("--api-key", true),
            ("X-Api-Key", true),
            ("clientSecret", true),
            ("password", true),
            ("AWS_SECRET_ACCESS_KEY", true),
            ("PGPASSWORD", true),
            ("MYSQL_PWD", true),
            ("GITHUB_PAT", true),
            ("PASS", true),
            ("Ocp-Apim-Subscription-Key", true),
            ("X-Functions-Key", true),
            ("Idempotency-Key", false),
            ("PWD", false),
            ("PATH", false),
            ("COMPASS", false),
            ("token_file", false),
            ("TOKEN_URL", false),
            ("max_tokens", false),
            ("key", false),
            ("KEYBOARD", false),
            ("monkey", false),
            ("author", false),
            ("", false),
        ] {
            assert_eq!(is_credential_name(name), expected, "{name}");
        }
    }

    #[test]
    fn a_credential_has_a_form_of_its_own() {
        let jwt = format!("eyJ{}.{}.x", "a".repeat(30), "b".repeat(10));
        let github = format!("ghp_{}", "a".repeat(36));
        for (text, expected) in [
            (github.as_str(), true),
            (&format!("Bearer {github}"), true),
            (&format!("--header=Authorization: Bearer {jwt}"), true),
            ("-----BEGIN EC PRIVATE KEY-----\nabc", true),
            ("-----BEGIN PUBLIC KEY-----\nabc", false),
            ("glpat-abcdefghijklmnopqrst", true),
            ("STRIPE=sk_live_abcdefghijklmnop", true),
            ("sk-learn", false),
            ("AKIA", false),
            ("ghp_*", false),
        ] {
            assert_eq!(marked_form(text).is_some(), expected, "{text}");
        }
        for (text, expected) in [
            ("postgres://me:pw@db.example/x", true),
            ("https://me@db.example/x", false),
            ("https://a.example/?api_key=123", true),
            ("https://a.example/?page=2", false),
            ("https://a.example/?q={query}&key=abcdef012345", true),
            ("https://a.example/?sv=1&sig=abc%2Bdef012345%3D", true),
            ("https://a.example/?key={key}&code=DE", false),
            ("https://*", false),
            ("oci://a.example:5000/x@sha256:abc", false),
        ] {
            assert_eq!(url_credential(text).is_some(), expected, "{text}");
        }
    }

    fn text(keys: &[&str], index: usize, text: &str) -> WrittenText {
        let keys = keys.iter().map(|key| PathStep::Key((*key).to_owned()));
        WrittenText { path: keys.chain([PathStep::Index(index)]).collect(), text: text.to_owned() }
    }

    #[test]
    fn an_argument_that_is_a_credential_is_found() {
        for (before, argument, expected) in [
            ("--password", "hunter2xx", true),
            ("-H", "X-Api-Key: abcdef012345", true),
            ("--connection-string", "Server=h;Password=hunter2", true),
            ("--connection-string", "Server=h;Database=d", false),
            ("--header", "Authorization: Bearer abcdef012345", true),
            ("-H", "X-Custom: Bearer abcdef012345", true),
            ("--title", "use Bearer authentication", false),
            ("--title", "Note: a word", false),
            ("--pat", "*.md", false),
        ] {
            let all =
                [text(&["mcp", "a", "command"], 1, before), text(&["mcp", "a", "command"], 2, argument)];
            assert_eq!(credential(&all[1], &all).is_some(), expected, "{before} {argument}");
        }
    }

    #[test]
    fn a_value_that_a_shell_would_expand_is_found() {
        for (value, expected) in [
            ("A={{B}}", true),
            ("A=%B%", true),
            ("A=$(cat /x)", true),
            ("A=~/x", true),
            ("A={{.Name}}", false),
            ("A=%Y-%m", false),
            ("A=a~/x", false),
            ("A=100%", false),
            ("A", false),
        ] {
            let written = text(&["mcp", "a", "env"], 0, value);
            assert_eq!(unexpanded_value(&written).is_some(), expected, "{value}");
        }
        let all = ["/bin/sh", "-ec", "exec x $TOKEN"].map(str::to_owned);
        let all: Vec<_> =
            all.iter().enumerate().map(|(at, one)| text(&["mcp", "a", "command"], at, one)).collect();
        assert!(is_shell_script(&all[2], &all) && !is_shell_script(&all[1], &all));
    }

    #[test]
    fn a_variable_is_found() {
        for (text, expected) in [
            ("${TOKEN}", Some("${TOKEN}")),
            ("Bearer ${env:TOKEN} x", Some("${env:TOKEN}")),
            ("$HOME/x", Some("$HOME")),
            ("$workspace/x", None),
            ("$5", None),
            ("a$", None),
            ("${}", None),
            ("^x$", None),
        ] {
            assert_eq!(variable(text), expected, "{text}");
        }
    }
}
