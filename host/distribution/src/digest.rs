//! The identity of a blob: `sha256:` and 64 hex digits (OCI image specification, "Digests").

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use toolbay_policy::excerpt::one_line;

/// The digest algorithm that is supported, with its separator.
const PREFIX: &str = "sha256:";

/// The SHA-256 digest of a blob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobDigest(String);

impl BlobDigest {
    /// Computes the digest of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hash(Sha256::digest(bytes).as_slice())
    }

    /// The digest with this hash.
    pub(crate) fn from_hash(hash: &[u8]) -> Self {
        let mut hex = String::with_capacity(2 * hash.len());
        hash.iter().for_each(|byte| _ = write!(hex, "{byte:02x}"));
        Self(hex)
    }

    /// The digest with these 64 hex digits in lower case.
    pub(crate) fn from_hex(hex: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hex.len() == 64 && hex.bytes().all(is_digit)).then(|| Self(hex.to_owned()))
    }

    /// The digest as 64 lower-case hex digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

impl FromStr for BlobDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.strip_prefix(PREFIX).and_then(Self::from_hex).ok_or_else(|| {
            let shown = one_line(text, 100);
            format!("`{shown}` is not a digest: write `sha256:` and 64 hex digits in lower case")
        })
    }
}

impl Serialize for BlobDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_sha256_in_lower_case_is_a_digest() {
        let empty = BlobDigest::of(b"");
        assert!(empty.to_string().starts_with("sha256:e3b0c442"), "{empty}");
        assert_eq!(empty.to_string().parse(), Ok(empty.clone()));
        for text in
            ["", "sha256:", "sha512:00", empty.hex(), &empty.to_string().to_uppercase(), "sha256:../../x"]
        {
            assert!(text.parse::<BlobDigest>().is_err(), "{text}");
        }
    }
}
