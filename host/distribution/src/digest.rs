//! The identity of a blob: `sha256:` and 64 hex digits (OCI image specification, "Digests").

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toolbay_policy::excerpt::one_line;
use toolbay_state::digest::{Digest, HexDigest};

/// The digest algorithm that is supported, with its separator.
const PREFIX: &str = "sha256:";

/// The digest of a blob, in the notation of OCI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobDigest(Digest);

impl BlobDigest {
    /// Computes the digest of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Digest::of(bytes))
    }

    /// The digest with these 64 hex digits in lower case.
    pub(crate) fn from_hex(hex: &str) -> Option<Self> {
        hex.parse().ok().map(Self)
    }

    /// The digest without the notation.
    #[must_use]
    pub fn digest(self) -> Digest {
        self.0
    }

    /// The digest as 64 lower-case hex digits.
    #[must_use]
    pub fn hex(self) -> HexDigest {
        self.0.hex()
    }
}

impl From<Digest> for BlobDigest {
    fn from(digest: Digest) -> Self {
        Self(digest)
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
        assert_eq!(empty.to_string().parse(), Ok(empty));
        for text in
            ["", "sha256:", "sha512:00", &empty.hex(), &empty.to_string().to_uppercase(), "sha256:../../x"]
        {
            assert!(text.parse::<BlobDigest>().is_err(), "{text}");
        }
    }
}
