//! The cryptography of [`sigstore_verify`], by `ring` and `sha2`, which this program has for other purposes. It only
//! verifies.

use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use sigstore_verify::crypto::{CryptoProvider, Error, HashContext, SigningScheme, install_default_provider};
use sigstore_verify::types::HashAlgorithm;

static PROVIDER: RingProvider = RingProvider;

/// Makes this the cryptography of the library.
pub(super) fn install() {
    // Only the first time succeeds, and nothing else in this program installs another one.
    install_default_provider(&PROVIDER).ok();
}

#[derive(Debug)]
struct RingProvider;

/// A hash that is computed in parts.
struct PartialHash<H>(H);

impl<H: sha2::Digest + Send> HashContext for PartialHash<H> {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finalize().to_vec()
    }
}

impl CryptoProvider for RingProvider {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Error> {
        Ok(match algorithm {
            HashAlgorithm::Sha2256 => Box::new(PartialHash(Sha256::new())),
            HashAlgorithm::Sha2384 => Box::new(PartialHash(Sha384::new())),
            HashAlgorithm::Sha2512 => Box::new(PartialHash(Sha512::new())),
            other => return Err(Error::UnsupportedAlgorithm(format!("{other:?}"))),
        })
    }

    fn verify_raw(
        &self,
        scheme: SigningScheme,
        spki_pubkey_bytes: &[u8],
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), Error> {
        let key = UnparsedPublicKey::new(algorithm(scheme)?, spki_pubkey_bytes);
        key.verify(data, signature).map_err(|_| Error::Verification("the signature is wrong".to_owned()))
    }

    /// Only signatures of blobs need this, and a plugin's signature is one of a statement.
    fn verify_prehashed(
        &self,
        scheme: SigningScheme,
        _spki_pubkey_bytes: &[u8],
        _digest: &[u8],
        _signature: &[u8],
    ) -> Result<(), Error> {
        Err(Error::UnsupportedAlgorithm(format!("{scheme:?} of a digest")))
    }
}

fn algorithm(scheme: SigningScheme) -> Result<&'static dyn VerificationAlgorithm, Error> {
    Ok(match scheme {
        SigningScheme::EcdsaP256Sha256 => &signature::ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &signature::ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &signature::ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &signature::ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &signature::ED25519,
        SigningScheme::RsaPssSha256 => &signature::RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &signature::RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &signature::RSA_PSS_2048_8192_SHA512,
        SigningScheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        other => return Err(Error::UnsupportedAlgorithm(format!("{other:?}"))),
    })
}
