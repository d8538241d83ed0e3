//! SHA-256 in lower-case hex: the identity of a component.

use std::fmt;
use std::sync::Arc;

use sha2::Digest as _;

/// A SHA-256 digest in hex.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Digest(Arc<str>);

/// A SHA-256 digest in bytes.
pub(crate) type RawDigest = [u8; 32];

impl Digest {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
    /// The digest in this text; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 64 && text.bytes().all(is_hex)).then(|| Self(text.into()))
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.0
    }

    /// The digest in bytes.
    pub(crate) fn raw(&self) -> RawDigest {
        let mut raw = RawDigest::default();
        // Two hex digits per byte, as `From<RawDigest>` wrote them.
        for (byte, pair) in raw.iter_mut().zip(self.0.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(pair).unwrap_or_default();
            *byte = u8::from_str_radix(digits, 16).unwrap_or_default();
        }
        raw
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<RawDigest> for Digest {
    fn from(raw: RawDigest) -> Self {
        use fmt::Write as _;
        let mut text = String::with_capacity(64);
        for byte in raw {
            _ = write!(text, "{byte:02x}");
        }
        Self(text.into())
    }
}

/// The SHA-256 digest of `bytes`, in hex.
pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    raw_sha256(bytes).into()
}

/// The SHA-256 digest of `bytes`.
pub(crate) fn raw_sha256(bytes: &[u8]) -> RawDigest {
    sha2::Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_digest_of_nothing_matches_the_standard() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(super::sha256(b"").as_str(), empty);
        assert_eq!(super::sha256(b"").raw(), super::raw_sha256(b""));
    }
}
