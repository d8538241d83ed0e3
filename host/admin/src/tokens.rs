//! The tokens of operators: names, hashes and roles in a file that only the server's user can write.

use std::path::Path;

use serde::Deserialize;
use subtle::ConstantTimeEq as _;
use toml::Spanned;
use toolbay_policy::{PolicyFinding, Severity};
use toolbay_state::digest::Digest;

/// Longest name of an operator, in characters.
pub(crate) const MAX_NAME: usize = 100;
/// Most tokens in a file. Each token of a request is compared with all of them.
pub(crate) const MAX_TOKENS: usize = 1000;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Reading.
    View,
    /// Reading and acting.
    Operate,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<TokenEntry>,
}

/// A token as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    name: Spanned<String>,
    sha256: Spanned<String>,
    role: Role,
}

/// A token of an operator. The file has its hash only.
#[derive(Debug)]
pub(crate) struct AdminToken {
    pub(crate) name: String,
    sha256: String,
    pub(crate) role: Role,
}

impl AdminToken {
    /// A text that differs if the token does. It is no secret, but no name either.
    pub(crate) fn fingerprint(&self) -> String {
        format!("{} {:?}", self.sha256, self.role)
    }

    /// Reads a file of tokens.
    pub(crate) fn read_all(file: &Path) -> Result<Vec<Self>, String> {
        let text = toolbay::mcp::read_token_file(file)?;
        let entries = parse_entries(&text).map_err(|findings| first_of(&findings))?;
        let token = |TokenEntry { name, sha256, role }| {
            let (name, sha256) = (name.into_inner(), sha256.into_inner());
            Self { name, sha256, role }
        };
        Ok(entries.into_iter().map(token).collect())
    }

    /// Finds a token, in constant time.
    pub(crate) fn find(tokens: Vec<Self>, hash: &Digest) -> Option<Self> {
        let is_it = |token: &Self| token.sha256.to_ascii_lowercase().as_bytes().ct_eq(hash.hex().as_bytes());
        let mut found = None;
        for token in tokens {
            if bool::from(is_it(&token)) {
                found = Some(token);
            }
        }
        found
    }
}

/// Parses and checks the entries, or returns all mistakes.
fn parse_entries(text: &str) -> Result<Vec<TokenEntry>, Vec<PolicyFinding>> {
    let wrong = |span, message: String| PolicyFinding::new(Severity::Error, text, span, message);
    // The full TOML error quotes the line, which may contain a secret.
    let parsed: Result<TokenFile, _> = toml::from_str(text);
    let TokenFile { token: tokens } =
        parsed.map_err(|error| vec![wrong(error.span().unwrap_or_default(), error.message().to_owned())])?;
    if tokens.len() > MAX_TOKENS {
        return Err(vec![wrong(0..0, format!("more than {MAX_TOKENS} tokens"))]);
    }
    let mut found = Vec::new();
    for TokenEntry { name, sha256, .. } in &tokens {
        let (text, digits) = (name.get_ref(), sha256.get_ref());
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
        if text.is_empty() || text.len() > MAX_NAME || !text.chars().all(is_legal) {
            let message = format!("`name` must have 1 to {MAX_NAME} letters, digits, `_`, `-`, `.` or `@`");
            found.push(wrong(name.span(), message));
        } else if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            found.push(wrong(sha256.span(), format!("`sha256` of `{text}` is not 64 hex digits")));
        }
    }
    if found.is_empty() { Ok(tokens) } else { Err(found) }
}

/// The first mistake, with its line and column.
fn first_of(findings: &[PolicyFinding]) -> String {
    findings.first().map(ToString::to_string).unwrap_or_default()
}

/// Requires a token file that can be used.
///
/// # Errors
/// The file cannot be read, its owner or mode is not trusted, or it is invalid.
pub fn require_tokens(file: &Path) -> Result<(), String> {
    AdminToken::read_all(file).map(drop)
}

/// Checks the token file of a policy: its owner and mode, and its content. Findings quote nothing of it but names.
#[must_use]
pub fn check_tokens(file: &Path) -> Vec<PolicyFinding> {
    let text = match toolbay::mcp::read_token_file(file) {
        Ok(text) => text,
        Err(problem) => return vec![PolicyFinding::new(Severity::Error, "", 0..0, problem)],
    };
    match parse_entries(&text) {
        Ok(tokens) if tokens.is_empty() => {
            let message = "the file has no token, so every request is refused";
            vec![PolicyFinding::new(Severity::Warning, &text, 0..0, message)]
        }
        Ok(_) => Vec::new(),
        Err(findings) => findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_of_a_token_file_has_its_line_and_column() {
        let good = "0".repeat(64);
        let text = format!(
            "[[token]]\nname = \"a b\"\nsha256 = \"{good}\"\nrole = \"view\"\n[[token]]\nname = \"c\"\nsha256 = \"1\"\nrole = \"view\"\n"
        );
        let found = parse_entries(&text).err().unwrap();
        let places: Vec<_> = found.iter().map(|one| (one.line, one.column)).collect();
        assert_eq!(places, [(2, 8), (7, 10)]);
        let unknown = "[[token]]\nname = \"a\"\nsha256 = \"1\"\nrole = \"admin\"\n";
        let found = parse_entries(unknown).err().unwrap();
        assert_eq!((found[0].line, found[0].column), (4, 8), "{found:?}");
    }
}
