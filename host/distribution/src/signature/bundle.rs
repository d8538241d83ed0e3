//! Sigstore bundles (sigstore protobuf specs, `sigstore_bundle.proto`, in JSON). Those of a key are read and written here;
//! of those of a certificate, only the statement is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use toolbay_policy::excerpt::one_line;

use super::SignatureError;
use super::dsse::STATEMENT_TYPE;
use super::key::PublicKey;
use crate::media_type::BUNDLE;

/// Largest bundle in bytes.
pub const MAX_BUNDLE: usize = 256 << 10;

/// Who signed a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignerKind {
    /// A key.
    Key,
    /// The key of a certificate.
    Certificate,
}

/// A bundle with one signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SignatureBundle {
    /// The signed statement, unchanged.
    pub(super) payload: Vec<u8>,
    /// Its signature.
    pub(super) signature: Vec<u8>,
    /// The key, as a hint for readers. Verification tries the trusted keys.
    pub(super) key: Option<PublicKey>,
    pub(super) kind: SignerKind,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleDocument {
    media_type: String,
    verification_material: VerificationMaterial,
    dsse_envelope: Envelope,
}

/// Log entries and timestamps are not read here: a key needs none.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VerificationMaterial {
    public_key: Option<Value>,
    certificate: Option<Value>,
    x509_certificate_chain: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

impl SignatureBundle {
    /// Parses a bundle.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, SignatureError> {
        let invalid = |why: String| SignatureError::Invalid(why);
        if bytes.len() > MAX_BUNDLE {
            return Err(invalid(format!("it has {} bytes, and the limit is {MAX_BUNDLE}", bytes.len())));
        }
        let document: BundleDocument = serde_json::from_slice(bytes).map_err(|error| {
            invalid(format!("it is not a sigstore bundle (line {}, column {})", error.line(), error.column()))
        })?;
        let BundleDocument { media_type, verification_material: material, dsse_envelope: envelope } =
            document;
        if media_type != BUNDLE {
            return Err(invalid(format!("it is `{}`, and `{BUNDLE}` is known", one_line(&media_type, 100))));
        }
        let VerificationMaterial { public_key, certificate, x509_certificate_chain: chain } = material;
        let kind = match (public_key, certificate, chain) {
            (Some(_), None, None) => SignerKind::Key,
            (None, Some(_), None) => SignerKind::Certificate,
            (None, None, None) => return Err(invalid("it names no key and has no certificate".to_owned())),
            (..) => return Err(invalid("it has several keys or certificates".to_owned())),
        };
        if envelope.payload_type != STATEMENT_TYPE {
            let shown = one_line(&envelope.payload_type, 100);
            return Err(invalid(format!("it signs `{shown}`, and `{STATEMENT_TYPE}` is known")));
        }
        let [signature] = envelope.signatures.as_slice() else {
            let count = envelope.signatures.len();
            return Err(invalid(format!("it has {count} signatures, and exactly one is expected")));
        };
        let decode = |name: &str, text: &str| {
            STANDARD.decode(text).map_err(|_| invalid(format!("its `{name}` is not base64")))
        };
        let (payload, signature) = (decode("payload", &envelope.payload)?, decode("sig", &signature.sig)?);
        Ok(Self { payload, signature, key: None, kind })
    }

    /// The bundle as JSON.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let hint = self.key.as_ref().map(PublicKey::hint).unwrap_or_default();
        json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": hint}},
            "dsseEnvelope": {
                "payload": STANDARD.encode(&self.payload),
                "payloadType": STATEMENT_TYPE,
                "signatures": [{"sig": STANDARD.encode(&self.signature)}],
            },
        })
        .to_string()
        .into_bytes()
    }
}
