//! Whose signatures count for which repositories (`[[trust]]`). Plain data, without keys.

use std::path::PathBuf;
use std::time::Duration;

use crate::excerpt::one_line;
use crate::registry::RegistryHost;
use crate::wildcard::text_matches;

/// Most rules in one policy.
pub const MAX_TRUST_RULES: usize = 64;
/// Most keys of a rule.
pub const MAX_TRUSTED_KEYS: usize = 16;
/// Longest identity or issuer of a rule, in characters.
pub const MAX_IDENTITY: usize = 500;
/// What separates the parts of an identity.
const SEPARATORS: [char; 2] = ['/', '@'];
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
    /// Fails if the text is not `HOST/` or `HOST/PATH/`.
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

    /// The number of parts of its path. The longer of two rules decides.
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
    /// A signature by one of these signers.
    Signed(TrustedSigners),
    /// Nothing but the digest in the lock.
    Digest,
}

/// Who may sign: at least one key, or identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedSigners {
    /// Files with a public key in PEM.
    pub keys: Vec<PathBuf>,
    /// Identities with certificates.
    pub keyless: Option<KeylessSigner>,
}

/// Identities whose certificates count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeylessSigner {
    /// The identities.
    pub identity: IdentityPattern,
    /// Who vouches for them: the issuer of their tokens.
    pub issuer: String,
    /// The file with the authorities and logs that are trusted (`trusted_root.json`).
    pub root: PathBuf,
    /// The age that a signature must have.
    pub min_age: Option<Duration>,
}

/// Identities of certificates: an address or a URL, in which `*` stands for any text within one part, between `/` and `@`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityPattern(String);

impl IdentityPattern {
    /// Parses a pattern. The host of a URL and the domain of an address are written out: anybody can have an identity at
    /// some host.
    ///
    /// # Errors
    /// Fails if the text is not an identity, or its host or domain has a `*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: &str| Err(format!("`{}` {why}", one_line(text, MAX_SHOWN)));
        if text.is_empty() || text.chars().count() > MAX_IDENTITY || text.contains(char::is_control) {
            return bad("is not an identity");
        }
        let owner = match (text.split_once("://"), text.rsplit_once('@')) {
            (Some((scheme, rest)), _) => (scheme, rest.split('/').next().unwrap_or_default()),
            (None, Some((_, domain))) => ("", domain),
            (None, None) => ("", text),
        };
        if owner.0.contains('*') || owner.1.contains(['*', '@']) || owner.1.is_empty() {
            return bad("does not say whose identities: write the host or domain without `*`");
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether an identity fits.
    #[must_use]
    pub fn matches(&self, identity: &str) -> bool {
        let parts = |text: &'_ str| text.matches(SEPARATORS).collect::<String>();
        if parts(&self.0) != parts(identity) {
            return false;
        }
        let pairs = self.0.split(SEPARATORS).zip(identity.split(SEPARATORS));
        pairs.into_iter().all(|(pattern, part)| text_matches(pattern, part))
    }
}

impl std::fmt::Display for IdentityPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
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

    #[test]
    fn an_identity_fits_within_its_parts() {
        let release = "https://forge.example/acme/*/release.yml@refs/tags/*";
        for (pattern, identity, fits) in [
            (release, "https://forge.example/acme/hash/release.yml@refs/tags/v1.0", true),
            (release, "https://forge.example/acme//release.yml@refs/tags/v1.0", true),
            (release, "https://forge.example/acme/hash/x/release.yml@refs/tags/v1.0", false),
            (release, "https://forge.example/acme/hash/release.yml@refs/heads/v1.0", false),
            (release, "https://forge.example/acme/hash/release.yml@refs/tags/a/b", false),
            (release, "https://forge.example/acme/hash/release.yml@refs/tags/a@b", false),
            (release, "https://forge.example.evil/acme/hash/release.yml@refs/tags/v1", false),
            (release, "https://forge.example/acme/hash/evil-release.yml@refs/tags/v1", false),
            ("*@acme.example", "jo@acme.example", true),
            ("*@acme.example", "jo@acme.example.evil", false),
            ("*@acme.example", "jo@evil@acme.example", false),
            ("*@acme.example", "a/jo@acme.example", false),
            ("jo@acme.example", "jo@acme.example", true),
            ("jo@acme.example", "Jo@acme.example", false),
            ("https://a.b/x*y*z", "https://a.b/xyz", true),
            ("https://a.b/x*y*z", "https://a.b/x.y.y.z", true),
            ("https://a.b/x*y*z", "https://a.b/xz", false),
            ("https://a.b/x*yx*", "https://a.b/xyx", true),
            ("https://a.b/ab*ba", "https://a.b/aba", false),
            ("https://a.b/**", "https://a.b/x", true),
            ("https://a.b/**", "https://a.b/x/y", false),
            ("https://a.b/*", "https://a.b", false),
        ] {
            let parsed = IdentityPattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(identity), fits, "{pattern} {identity}");
        }
        let long = "a".repeat(MAX_IDENTITY + 1);
        for pattern in [
            "",
            "*",
            "a*",
            "*@*",
            "*@*.example",
            "jo@",
            "https://*/acme",
            "https://*.example/x",
            "https://",
            "*://a",
            "a\nb",
            &long,
        ] {
            assert!(IdentityPattern::parse(pattern).is_err(), "{pattern}");
        }
        // Many stars take no time.
        let (stars, text) =
            (format!("https://a.b/{}", "a*".repeat(200)), format!("https://a.b/{}b", "a".repeat(400)));
        assert!(IdentityPattern::parse(&stars).unwrap().matches(&text));
    }
}
