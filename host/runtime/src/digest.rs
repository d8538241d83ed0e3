//! SHA-256 in lower-case hex: the identity of a component.

use std::fmt;
use std::sync::Arc;

use sha2::Digest as _;

/// A SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Digest(Arc<str>);

impl Digest {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The digest of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    use fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in sha2::Sha256::digest(bytes) {
        _ = write!(text, "{byte:02x}");
    }
    Digest(text.into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_empty_digest_is_the_known_one() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(super::sha256(b"").as_str(), empty);
    }
}
