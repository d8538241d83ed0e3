//! SHA-256 digests, which name components, calls and state. The text of a digest has 64 hexadecimal digits in lower case.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, displayed and serialized in lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The hexadecimal text of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HexDigest([u8; 64]);

/// A text is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotADigest;

impl Digest {
    /// Computes the digest of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest in bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest in hex. All digits are written at once: each audit record has two digests.
    #[must_use]
    pub fn hex(self) -> HexDigest {
        let mut text = [0; 64];
        for (digits, byte) in text.chunks_exact_mut(2).zip(self.0) {
            digits.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        HexDigest(text)
    }
}

/// A hexadecimal digit.
fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' - 10 + value }
}

/// The value of a hexadecimal digit in lower case.
fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0; 32];
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(NotADigest);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = value(*high).zip(value(*low)).map(|(high, low)| high << 4 | low).ok_or(NotADigest)?;
        }
        Ok(Self(bytes))
    }
}

impl Deref for HexDigest {
    type Target = str;

    fn deref(&self) -> &str {
        // Hexadecimal digits are ASCII.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl AsRef<str> for HexDigest {
    fn as_ref(&self) -> &str {
        self
    }
}

impl AsRef<std::path::Path> for HexDigest {
    fn as_ref(&self) -> &std::path::Path {
        str::as_ref(self)
    }
}

impl fmt::Display for HexDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NotADigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a digest is 64 hexadecimal digits in lower case")
    }
}

impl std::error::Error for NotADigest {}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_nothing_matches_the_standard() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(&*Digest::of(b"").hex(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of(b"")));
        assert_eq!(serde_json::to_value(Digest::of(b"")).unwrap(), empty);
        assert_eq!(serde_json::from_value::<Digest>(empty.into()).unwrap(), Digest::of(b""));
    }

    #[test]
    fn only_64_digits_in_lower_case_are_a_digest() {
        let text = Digest::of(b"").to_string();
        for bad in
            ["", &text[1..], &format!("{text}0"), &text.to_uppercase(), &text.replace('e', "g"), "sha256:"]
        {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
