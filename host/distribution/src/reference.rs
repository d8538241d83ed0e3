//! References to artifacts in a registry.
//!
//! ```text
//! [oci://]HOST/REPOSITORY[:TAG][@DIGEST]
//! ```
//!
//! The host is explicit: there is no default registry, because a name without a host would be looked up somewhere that
//! the operator did not write. The grammar of repository and tag is that of the OCI distribution specification 1.1.

use std::fmt;
use std::str::FromStr;

use toolbay_policy::excerpt::one_line;
use toolbay_policy::registry::RegistryHost;

use crate::digest::BlobDigest;

/// The scheme of a source in the lock.
const SCHEME: &str = "oci://";
/// Longest repository, in bytes. Many registries refuse longer ones.
const MAX_REPOSITORY: usize = 255;
/// Longest tag, in bytes.
const MAX_TAG: usize = 128;

/// A reference to an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The registry.
    pub host: RegistryHost,
    /// The path of the repository.
    pub repository: String,
    /// The tag.
    pub tag: Option<String>,
    /// The digest of the manifest. It decides if both are written.
    pub digest: Option<BlobDigest>,
}

impl Reference {
    /// The repository with its registry, as the lock names it: `oci://HOST/REPOSITORY`.
    #[must_use]
    pub fn source(&self) -> String {
        format!("{SCHEME}{}/{}", self.host, self.repository)
    }
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: String| {
            let shown = one_line(text, MAX_REPOSITORY);
            format!("`{shown}` is not a reference like `HOST/REPOSITORY:TAG`: {why}")
        };
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse().map_err(bad)?)),
            None => (rest, None),
        };
        let Some((host, path)) = rest.split_once('/') else {
            return Err(bad("write the host of the registry before the repository".to_owned()));
        };
        let host = RegistryHost::parse(host).map_err(bad)?;
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (path, None),
        };
        if repository.len() > MAX_REPOSITORY || !repository.split('/').all(is_path_component) {
            return Err(bad(
                "the repository is not in lower case, or has an empty or invalid part".to_owned()
            ));
        }
        if !tag.as_deref().is_none_or(is_tag) {
            return Err(bad("the tag is invalid".to_owned()));
        }
        Ok(Self { host, repository: repository.to_owned(), tag, digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_path_component(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separators = text.split(is_letter).filter(|separator| !separator.is_empty());
    text.starts_with(is_letter)
        && text.ends_with(is_letter)
        && separators.all(|one| matches!(one, "." | "_" | "__") || one.bytes().all(|b| b == b'-'))
}

/// `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`
pub(crate) fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= MAX_TAG && text.starts_with(is_word) && text.chars().all(|c| is_word(c) || ".-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_its_registry() {
        let digest = BlobDigest::of(b"x");
        for text in [
            "registry.example/hash",
            "registry.example:5000/acme/hash:1.4.2",
            "localhost:5000/a.b/c__d/e--f:v1",
            "[::1]:5000/hash:a",
            &format!("registry.example/hash@{digest}"),
            &format!("registry.example/hash:1.0@{digest}"),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.to_string(), text);
            assert_eq!(format!("oci://{text}").parse(), Ok(reference));
        }
        for (text, part) in [
            ("hash", "host"),
            ("acme/hash:1", "not a registry"),
            ("Registry.example/hash", "not a registry"),
            ("registry.example/Hash", "lower case"),
            ("registry.example/a//b", "empty"),
            ("registry.example/../b", "invalid"),
            ("registry.example/a.", "invalid"),
            ("registry.example/a:", "tag"),
            ("registry.example/a:-x", "tag"),
            ("registry.example/a:b/c", "tag"),
            ("registry.example/a@sha256:00", "digest"),
            ("https://registry.example/a", "not a registry"),
            ("registry.example/", "empty"),
        ] {
            let error = text.parse::<Reference>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
