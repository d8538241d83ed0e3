//! What is signed: an in-toto statement (in-toto attestation framework, `Statement/v1`) in a DSSE envelope (DSSE protocol
//! 1.0).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use toolbay_policy::excerpt::one_line;

use super::SignatureError;
use crate::digest::BlobDigest;

/// The media type of a statement.
pub(super) const STATEMENT_TYPE: &str = "application/vnd.in-toto+json";
/// The version of a statement.
const STATEMENT_VERSION: &str = "https://in-toto.io/Statement/v1";
/// What a statement says about its subject: that the signer signed it (cosign, `SIGNATURE_SPEC`).
const PREDICATE_TYPE: &str = "https://sigstore.dev/cosign/sign/v1";

#[derive(Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    version: String,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    digest: BTreeMap<String, String>,
}

/// The statement that a manifest is signed.
pub(super) fn statement(manifest: &BlobDigest) -> Vec<u8> {
    let subject = json!([{"digest": {"sha256": &*manifest.hex()}}]);
    json!({
        "_type": STATEMENT_VERSION,
        "subject": subject,
        "predicateType": PREDICATE_TYPE,
        "predicate": {},
    })
    .to_string()
    .into_bytes()
}

/// The bytes that a signature covers: type and payload, each with its length, so that neither can pass for a part of the
/// other ("PAE" in DSSE).
pub(super) fn signed_bytes(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// Checks that a statement says that exactly this manifest is signed.
pub(super) fn check_statement(payload: &[u8], manifest: &BlobDigest) -> Result<(), SignatureError> {
    let invalid = |why: String| Err(SignatureError::Invalid(why));
    let Ok(statement) = serde_json::from_slice::<Statement>(payload) else {
        return invalid("what is signed is not an in-toto statement".to_owned());
    };
    if statement.version != STATEMENT_VERSION {
        let shown = one_line(&statement.version, 100);
        return invalid(format!("what is signed is `{shown}`, and `{STATEMENT_VERSION}` is known"));
    }
    if statement.predicate_type != PREDICATE_TYPE {
        let shown = one_line(&statement.predicate_type, 100);
        return invalid(format!("it states `{shown}`, and a signature states `{PREDICATE_TYPE}`"));
    }
    let [subject] = statement.subject.as_slice() else {
        return invalid("it does not have exactly one subject".to_owned());
    };
    match subject.digest.get("sha256") {
        Some(hex) if *hex == *manifest.hex() => Ok(()),
        _ => Err(SignatureError::Untrusted("it is the signature of another manifest".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the DSSE protocol.
    #[test]
    fn the_signed_bytes_are_those_of_the_protocol() {
        let signed = signed_bytes("http://example.com/HelloWorld", b"hello world");
        assert_eq!(signed, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }
}
