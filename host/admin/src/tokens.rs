//! The tokens of operators: names, hashes and roles in a file that only the server's user can write.

use std::path::Path;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Longest name of an operator, in characters.
pub(crate) const MAX_NAME: usize = 100;
/// Most tokens in a file. Each token of a request is compared with all of them.
const MAX_TOKENS: usize = 1000;

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
    token: Vec<AdminToken>,
}

/// A token of an operator. The file has its hash only.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminToken {
    pub(crate) name: String,
    sha256: String,
    pub(crate) role: Role,
}

/// SHA-256 of a token's secret, in hex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenHash(String);

impl TokenHash {
    pub(crate) fn of(secret: &[u8]) -> Self {
        Self(format!("{:x}", Sha256::digest(secret)))
    }
}

impl AdminToken {
    /// Reads a file of tokens.
    pub(crate) fn read_all(file: &Path) -> Result<Vec<Self>, String> {
        let text = toolbay::mcp::read_token_file(file)?;
        // The full TOML error quotes the line, which may contain a secret.
        let TokenFile { token: tokens } =
            toml::from_str(&text).map_err(|error| error.message().to_owned())?;
        if tokens.len() > MAX_TOKENS {
            return Err(format!("more than {MAX_TOKENS} tokens"));
        }
        for token in &tokens {
            let legal = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
            if token.name.is_empty() || token.name.len() > MAX_NAME || !token.name.chars().all(legal) {
                return Err(format!(
                    "`name` must have 1 to {MAX_NAME} letters, digits, `_`, `-`, `.` or `@`"
                ));
            }
            if token.sha256.len() != 64 || !token.sha256.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(format!("`sha256` of `{}` is not 64 hex digits", token.name));
            }
        }
        Ok(tokens)
    }

    /// Finds a token, in constant time.
    pub(crate) fn find(tokens: Vec<Self>, hash: &TokenHash) -> Option<Self> {
        let is_it = |token: &Self| token.sha256.to_ascii_lowercase().as_bytes().ct_eq(hash.0.as_bytes());
        let mut found = None;
        for token in tokens {
            if bool::from(is_it(&token)) {
                found = Some(token);
            }
        }
        found
    }
}

/// Checks the token file of a policy.
///
/// # Errors
/// The file cannot be read, its owner or mode is not trusted, or it is invalid.
pub fn check_tokens(file: &Path) -> Result<(), String> {
    AdminToken::read_all(file).map(drop)
}
