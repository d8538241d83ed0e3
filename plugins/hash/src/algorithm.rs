//! The algorithms behind one interface.

use sha2::{Digest, Sha256, Sha512};
use toolbay_sdk::prelude::*;

/// A checksum algorithm. `crc32` finds accidents only; the others are cryptographic.
#[data]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    #[allow(missing_docs, reason = "the names say it, and a comment per variant would bloat the schema")]
    Sha256,
    #[allow(missing_docs, reason = "as above")]
    Sha512,
    #[allow(missing_docs, reason = "as above")]
    Blake3,
    #[allow(missing_docs, reason = "as above")]
    Crc32,
}

/// A running computation of a checksum.
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
    Blake3(Box<blake3::Hasher>),
    Crc32(crc32fast::Hasher),
}

impl Hasher {
    pub(crate) fn new(algorithm: &Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
            Algorithm::Blake3 => Self::Blake3(Box::default()),
            Algorithm::Crc32 => Self::Crc32(crc32fast::Hasher::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Crc32(hasher) => hasher.update(bytes),
        }
    }

    /// Returns the checksum in lower-case hexadecimal, most significant digit first.
    pub(crate) fn hex(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Sha256(hasher) => hex(&hasher.finalize()),
            Self::Sha512(hasher) => hex(&hasher.finalize()),
            Self::Blake3(hasher) => hex(hasher.finalize().as_bytes()),
            Self::Crc32(hasher) => hex(&hasher.finalize().to_be_bytes()),
        }
    }
}
