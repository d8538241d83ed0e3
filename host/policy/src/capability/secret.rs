//! Secrets: which ones a tool may use, and where the operator allows their values to go. This module never has the
//! values.
//!
//! | rule | means |
//! |---|---|
//! | `GITHUB_TOKEN` | this secret |
//! | `providers/exa/*` | every secret below `providers/exa`, without `providers/exa` itself |
//!
//! A name has segments of ASCII letters, digits and `_ - . : @ +`, separated by `/`. `*` is only valid as the last
//! segment after a name. `*` alone, `/*` and `a/*/b` are refused, so that a typo does not grant all secrets.

use std::path::{Path, PathBuf};

use crate::capability::net::{self, AddressScope, HostPattern, NetRule, NetTarget, Scheme};
use crate::excerpt::one_line;
use crate::hint::{Hint, LineValue, PolicyLine, Remedy};
use crate::problem::{PolicyProblem, of_key};
use crate::refusal::PolicyRefusal;
use crate::rule::GrantRule;

/// Longest name of a secret, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest name that an error repeats, in characters.
const MAX_SHOWN: usize = 64;
/// The default header for a secret.
pub const DEFAULT_HEADER: &str = "authorization";

/// Headers that frame a request or determine where it goes. Only the host sets them (RFC 9110, sections 7.2 and
/// 7.6.1; RFC 9112, section 6).
const FRAMING_HEADERS: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "origin",
    "range",
    "referer",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// One line of a `secrets` list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretRule {
    /// The secret with this name.
    Exact(String),
    /// Every secret below this name.
    Descendants(String),
}

/// Checks the name of a secret.
///
/// # Errors
/// Describes a valid name.
pub fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.:@+".contains(c);
    let segment = |s: &str| !s.is_empty() && s != "." && s != ".." && s.chars().all(allowed);
    if name.len() <= MAX_NAME_BYTES && name.split('/').all(segment) {
        return Ok(());
    }
    Err(format!(
        "`{}`: write the name of a secret, at most {MAX_NAME_BYTES} letters, digits and `_ - . : @ +`, with `/` \
         between segments, or `NAME/*` for all below it",
        one_line(name, MAX_SHOWN)
    ))
}

impl SecretRule {
    /// Whether it grants a secret. An invalid name is never granted.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        check_name(name).is_ok()
            && match self {
                Self::Exact(own) => own == name,
                Self::Descendants(parent) => is_below(name, parent),
            }
    }
}

/// Whether `name` has all segments of `parent` and at least one more.
fn is_below(name: &str, parent: &str) -> bool {
    name.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'))
}

impl GrantRule for SecretRule {
    const PATTERN: &'static str = r"^[A-Za-z0-9_.:@+-]+(/[A-Za-z0-9_.:@+-]+)*(/\*)?$";

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let (name, rule): (_, fn(String) -> Self) = match text.strip_suffix("/*") {
            Some(parent) => (parent, Self::Descendants),
            None => (text, Self::Exact),
        };
        check_name(name)?;
        Ok(rule(name.to_owned()))
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Exact(name), rule) | (rule, Self::Exact(name)) => {
                rule.matches(name).then(|| Self::Exact(name.clone()))
            }
            (Self::Descendants(a), Self::Descendants(b)) if a == b || is_below(a, b) => Some(self.clone()),
            (Self::Descendants(a), Self::Descendants(b)) => is_below(b, a).then(|| other.clone()),
        }
    }

    fn show(&self, _: &Path) -> String {
        match self {
            Self::Exact(name) => name.clone(),
            Self::Descendants(name) => format!("{name}/*"),
        }
    }
}

/// A secret in the policy (`[secrets.NAME]`), without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// The source of the value.
    pub from: SecretSource,
    /// The origins that may receive it.
    pub origins: Vec<NetRule>,
    /// The request headers that may carry it, in lower case; never empty.
    pub headers: Vec<String>,
    /// The query parameters that may carry it, for services of OpenAPI documents only: plugins cannot use it there,
    /// because URLs end up in logs.
    pub query: Vec<String>,
    /// Whether a plugin gets the value itself. Otherwise it gets a placeholder.
    pub reveal: bool,
}

/// The part of a request that carries a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretPosition<'a> {
    /// The header with this name.
    Header(&'a str),
    /// The query parameter with this name.
    Query(&'a str),
}

impl Secret {
    /// Creates a secret. Empty `headers` means the default header.
    ///
    /// # Errors
    /// Names the wrong key.
    pub fn new(
        from: SecretSource,
        origins: Vec<NetRule>,
        headers: &[String],
        reveal: bool,
    ) -> Result<Self, PolicyProblem> {
        if origins.is_empty() && !reveal {
            let message = "`origins` is missing: write where the secret may be sent, \
                           `origins = [\"https://api.example.com\"]`, or give plugins the value itself with \
                           `reveal = true`";
            return Err(PolicyProblem::at_keys(["origins"], message));
        }
        for (index, origin) in origins.iter().enumerate() {
            check_origin(origin)
                .map_err(|why| PolicyProblem::from(why).in_line(index))
                .map_err(of_key("origins"))?;
        }
        let mut names = Vec::new();
        for header in headers {
            let name = parse_header_name(header).map_err(|why| PolicyProblem::from(why).in_text(header));
            names.push(name.map_err(of_key("headers"))?);
        }
        if names.is_empty() {
            names.push(DEFAULT_HEADER.to_owned());
        }
        Ok(Self { from, origins, headers: names, query: Vec::new(), reveal })
    }

    /// Adds query parameters that may carry the secret.
    ///
    /// # Errors
    /// A parameter has no valid name.
    pub fn with_query(self, query: Vec<String>) -> Result<Self, PolicyProblem> {
        let sound = |name: &String| {
            !name.is_empty()
                && name.len() <= MAX_NAME_BYTES
                && name.bytes().all(|b| (0x21..0x7f).contains(&b))
        };
        match query.iter().find(|name| !sound(name)) {
            Some(name) => {
                let message =
                    format!("`query`: `{}` is not the name of a parameter", one_line(name, MAX_SHOWN));
                Err(PolicyProblem::at_keys(["query"], message).in_text(name))
            }
            None => Ok(Self { query, ..self }),
        }
    }

    /// Returns why a service's request may not carry the value, or `None` if it may. `name` is the secret's name.
    #[must_use]
    pub fn refusal(
        &self,
        name: &str,
        target: &NetTarget,
        position: SecretPosition<'_>,
    ) -> Option<PolicyRefusal> {
        let (list, known, entry, what) = match position {
            SecretPosition::Header(header) => {
                ("headers", &self.headers, header.to_ascii_lowercase(), "the header")
            }
            SecretPosition::Query(parameter) => {
                ("query", &self.query, parameter.to_owned(), "the query parameter")
            }
        };
        if !known.contains(&entry) {
            let shown = one_line(&entry, MAX_SHOWN);
            let text = format!("the secret `{name}` may not be put into {what} `{shown}`");
            return Some(PolicyRefusal::new(text, add_hint(name, list, known, &entry)));
        }
        if self.may_be_sent_to(target) {
            return None;
        }
        let origin = target.origin();
        let text = format!("the secret `{name}` may not be sent to `{origin}`");
        let known: Vec<String> = self.origins.iter().map(|rule| rule.show(Path::new("/"))).collect();
        Some(PolicyRefusal::new(text, add_hint(name, "origins", &known, &origin)))
    }

    /// Whether the value may be sent to this target.
    #[must_use]
    pub fn may_be_sent_to(&self, target: &NetTarget) -> bool {
        net::match_rules(&self.origins, target).is_ok()
    }
}

/// The hint that extends a list of the secret's section by `entry`.
#[must_use]
pub fn add_hint(name: &str, list: &str, known: &[String], entry: &str) -> Hint {
    let all = known.iter().cloned().chain([entry.to_owned()]).collect();
    let line = PolicyLine::new(format!("[secrets.{name:?}]"), list, LineValue::List(all));
    Remedy::Allow { first: None, lines: vec![line] }.into()
}

/// Checks that a rule is an origin: scheme, host and port (RFC 6454). A method or path would suggest a restriction
/// that the receiver of the header does not enforce.
fn check_origin(rule: &NetRule) -> Result<(), String> {
    let bad = |what: &str| Err(format!("{what}; write an origin, `https://api.example.com`"));
    match rule {
        NetRule { scheme: Scheme::Tcp | Scheme::Udp, .. } => bad("a raw connection has no headers"),
        NetRule { host: HostPattern::Any, .. } => bad("every host would get the value"),
        NetRule { addresses: AddressScope::PublicOnly, .. } => bad("an origin does not restrict addresses"),
        NetRule { port: None, .. } => bad("an origin has one port"),
        NetRule { methods: Some(_), .. } => bad("an origin has no method"),
        NetRule { path: Some(_), .. } => bad("an origin has no path"),
        NetRule { scheme: Scheme::Https | Scheme::Http, .. } => Ok(()),
    }
}

/// Parses the name of a header that may carry a secret.
pub(crate) fn parse_header_name(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    // RFC 9110, section 5.6.2: a token.
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(token) {
        return Err(format!("`{}` is not the name of a header", one_line(text, MAX_SHOWN)));
    }
    let of_browsers_or_proxies =
        ["sec-", "proxy-", "access-control-"].iter().any(|prefix| name.starts_with(prefix));
    if FRAMING_HEADERS.contains(&name.as_str()) || of_browsers_or_proxies {
        return Err(format!("`{name}` controls the request itself and cannot carry a secret"));
    }
    Ok(name)
}

/// The source of a secret's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// An environment variable of the host.
    Env(String),
    /// A file that only its owner can read.
    File(PathBuf),
    /// The system's keyring.
    Keyring(String),
}

impl SecretSource {
    /// Parses `env:NAME`, `file:/absolute/path` or `keyring:NAME`.
    ///
    /// # Errors
    /// Shows the valid forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |name: &str| !name.is_empty() && !name.contains(['=', '\0']) && name.len() <= 255;
        match text.split_once(':') {
            Some(("env", name)) if plain(name) => Ok(Self::Env(name.to_owned())),
            Some(("file", path)) if path.starts_with('/') && !path.contains('\0') => {
                Ok(Self::File(path.into()))
            }
            Some(("keyring", name)) if plain(name) => Ok(Self::Keyring(name.to_owned())),
            _ => Err("`from`: write `env:NAME`, `file:/absolute/path` or `keyring:NAME`".to_owned()),
        }
    }
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
