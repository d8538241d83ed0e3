//! Keys: ECDSA on P-256 with SHA-256, and Ed25519. Public keys are SPKI (RFC 5280, section 4.1.2.7), private keys PKCS#8
//! (RFC 5208), both in PEM (RFC 7468). Private keys have no password: their file is readable by its owner only.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest as _, Sha256};
use toolbay_state::regular::open_regular;
use zeroize::Zeroizing;

use super::SignatureError;
use crate::digest::BlobDigest;

/// What precedes a point of P-256 in SPKI: the algorithm `id-ecPublicKey` with the curve (RFC 5480).
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Bytes of an uncompressed point of P-256.
const P256_POINT: usize = 65;
/// What precedes an Ed25519 key in SPKI (RFC 8410).
const ED25519_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Bytes of an Ed25519 key.
const ED25519_POINT: usize = 32;
/// Largest file with a key, in bytes.
const MAX_FILE: u64 = 64 << 10;
/// Characters of a line of PEM.
const PEM_LINE: usize = 64;
const PUBLIC_LABEL: &str = "PUBLIC KEY";
const PRIVATE_LABEL: &str = "PRIVATE KEY";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAlgorithm {
    P256,
    Ed25519,
}

/// A key that signatures are verified with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    algorithm: KeyAlgorithm,
    spki: Vec<u8>,
}

impl PublicKey {
    /// Parses a key in PEM.
    ///
    /// # Errors
    /// Fails if the text is not a public key.
    pub fn from_pem(text: &str) -> Result<Self, String> {
        let spki = decode_pem(text, PUBLIC_LABEL)?;
        let is = |prefix: &[u8], length: usize| {
            spki.strip_prefix(prefix).is_some_and(|point| point.len() == length)
        };
        let algorithm = if is(&P256_PREFIX, P256_POINT) {
            KeyAlgorithm::P256
        } else if is(&ED25519_PREFIX, ED25519_POINT) {
            KeyAlgorithm::Ed25519
        } else {
            return Err("the key is neither of P-256 nor of Ed25519".to_owned());
        };
        Ok(Self { algorithm, spki: spki.to_vec() })
    }

    /// Reads a key from a file. Blocks.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has no public key.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::from_pem(&read_text(path).map_err(|error| error.to_string())?)
    }

    /// The key in PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        encode_pem(&self.spki, PUBLIC_LABEL).to_string()
    }

    /// Writes the key in PEM into a new file. Blocks.
    ///
    /// # Errors
    /// The file exists already, or cannot be written.
    pub fn write_new(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(self.to_pem().as_bytes())
    }

    /// The id of the key: the SHA-256 of its SPKI.
    #[must_use]
    pub fn id(&self) -> BlobDigest {
        BlobDigest::of(&self.spki)
    }

    /// How a bundle names the key: the SHA-256 in base64, as cosign writes it.
    pub(super) fn hint(&self) -> String {
        STANDARD.encode(Sha256::digest(&self.spki))
    }

    /// Whether the key made a signature.
    pub(super) fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        let (prefix, algorithm): (usize, &'static dyn VerificationAlgorithm) = match self.algorithm {
            KeyAlgorithm::P256 => (P256_PREFIX.len(), &ECDSA_P256_SHA256_ASN1),
            KeyAlgorithm::Ed25519 => (ED25519_PREFIX.len(), &ED25519),
        };
        let point = self.spki.get(prefix..).unwrap_or_default();
        UnparsedPublicKey::new(algorithm, point).verify(signed, signature).is_ok()
    }
}

/// Reads the public key of a file that has a public or a private key. Blocks.
///
/// # Errors
/// Fails if the file cannot be read or has no key, or if others may read the private key.
pub fn read_public(path: &Path) -> Result<PublicKey, String> {
    let text = read_text(path).map_err(|error| error.to_string())?;
    match text.contains("PRIVATE KEY-----") {
        true => PrivateKey::read(path).map(|key| key.public),
        false => PublicKey::from_pem(&text),
    }
}

enum KeyPair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A key that signs. `Debug` shows its public part only.
pub struct PrivateKey {
    pair: KeyPair,
    public: PublicKey,
    pkcs8: Zeroizing<Vec<u8>>,
}

impl PrivateKey {
    /// Makes a new key of P-256.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, SignatureError> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        let made = made.map_err(|_| no_random())?;
        Self::from_pkcs8(Zeroizing::new(made.as_ref().to_vec())).map_err(SignatureError::Invalid)
    }

    /// Parses a key in PEM.
    ///
    /// # Errors
    /// Fails if the text is not a private key, or the key has a password.
    pub fn from_pem(text: &str) -> Result<Self, String> {
        if text.contains("ENCRYPTED") {
            return Err("the key has a password, which is not supported".to_owned());
        }
        Self::from_pkcs8(decode_pem(text, PRIVATE_LABEL)?)
    }

    /// Reads a key from a file, which only its owner may read. Blocks.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no private key, or if others may read it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let meta = std::fs::metadata(path).map_err(|error| error.to_string())?;
        if meta.mode() & 0o077 != 0 {
            return Err("other users may read the private key: `chmod 600` it".to_owned());
        }
        Self::from_pem(&read_text(path).map_err(|error| error.to_string())?)
    }

    /// Writes the key into a new file that only its owner may read. Blocks.
    ///
    /// # Errors
    /// The file exists already, or cannot be written.
    pub fn write_new(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(encode_pem(&self.pkcs8, PRIVATE_LABEL).as_bytes())?;
        file.sync_all()
    }

    /// The public part.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    fn from_pkcs8(pkcs8: Zeroizing<Vec<u8>>) -> Result<Self, String> {
        if let Ok(pair) =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8, &SystemRandom::new())
        {
            let spki = [&P256_PREFIX, pair.public_key().as_ref()].concat();
            let public = PublicKey { algorithm: KeyAlgorithm::P256, spki };
            return Ok(Self { pair: KeyPair::P256(pair), public, pkcs8 });
        }
        // OpenSSL writes Ed25519 keys without their public part.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8)
            .map_err(|_| "the private key is neither of P-256 nor of Ed25519 in PKCS#8".to_owned())?;
        let spki = [&ED25519_PREFIX, pair.public_key().as_ref()].concat();
        let public = PublicKey { algorithm: KeyAlgorithm::Ed25519, spki };
        Ok(Self { pair: KeyPair::Ed25519(pair), public, pkcs8 })
    }

    pub(super) fn sign(&self, signed: &[u8]) -> Result<Vec<u8>, SignatureError> {
        match &self.pair {
            KeyPair::P256(pair) => {
                let signature = pair.sign(&SystemRandom::new(), signed).map_err(|_| no_random())?;
                Ok(signature.as_ref().to_vec())
            }
            KeyPair::Ed25519(pair) => Ok(pair.sign(signed).as_ref().to_vec()),
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("public", &self.public).finish_non_exhaustive()
    }
}

fn no_random() -> SignatureError {
    SignatureError::Invalid("the system has no random numbers".to_owned())
}

fn read_text(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    open_regular(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

/// The content of the only PEM block with a label.
fn decode_pem(text: &str, label: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let missing = || format!("it has no `{begin}`");
    let (_, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (body, rest) = rest.split_once(&end).ok_or_else(|| format!("it has no `{end}`"))?;
    if rest.contains(&begin) {
        return Err("it has more than one key".to_owned());
    }
    let body = Zeroizing::new(body.split_ascii_whitespace().collect::<String>());
    STANDARD.decode(body.as_bytes()).map(Zeroizing::new).map_err(|_| "its key is not base64".to_owned())
}

fn encode_pem(bytes: &[u8], label: &str) -> Zeroizing<String> {
    let body = Zeroizing::new(STANDARD.encode(bytes));
    let mut text = Zeroizing::new(format!("-----BEGIN {label}-----\n"));
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, later) = rest.split_at(rest.len().min(PEM_LINE));
        text.push_str(line);
        text.push('\n');
        rest = later;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Keys of `openssl genpkey`.
    const P256: &str = include_str!("testdata/p256.key");
    const P256_PUBLIC: &str = include_str!("testdata/p256.pub");
    const ED25519_KEY: &str = include_str!("testdata/ed25519.key");
    const ED25519_PUBLIC: &str = include_str!("testdata/ed25519.pub");

    #[test]
    fn keys_of_openssl_are_read_and_sign() {
        for (private, public) in [(P256, P256_PUBLIC), (ED25519_KEY, ED25519_PUBLIC)] {
            let (private, public) =
                (PrivateKey::from_pem(private).unwrap(), PublicKey::from_pem(public).unwrap());
            assert_eq!(private.public(), &public);
            assert_eq!(PublicKey::from_pem(&public.to_pem()).as_ref(), Ok(&public));
            let signature = private.sign(b"text").unwrap();
            assert!(public.verifies(b"text", &signature) && !public.verifies(b"texts", &signature));
            assert!(!format!("{private:?}").contains("pkcs8"));
        }
    }

    #[test]
    fn a_new_key_is_written_for_its_owner_only_and_never_over_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("acme.key");
        let key = PrivateKey::generate().unwrap();
        key.write_new(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(PrivateKey::read(&path).unwrap().public(), key.public());
        assert_eq!(key.write_new(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(PrivateKey::read(&path).unwrap_err().contains("chmod 600"));
    }

    #[test]
    fn what_is_not_a_key_is_refused() {
        let twice = format!("{P256_PUBLIC}{P256_PUBLIC}");
        let rsa = encode_pem(&[0x30, 0x82], PUBLIC_LABEL);
        for (text, part) in [
            ("", "BEGIN PUBLIC KEY"),
            (P256, "BEGIN PUBLIC KEY"),
            (&twice, "more than one"),
            (&rsa, "neither of P-256"),
            ("-----BEGIN PUBLIC KEY-----\n", "END PUBLIC KEY"),
            ("-----BEGIN PUBLIC KEY-----\n%\n-----END PUBLIC KEY-----", "base64"),
        ] {
            let error = PublicKey::from_pem(text).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
        for (text, part) in [
            (P256_PUBLIC, "BEGIN PRIVATE KEY"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----", "password"),
            ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "neither of P-256"),
        ] {
            let error = PrivateKey::from_pem(text).map(|key| key.public().id()).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
