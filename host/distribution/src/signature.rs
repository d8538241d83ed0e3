//! Signatures of manifests: sigstore bundles with an in-toto statement whose subject is the digest of the manifest, as
//! cosign 3 writes them. A bundle binds a digest, not a repository; which keys may sign what is the policy's matter.

mod bundle;
mod dsse;
pub mod key;

use crate::digest::BlobDigest;
use bundle::SignatureBundle;
use key::{PrivateKey, PublicKey};

pub use bundle::MAX_BUNDLE;

/// Why a signature is not accepted, or was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The bundle is malformed, or of a kind that is not supported.
    #[error("{0}")]
    Invalid(String),
    /// It is signed, but by none of the keys, or for another manifest.
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
    Ok(SignatureBundle { payload: statement, signature, key: Some(key.public().clone()) }.to_json())
}

/// Verifies a bundle: one of the keys signed it, and its subject is the manifest. Returns the id of the key.
///
/// # Errors
/// The bundle is not accepted.
pub fn verify(
    bundle: &[u8],
    manifest: &BlobDigest,
    keys: &[PublicKey],
) -> Result<BlobDigest, SignatureError> {
    let bundle = SignatureBundle::parse(bundle)?;
    let signed = dsse::signed_bytes(dsse::STATEMENT_TYPE, &bundle.payload);
    let Some(key) = keys.iter().find(|key| key.verifies(&signed, &bundle.signature)) else {
        return Err(SignatureError::Untrusted("it is signed by a key that is not trusted".to_owned()));
    };
    // The statement is parsed only now: nothing in it counts before the signature does.
    dsse::check_statement(&bundle.payload, manifest)?;
    Ok(key.id())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::*;

    fn bundle_of(key: &PrivateKey, payload: &[u8]) -> Vec<u8> {
        let signature = key.sign(&dsse::signed_bytes(dsse::STATEMENT_TYPE, payload)).unwrap();
        SignatureBundle { payload: payload.to_vec(), signature, key: None }.to_json()
    }

    #[test]
    fn a_signature_holds_for_its_manifest_and_key_only() {
        let (key, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
        let (manifest, else_manifest) = (BlobDigest::of(b"manifest"), BlobDigest::of(b"other"));
        let bundle = sign(&key, &manifest).unwrap();
        let keys = [other.public().clone(), key.public().clone()];
        assert_eq!(verify(&bundle, &manifest, &keys), Ok(key.public().id()));
        let error = |bundle: &[u8], manifest: &BlobDigest, keys: &[PublicKey]| {
            verify(bundle, manifest, keys).unwrap_err().to_string()
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
        for (text, part) in [
            (with("/dsseEnvelope/payload", json!(payload)), "not trusted"),
            (with("/dsseEnvelope/payload", json!("%")), "base64"),
            (with("/dsseEnvelope/payloadType", json!("text/plain")), "text/plain"),
            (with("/dsseEnvelope/signatures", json!([])), "0 signatures"),
            (with("/dsseEnvelope/signatures", json!([signature, signature])), "2 signatures"),
            (with("/dsseEnvelope/signatures/0/sig", json!("AAAA")), "not trusted"),
            (with("/mediaType", json!("application/json")), "application/json"),
            (with("/verificationMaterial", certificate), "certificate"),
            (with("/verificationMaterial", json!({})), "names no key"),
            ("[]".to_owned(), "not a sigstore bundle"),
            (bundle.to_string().replacen('{', "{\"mediaType\": \"x\",", 1), "not a sigstore bundle"),
            (" ".repeat(MAX_BUNDLE + 1), "the limit is"),
        ] {
            let error = verify(text.as_bytes(), &manifest, &[key.public().clone()]).unwrap_err();
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
            (with("subject", json!([{"digest": {"sha512": manifest.hex()}}])), "another manifest"),
            ("{}".to_owned(), "not an in-toto statement"),
        ] {
            let bundle = bundle_of(&key, payload.as_bytes());
            let error = verify(&bundle, &manifest, &[key.public().clone()]).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
        let bundle = bundle_of(&key, good.to_string().as_bytes());
        assert!(verify(&bundle, &manifest, &[key.public().clone()]).is_ok());
    }
}
