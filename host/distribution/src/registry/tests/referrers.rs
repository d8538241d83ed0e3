//! Signatures in a registry that lists referrers, in one that does not, and in one that lies.

use super::*;
use crate::media_type::{BUNDLE, EMPTY};

const BUNDLE_BYTES: &[u8] = b"{\"bundle\": 1}";

fn manifest_digest() -> BlobDigest {
    BlobDigest::of(b"manifest")
}

fn signature_manifest(subject: &BlobDigest, layers: &Value) -> String {
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE, "layers": layers,
        "subject": {"mediaType": MANIFEST, "digest": subject, "size": 8}})
    .to_string()
}

fn layer(bytes: &[u8]) -> Value {
    json!({"mediaType": BUNDLE, "digest": BlobDigest::of(bytes), "size": bytes.len()})
}

fn entry(text: &str) -> Value {
    let digest = BlobDigest::of(text.as_bytes());
    json!({"mediaType": MANIFEST, "digest": digest, "size": text.len(), "artifactType": BUNDLE})
}

fn index(entries: &[Value]) -> Vec<u8> {
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string().into_bytes()
}

impl FakeRegistry {
    fn put_referrers(&mut self, response: CannedResponse) {
        self.put(&format!("{HOST}/v2/acme/hash/referrers/{}", manifest_digest()), response);
    }

    fn put_bundle(&mut self, bytes: &[u8]) {
        let url = format!("{HOST}/v2/acme/hash/blobs/{}", BlobDigest::of(bytes));
        self.put(&url, (200, Vec::new(), bytes.to_vec()));
    }

    /// Puts a signature, and returns its entry in a list.
    fn put_signature(&mut self, text: &str) -> Value {
        self.put_manifest("signature", text, MANIFEST);
        entry(text)
    }

    /// A registry with one good signature, and its entry.
    fn signed() -> (Self, Value) {
        let mut registry = Self::new();
        registry.put_bundle(BUNDLE_BYTES);
        let text = signature_manifest(&manifest_digest(), &json!([layer(BUNDLE_BYTES)]));
        let entry = registry.put_signature(&text);
        (registry, entry)
    }
}

async fn signatures(registry: FakeRegistry) -> Result<ManifestSignatures, String> {
    let registry = Arc::new(registry);
    let client = client(&registry, "registry.example/acme/hash:1.0", RegistryPolicy::default(), None);
    let found = client.signatures(&manifest_digest()).await;
    found.and_then(ManifestSignatures::require_readable).map_err(|error| error.to_string())
}

async fn found(registry: FakeRegistry) -> Result<Vec<Vec<u8>>, String> {
    Ok(signatures(registry).await?.found.into_iter().map(|signature| signature.bytes).collect())
}

#[tokio::test]
async fn a_signature_without_a_type_is_found_and_what_is_skipped_is_named() {
    // As tools and registries write the entry of a signature.
    let untyped = |entry: &Value, artifact_type: Option<Value>| {
        let mut entry = entry.clone();
        let members = entry.as_object_mut().unwrap();
        members.remove("artifactType");
        members.extend(artifact_type.map(|value| ("artifactType".to_owned(), value)));
        entry
    };
    for artifact_type in [None, Some(json!(null)), Some(json!("")), Some(json!(EMPTY))] {
        let (mut registry, entry) = FakeRegistry::signed();
        registry.put_referrers((200, Vec::new(), index(&[untyped(&entry, artifact_type.clone())])));
        assert_eq!(found(registry).await, Ok(vec![BUNDLE_BYTES.to_vec()]), "{artifact_type:?}");
    }
    // Beside a good one, everything else costs only itself, and is named.
    let (mut registry, good) = FakeRegistry::signed();
    let sbom = registry.put_signature(
        &json!({"schemaVersion": 2, "layers": [{"mediaType": "text/spdx", "digest": "x", "size": 1}]})
            .to_string(),
    );
    let broken = registry.put_signature("{}");
    let others = [
        (
            json!({"mediaType": MANIFEST, "digest": "sha256:1", "size": 1, "artifactType": "application/spdx+json"}),
            "its type is `application/spdx+json`",
        ),
        (untyped(&sbom, None), "is no signature"),
        (broken, "is about another manifest"),
        (
            json!({"mediaType": INDEX, "digest": "sha256:2", "size": 1}),
            "it is `application/vnd.oci.image.index",
        ),
        (json!({"mediaType": MANIFEST, "digest": "sha256:3\nx", "size": 1}), "malformed"),
        (json!({"digest": "sha256:4", "artifactType": BUNDLE}), "no `mediaType`"),
        (json!("text"), "malformed"),
    ];
    let entries: Vec<Value> = others.iter().map(|(entry, _)| entry.clone()).chain([good]).collect();
    registry.put_referrers((200, Vec::new(), index(&entries)));
    let signatures = signatures(registry).await.unwrap();
    assert_eq!(signatures.found.len(), 1);
    for (entry, part) in others {
        let is_named =
            signatures.skipped.iter().any(|one| one.text.contains(part) && !one.text.contains('\n'));
        assert!(is_named, "{entry}: {:?}", signatures.skipped);
    }
}

#[tokio::test]
async fn a_list_that_is_too_long_is_requested_with_a_filter() {
    let path = format!("{HOST}/v2/acme/hash/referrers/{}", manifest_digest());
    let mut filtered: Url = path.parse().unwrap();
    filtered.query_pairs_mut().append_pair("artifactType", BUNDLE);
    let many = || {
        let sbom =
            json!({"mediaType": MANIFEST, "digest": "x", "size": 1, "artifactType": "application/spdx+json"});
        let (mut registry, entry) = FakeRegistry::signed();
        registry.put(&path, (200, Vec::new(), index(&vec![sbom; 65])));
        (registry, entry)
    };
    let (mut registry, entry) = many();
    registry.put(filtered.as_str(), (200, Vec::new(), index(&[entry])));
    let signatures = signatures(registry).await.unwrap();
    assert_eq!(signatures.found.len(), 1);
    let [unread] = signatures.skipped.as_slice() else { panic!("{signatures:?}") };
    assert!(unread.text.contains("the limit of 64") && unread.text.contains("not looked at"), "{unread:?}");
    // One without a type may be among the others, so that nothing counts as unsigned.
    let (mut registry, _) = many();
    registry.put(filtered.as_str(), (200, Vec::new(), index(&[])));
    assert!(found(registry).await.unwrap_err().contains("not looked at"));
}

#[tokio::test]
async fn a_signature_is_found_among_many_referrers_without_a_type() {
    // As many as a list may have, of a registry that drops the type.
    let (mut registry, good) = FakeRegistry::signed();
    let mut entries: Vec<Value> = (0..63)
        .map(|n| json!({"schemaVersion": 2, "layers": null, "annotations": {"n": n.to_string()}}))
        .map(|attestation| registry.put_signature(&attestation.to_string()))
        .chain([good])
        .collect();
    for entry in &mut entries {
        entry.as_object_mut().unwrap().remove("artifactType");
    }
    registry.put_referrers((200, Vec::new(), index(&entries)));
    let signatures = signatures(registry).await.unwrap();
    assert_eq!((signatures.found.len(), signatures.skipped.len()), (1, 63));
    assert!(signatures.skipped.iter().all(|one| !one.is_failure), "{:?}", signatures.skipped);
}

#[tokio::test]
async fn an_empty_list_of_referrers_may_be_null_and_not_absent() {
    let list = |document: Value| (200, Vec::new(), document.to_string().into_bytes());
    let mut registry = FakeRegistry::new();
    registry.put_referrers(list(json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": null})));
    assert_eq!(found(registry).await, Ok(Vec::new()));
    let mut registry = FakeRegistry::new();
    registry.put_referrers(list(json!({"schemaVersion": 2, "mediaType": MANIFEST, "layers": []})));
    assert!(found(registry).await.unwrap_err().contains("not an OCI index"));
}

#[tokio::test]
async fn signatures_are_found_by_the_referrers_or_by_the_index_tag() {
    let (mut registry, entry) = FakeRegistry::signed();
    let sbom =
        json!({"mediaType": MANIFEST, "digest": "x", "size": 1, "artifactType": "application/spdx+json"});
    registry.put_referrers((200, Vec::new(), index(&[sbom.clone(), entry.clone(), entry.clone()])));
    assert_eq!(found(registry).await, Ok(vec![BUNDLE_BYTES.to_vec()]), "each once, and nothing else");
    for status in [303, 404, 429] {
        let (mut registry, entry) = FakeRegistry::signed();
        registry.put_referrers((status, Vec::new(), Vec::new()));
        let text = String::from_utf8(index(&[entry])).unwrap();
        registry.put_manifest(&format!("sha256-{}", manifest_digest().hex()), &text, INDEX);
        assert_eq!(found(registry).await, Ok(vec![BUNDLE_BYTES.to_vec()]), "{status}");
    }
    assert_eq!(found(FakeRegistry::new()).await, Ok(Vec::new()), "neither");
    let mut unsigned = FakeRegistry::new();
    unsigned.put_referrers((200, Vec::new(), index(&[sbom])));
    assert_eq!(found(unsigned).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_failure_never_counts_as_unsigned() {
    let link = headers(&[("link", "</v2/next>; rel=\"next\"")]);
    for (response, part) in [
        ((500, Vec::new(), Vec::new()), "status 500"),
        ((403, Vec::new(), Vec::new()), "requires a login"),
        ((302, headers(&[("location", "https://a.example/")]), Vec::new()), "redirects"),
        ((200, Vec::new(), b"<html>".to_vec()), "not an OCI index"),
        ((200, link, index(&[])), "too many referrers"),
        ((200, Vec::new(), vec![b' '; MAX_MANIFEST + 1]), "more than"),
        ((200, Vec::new(), index(&vec![json!({}); 65])), "limit is 64"),
        ((200, Vec::new(), index(&[json!({"digest": 1})])), "malformed"),
        ((200, Vec::new(), br#"{"schemaVersion": 1, "manifests": []}"#.to_vec()), "`schemaVersion` 1"),
    ] {
        let mut registry = FakeRegistry::new();
        registry.put_referrers(response);
        let error = found(registry).await.unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    // The index tag of a registry without referrers fails as well.
    let mut registry = FakeRegistry::new();
    let tag = format!("{HOST}/v2/acme/hash/manifests/sha256-{}", manifest_digest().hex());
    registry.put(&tag, (503, Vec::new(), Vec::new()));
    assert!(found(registry).await.unwrap_err().contains("status 503"));
    // Nine signatures. Each exists.
    let (mut registry, _) = FakeRegistry::signed();
    let entries: Vec<Value> = (0..9)
        .map(|n| {
            let text = signature_manifest(&manifest_digest(), &json!([layer(BUNDLE_BYTES)]));
            registry.put_signature(&format!("{text}{}", " ".repeat(n)))
        })
        .collect();
    registry.put_referrers((200, Vec::new(), index(&entries)));
    assert!(found(registry).await.unwrap_err().contains("too many signatures: the limit is 8"));
}

#[tokio::test]
async fn a_signature_that_is_not_what_its_entry_says_is_refused() {
    let big = json!({"mediaType": BUNDLE, "digest": BlobDigest::of(BUNDLE_BYTES), "size": (256 << 10) + 1});
    let image = json!({"mediaType": "image/png", "digest": BlobDigest::of(BUNDLE_BYTES), "size": 1});
    let one = layer(BUNDLE_BYTES);
    let (own, other) = (manifest_digest(), BlobDigest::of(b"other"));
    for (text, part) in [
        (signature_manifest(&other, &json!([one])), "about another manifest"),
        (json!({"schemaVersion": 2, "layers": [one]}).to_string(), "about another manifest"),
        (signature_manifest(&own, &json!([])), "exactly one layer"),
        (signature_manifest(&own, &json!([one, one])), "exactly one layer"),
        (signature_manifest(&own, &json!([big])), "the limit is"),
        (signature_manifest(&own, &json!([image])), "image/png"),
        (signature_manifest(&own, &json!([layer(b"absent")])), "has no `sha256:"),
        ("[]".to_owned(), "not an OCI manifest"),
    ] {
        let (mut registry, _) = FakeRegistry::signed();
        let entry = registry.put_signature(&text);
        registry.put_referrers((200, Vec::new(), index(&[entry])));
        let error = found(registry).await.unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    // Other content under the digest of the manifest, or of the bundle.
    for kind in ["manifests", "blobs"] {
        let (mut registry, entry) = FakeRegistry::signed();
        let digest = match kind {
            "manifests" => entry["digest"].as_str().unwrap().to_owned(),
            _ => BlobDigest::of(BUNDLE_BYTES).to_string(),
        };
        registry.put_referrers((200, Vec::new(), index(&[entry])));
        registry.put(&format!("{HOST}/v2/acme/hash/{kind}/{digest}"), (200, Vec::new(), b"{}".to_vec()));
        assert!(found(registry).await.unwrap_err().contains("another digest"), "{kind}");
    }
}

/// Uploads a signature to a registry that lists referrers itself, if it confirms the subject.
async fn upload(confirms: bool) -> (Arc<FakeRegistry>, Result<(), String>) {
    let own = manifest_digest();
    let put = |registry: &mut FakeRegistry, signature: &BlobDigest| {
        registry.put_bundle(BUNDLE_BYTES);
        registry.put_bundle(b"{}");
        let subject = own.to_string();
        let confirmed = if confirms { headers(&[("oci-subject", subject.as_str())]) } else { Vec::new() };
        let url = format!("{HOST}/v2/acme/hash/manifests/{signature}");
        registry.put(&url, (201, confirmed, Vec::new()));
        let entry = json!({"mediaType": MANIFEST, "digest": signature, "size": 1, "artifactType": BUNDLE});
        registry.put_referrers((200, Vec::new(), index(&[entry])));
    };
    let mut signature = BlobDigest::of(b"not known yet");
    loop {
        let mut registry = FakeRegistry::new();
        put(&mut registry, &signature);
        let registry = Arc::new(registry);
        let client = client(&registry, "registry.example/acme/hash:1.0", RegistryPolicy::default(), None);
        let pushed = client.push_signature((&own, 8), BUNDLE_BYTES).await.map_err(|error| error.to_string());
        let requests = registry.requests.lock();
        let uploaded = requests.iter().find(|request| request.method == "PUT").map(|one| one.body.clone());
        drop(requests);
        // The first upload shows the digest of the signature's manifest.
        let digest = BlobDigest::of(&uploaded.unwrap());
        if digest == signature {
            return (registry, pushed);
        }
        signature = digest;
    }
}

#[tokio::test]
async fn a_registry_that_confirms_the_subject_gets_no_index() {
    let (registry, pushed) = upload(true).await;
    assert_eq!(pushed, Ok(()));
    let is_put = |request: &&RegistryRequest| request.method == "PUT";
    let uploads: Vec<RegistryRequest> = registry.requests.lock().iter().filter(is_put).cloned().collect();
    let [uploaded] = uploads.as_slice() else { panic!("{uploads:?}") };
    let document: Value = serde_json::from_slice(&uploaded.body).unwrap();
    assert_eq!(document["subject"]["digest"], json!(manifest_digest()));
    assert_eq!(document["layers"][0]["digest"], json!(BlobDigest::of(BUNDLE_BYTES)));
    // Without the confirmation, the index tag is written, which this registry refuses.
    let (registry, pushed) = upload(false).await;
    assert!(pushed.unwrap_err().contains("status 404"));
    let tag = format!("sha256-{}", manifest_digest().hex());
    let indexed =
        registry.requests.lock().iter().any(|one| one.method == "PUT" && one.url.path().ends_with(&tag));
    assert!(indexed);
}
