//! The bundle and the root are made by `tests/registries/keyless/sign.mjs`.

use serde_json::{Value, json};

use super::*;
use crate::signature::{AcceptedSigners, MAX_BUNDLE, verify};

const BUNDLE: &str = include_str!("testdata/keyless/bundle.json");
const ROOT: &str = include_str!("testdata/keyless/trusted_root.json");
/// The root of another authority and other logs.
const OTHER_ROOT: &str = include_str!("testdata/keyless/other_root.json");
const IDENTITY: &str = "https://forge.example/acme/hash/release.yml@refs/tags/v1.0.0";
const ISSUER: &str = "https://token.forge.example";

fn manifest() -> BlobDigest {
    BlobDigest::of(b"manifest")
}

fn root(text: &str) -> TrustRoot {
    TrustRoot::parse(Path::new("trusted_root.json"), text.to_owned()).unwrap()
}

fn rule() -> KeylessRule {
    let identity = IdentityPattern::parse("https://forge.example/acme/*/release.yml@refs/tags/*").unwrap();
    KeylessRule { identity, issuer: ISSUER.to_owned(), root: root(ROOT), min_age: None }
}

fn accept(bundle: &str, rule: KeylessRule) -> Result<VerifiedSigner, SignatureError> {
    let accepted = AcceptedSigners { keys: Vec::new(), keyless: Some(rule) };
    verify(bundle.as_bytes(), &manifest(), &accepted)
}

/// Checks that a bundle is refused for this reason.
fn refuses(bundle: &str, rule: KeylessRule, part: &str) {
    let error = accept(bundle, rule).unwrap_err().to_string();
    assert!(error.contains(part), "{part}: {error}");
}

/// The root with another value at a place.
fn changed_root(pointer: &str, value: Value) -> TrustRoot {
    let mut document: Value = serde_json::from_str(ROOT).unwrap();
    *document.pointer_mut(pointer).unwrap() = value;
    root(&document.to_string())
}

#[test]
fn a_certificate_of_the_identity_is_accepted() {
    let signer = accept(BUNDLE, rule()).unwrap();
    let expected = Signer::Keyless { issuer: ISSUER.to_owned(), identity: IDENTITY.to_owned() };
    assert_eq!(signer.signer, expected);
    assert_eq!(signer.signer.to_string().parse(), Ok(expected));
    assert!(signer.signed_at.unwrap().starts_with("2026-"));
}

#[test]
fn another_identity_or_issuer_or_root_is_refused() {
    let identity = |text: &str| KeylessRule { identity: IdentityPattern::parse(text).unwrap(), ..rule() };
    refuses(BUNDLE, identity("https://forge.example/acme/*/release.yml@refs/heads/*"), IDENTITY);
    refuses(BUNDLE, identity("https://forge.example/other/*/release.yml@refs/tags/*"), "is signed by");
    let issuer = KeylessRule { issuer: "https://other.example".to_owned(), ..rule() };
    refuses(BUNDLE, issuer, "`https://token.forge.example` vouched for its identity");
    let other = KeylessRule { root: root(OTHER_ROOT), ..rule() };
    refuses(BUNDLE, other, "`trusted_root.json`, does not confirm it");
    // An authority or a log that came later, or ended earlier.
    for (place, part) in [
        ("/certificateAuthorities/0/validFor", "does not confirm it"),
        ("/tlogs/0/publicKey/validFor", "does not confirm it"),
    ] {
        for window in [
            json!({"start": "2030-01-01T00:00:00Z"}),
            json!({"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"}),
        ] {
            let root = changed_root(place, window);
            refuses(BUNDLE, KeylessRule { root, ..rule() }, part);
        }
    }
    for place in ["/certificateAuthorities", "/tlogs", "/ctlogs"] {
        let root = changed_root(place, json!([]));
        refuses(BUNDLE, KeylessRule { root, ..rule() }, "does not confirm it");
    }
}

#[test]
fn a_signature_has_the_age_that_the_rule_asks_for() {
    let signed_at = accept(BUNDLE, rule()).unwrap().signed_at.unwrap();
    let entry: Value = serde_json::from_str(BUNDLE).unwrap();
    let time = entry["verificationMaterial"]["tlogEntries"][0]["integratedTime"].as_str().unwrap();
    let logged = SystemTime::UNIX_EPOCH + Duration::from_secs(time.parse().unwrap());
    let day = Duration::from_secs(24 * 3600);
    let rule = KeylessRule { min_age: Some(3 * day), ..rule() };
    let at = |now| rule.verify(BUNDLE.as_bytes(), &manifest(), now);
    assert_eq!(at(logged + 3 * day).unwrap().signed_at.unwrap(), signed_at);
    for (now, part) in
        [(logged + 2 * day, "it is 2d old, and the rule's `min_age` is 3d"), (logged - day, "it is 0")]
    {
        let error = at(now).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("`min_age` is"), "{error}");
    }
}

#[test]
fn a_bundle_that_was_changed_is_refused() {
    let good: Value = serde_json::from_str(BUNDLE).unwrap();
    let with = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        changed.to_string()
    };
    let entry = "/verificationMaterial/tlogEntries/0";
    let at = |path: &str| format!("{entry}{path}");
    let without_proof = {
        let mut changed = good.clone();
        changed.pointer_mut(entry).unwrap().as_object_mut().unwrap().remove("inclusionProof");
        changed.to_string()
    };
    let other_payload = crate::signature::dsse::statement(&BlobDigest::of(b"other"));
    let other_payload =
        json!(base64::Engine::encode(&base64::engine::general_purpose::STANDARD, other_payload));
    for text in [
        without_proof,
        with("/verificationMaterial/tlogEntries", json!([])),
        with("/dsseEnvelope/payload", other_payload),
        with("/dsseEnvelope/signatures/0/sig", json!("MEQCIAAA")),
        with(&at("/integratedTime"), json!("1")),
        with(&at("/integratedTime"), json!("4000000000")),
        with(&at("/inclusionProof/rootHash"), json!("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")),
        with(&at("/inclusionProof/checkpoint/envelope"), json!("localhost - 1\n1\nAAAA\n")),
        with(&at("/inclusionPromise/signedEntryTimestamp"), json!("MEQCIAAA")),
        with(&at("/canonicalizedBody"), json!("e30=")),
        with(&at("/logId/keyId"), json!("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")),
        with("/verificationMaterial/certificate/rawBytes", json!("AAAA")),
        "{}".to_owned(),
        " ".repeat(MAX_BUNDLE + 1),
    ] {
        accept(&text, rule()).expect_err(text.get(..200).unwrap_or(&text));
    }
    // A good signature of something else.
    let accepted = AcceptedSigners { keys: Vec::new(), keyless: Some(rule()) };
    verify(BUNDLE.as_bytes(), &BlobDigest::of(b"other"), &accepted).unwrap_err();
    // A rule with keys only.
    let error = verify(BUNDLE.as_bytes(), &manifest(), &AcceptedSigners::default()).unwrap_err().to_string();
    assert!(error.contains("has no `identity`"), "{error}");
}

#[test]
fn a_trust_root_is_read_with_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("root.json");
    for (content, part) in [
        ("{}", "is not a trust root"),
        ("x", "is not a trust root"),
        (&*" ".repeat(usize::try_from(MAX_ROOT).unwrap() + 1), "has more than 1048576 bytes"),
    ] {
        std::fs::write(&file, content).unwrap();
        let error = TrustRoot::read(&file).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    std::fs::write(&file, ROOT).unwrap();
    assert_eq!(TrustRoot::read(&file).unwrap().text(), ROOT);
    assert!(TrustRoot::read(&dir.path().join("absent")).is_err());
}
