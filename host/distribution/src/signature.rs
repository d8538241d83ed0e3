//! Signatures of manifests: sigstore bundles with an in-toto statement whose subject is the digest of the manifest, as
//! cosign 3 writes them. A bundle binds a digest, not a repository; the policy decides which keys may sign what.

mod bundle;
mod dsse;
pub mod key;
pub mod keyless;
mod provider;

use std::time::SystemTime;

use crate::digest::BlobDigest;
use crate::lock::Signer;
use bundle::{SignatureBundle, SignerKind};
use key::{PrivateKey, PublicKey};
use keyless::KeylessRule;

pub use bundle::MAX_BUNDLE;

/// Why a signature is not accepted, or was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The bundle is malformed, or of a kind that is not supported.
    #[error("{0}")]
    Invalid(String),
    /// The content is signed, but by none of the keys, or for another manifest.
    #[error("{0}")]
    Untrusted(String),
}

/// Signs a manifest. Returns the bundle, which is stored beside it.
///
/// # Errors
/// The system has no random numbers.
pub fn sign(key: &PrivateKey, manifest: &BlobDigest) -> Result<Vec<u8>, SignatureError> {
    let statement = dsse::statement(manifest);
    let signature = key.sign(&dsse::signed_bytes(dsse::STATEMENT_TYPE, &statement))?;
    Ok(SignatureBundle {
        payload: statement,
        signature,
        key: Some(key.public().clone()),
        kind: SignerKind::Key,
    }
    .to_json())
}

/// Whose signatures are accepted.
#[derive(Debug, Default)]
pub struct AcceptedSigners {
    /// The keys.
    pub keys: Vec<PublicKey>,
    /// The identities with certificates.
    pub keyless: Option<KeylessRule>,
}

/// Who made a signature that is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedSigner {
    /// The signer.
    pub signer: Signer,
    /// When it was made (RFC 3339), as a log or an authority confirms; `None` for a key.
    pub signed_at: Option<String>,
}

/// Verifies a bundle: an accepted signer made it, and its subject is the manifest.
///
/// # Errors
/// The bundle is not accepted.
pub fn verify(
    bytes: &[u8],
    manifest: &BlobDigest,
    accepted: &AcceptedSigners,
) -> Result<VerifiedSigner, SignatureError> {
    let bundle = SignatureBundle::parse(bytes)?;
    let verified = match (bundle.kind, &accepted.keyless) {
        (SignerKind::Key, _) => {
            let signed = dsse::signed_bytes(dsse::STATEMENT_TYPE, &bundle.payload);
            let key = accepted.keys.iter().find(|key| key.verifies(&signed, &bundle.signature));
            let key = key.ok_or_else(|| untrusted("it is signed by a key that is not trusted"))?;
            VerifiedSigner { signer: Signer::Key(key.id()), signed_at: None }
        }
        (SignerKind::Certificate, Some(rule)) => rule.verify(bytes, manifest, SystemTime::now())?,
        (SignerKind::Certificate, None) => {
            return Err(untrusted("it is signed with a certificate, and the rule has no `identity`"));
        }
    };
    // The statement is parsed only now: nothing in it counts before the signature does.
    dsse::check_statement(&bundle.payload, manifest)?;
    Ok(verified)
}

/// Checks that a bundle is about a manifest, before it is uploaded. Whether its signature holds is for those who trust its
/// signer.
///
/// # Errors
/// Fails if the bytes are not a bundle, or the bundle is about another manifest.
pub fn check_subject(bytes: &[u8], manifest: &BlobDigest) -> Result<(), SignatureError> {
    dsse::check_statement(&SignatureBundle::parse(bytes)?.payload, manifest)
}

fn untrusted(why: &str) -> SignatureError {
    SignatureError::Untrusted(why.to_owned())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::*;

    fn accepting(keys: &[PublicKey]) -> AcceptedSigners {
        AcceptedSigners { keys: keys.to_vec(), keyless: None }
    }

    fn bundle_of(key: &PrivateKey, payload: &[u8]) -> Vec<u8> {
        let signature = key.sign(&dsse::signed_bytes(dsse::STATEMENT_TYPE, payload)).unwrap();
        SignatureBundle { payload: payload.to_vec(), signature, key: None, kind: SignerKind::Key }.to_json()
    }

    #[test]
    fn a_signature_holds_for_its_manifest_and_key_only() {
        let (key, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
        let (manifest, else_manifest) = (BlobDigest::of(b"manifest"), BlobDigest::of(b"other"));
        let bundle = sign(&key, &manifest).unwrap();
        let keys = [other.public().clone(), key.public().clone()];
        let signer = VerifiedSigner { signer: Signer::Key(key.public().id()), signed_at: None };
        assert_eq!(verify(&bundle, &manifest, &accepting(&keys)), Ok(signer));
        let error = |bundle: &[u8], manifest: &BlobDigest, keys: &[PublicKey]| {
            verify(bundle, manifest, &accepting(keys)).unwrap_err().to_string()
        };
        assert!(error(&bundle, &else_manifest, &keys).contains("another manifest"));
        assert!(error(&bundle, &manifest, &keys[..1]).contains("not trusted"));
        assert!(error(&bundle, &manifest, &[]).contains("not trusted"));
    }

    #[test]
    fn a_changed_bundle_is_refused() {
        let key = PrivateKey::generate().unwrap();
        let manifest = BlobDigest::of(b"manifest");
        let bundle: Value = serde_json::from_slice(&sign(&key, &manifest).unwrap()).unwrap();
        let envelope = bundle["dsseEnvelope"].clone();
        let with = |pointer: &str, value: Value| {
            let mut changed = bundle.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            changed.to_string()
        };
        let signature = envelope["signatures"][0].clone();
        let payload = STANDARD.encode(dsse::statement(&BlobDigest::of(b"other")));
        let certificate = json!({"certificate": {"rawBytes": "AA=="}});
        let both = json!({"certificate": {"rawBytes": "AA=="}, "publicKey": {"hint": ""}});
        for (text, part) in [
            (with("/dsseEnvelope/payload", json!(payload)), "not trusted"),
            (with("/dsseEnvelope/payload", json!("%")), "base64"),
            (with("/dsseEnvelope/payloadType", json!("text/plain")), "text/plain"),
            (with("/dsseEnvelope/signatures", json!([])), "0 signatures"),
            (with("/dsseEnvelope/signatures", json!([signature, signature])), "2 signatures"),
            (with("/dsseEnvelope/signatures/0/sig", json!("AAAA")), "not trusted"),
            (with("/mediaType", json!("application/json")), "application/json"),
            (with("/verificationMaterial", certificate), "has no `identity`"),
            (with("/verificationMaterial", both), "several keys or certificates"),
            (with("/verificationMaterial", json!({})), "names no key"),
            ("[]".to_owned(), "not a sigstore bundle"),
            (bundle.to_string().replacen('{', "{\"mediaType\": \"x\",", 1), "not a sigstore bundle"),
            (" ".repeat(MAX_BUNDLE + 1), "the limit is"),
        ] {
            let error = verify(text.as_bytes(), &manifest, &accepting(&[key.public().clone()])).unwrap_err();
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn a_signed_statement_about_something_else_is_refused() {
        let key = PrivateKey::generate().unwrap();
        let manifest = BlobDigest::of(b"manifest");
        let good: Value = serde_json::from_slice(&dsse::statement(&manifest)).unwrap();
        let with = |name: &str, value: Value| {
            let mut changed = good.clone();
            changed[name] = value;
            changed.to_string()
        };
        let subject = good["subject"][0].clone();
        for (payload, part) in [
            (with("_type", json!("https://in-toto.io/Statement/v0.1")), "Statement"),
            (with("predicateType", json!("https://slsa.dev/provenance/v1")), "slsa.dev"),
            (with("subject", json!([])), "one subject"),
            (with("subject", json!([subject, subject])), "one subject"),
            (with("subject", json!([{"digest": {"sha512": &*manifest.hex()}}])), "another manifest"),
            ("{}".to_owned(), "not an in-toto statement"),
        ] {
            let bundle = bundle_of(&key, payload.as_bytes());
            let error =
                verify(&bundle, &manifest, &accepting(&[key.public().clone()])).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
        let bundle = bundle_of(&key, good.to_string().as_bytes());
        assert!(verify(&bundle, &manifest, &accepting(&[key.public().clone()])).is_ok());
    }
}
