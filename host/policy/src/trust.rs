//! Whose signatures count for which repositories (`[[trust]]`). Plain data, without keys.

use std::path::PathBuf;

use crate::registry::RegistryHost;
use crate::text::one_line;

/// Most rules in one policy.
pub const MAX_TRUST_RULES: usize = 64;
/// Most keys of a rule.
pub const MAX_TRUSTED_KEYS: usize = 16;
/// Longest text of a scope in a message, in characters.
const MAX_SHOWN: usize = 100;

/// The repositories of a rule: a registry, or those at and below one path of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustScope {
    host: RegistryHost,
    /// Empty: the whole registry.
    path: Vec<String>,
}

impl TrustScope {
    /// Parses `HOST/` or `HOST/PATH/`; the last `/` may be missing.
    ///
    /// # Errors
    /// The text is not such a scope.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let host = RegistryHost::parse(host)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let parts: Vec<String> = match path {
            "" => Vec::new(),
            path => path.split('/').map(str::to_owned).collect(),
        };
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        if parts.iter().any(|part| part.is_empty() || !part.chars().all(is_word)) {
            let shown = one_line(text, MAX_SHOWN);
            return Err(format!(
                "`{shown}` is not a scope: write `HOST/PATH/`, in lower case and without `*`"
            ));
        }
        Ok(Self { host, path: parts })
    }

    /// Whether a repository is in the scope. Only whole parts of its path count.
    #[must_use]
    pub fn contains(&self, host: &RegistryHost, repository: &str) -> bool {
        let mut parts = repository.split('/');
        self.host == *host && self.path.iter().all(|part| parts.next() == Some(part))
    }

    /// The number of parts of its path. Of two rules, the longer one decides.
    pub(crate) fn depth(&self) -> usize {
        self.path.len()
    }
}

impl std::fmt::Display for TrustScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/", self.host)?;
        self.path.iter().try_for_each(|part| write!(f, "{part}/"))
    }
}

/// What a rule requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustRequirement {
    /// A signature by one of these keys, which are files with a public key in PEM.
    Signed(Vec<PathBuf>),
    /// Nothing but the digest in the lock.
    Digest,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustRule {
    /// Its repositories.
    pub scope: TrustScope,
    /// What they need.
    pub requirement: TrustRequirement,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_covers_whole_parts_of_a_path() {
        let host = RegistryHost::parse("registry.example").unwrap();
        let other = RegistryHost::parse("other.example").unwrap();
        for (scope, inside, outside) in [
            ("registry.example", &["acme/hash", "hash"][..], &[][..]),
            ("registry.example/", &["acme/hash"], &[]),
            ("registry.example/acme", &["acme", "acme/hash", "acme/a/b"], &["acme2/hash", "x/acme"]),
            ("registry.example/acme/hash/", &["acme/hash", "acme/hash/x"], &["acme", "acme/hash2"]),
        ] {
            let scope = TrustScope::parse(scope).unwrap();
            assert!(inside.iter().all(|repository| scope.contains(&host, repository)), "{scope}");
            assert!(!outside.iter().any(|repository| scope.contains(&host, repository)), "{scope}");
            assert!(!inside.iter().any(|repository| scope.contains(&other, repository)), "{scope}");
            assert_eq!(TrustScope::parse(&scope.to_string()), Ok(scope));
        }
        for text in ["", "acme/", "registry.example/*", "registry.example/a//b", "registry.example/A", "/"] {
            assert!(TrustScope::parse(text).is_err(), "{text}");
        }
    }
}
