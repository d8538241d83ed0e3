//! The client against a registry that attacks it. The registry is a table of responses behind the transport's port.

mod referrers;

use std::collections::BTreeMap;

use futures_util::stream;
use serde_json::{Value, json};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::BodyStream;

use super::*;
use crate::credentials::{CredentialResult, UserPassword};
use crate::pack::{ComponentArtifact, ComponentFacts};

const LAYER: &[u8] = b"\0asm component";
const HOST: &str = "https://registry.example";

/// A response: its status, headers and body.
type CannedResponse = (u16, Vec<(String, String)>, Vec<u8>);

/// A registry that gives the same responses each time.
#[derive(Debug, Default)]
struct FakeRegistry {
    responses: BTreeMap<String, CannedResponse>,
    /// What a request without `authorization` gets instead.
    challenge: Option<CannedResponse>,
    requests: Mutex<Vec<RegistryRequest>>,
    /// Whether bodies do not end.
    stalls: bool,
}

impl RegistryTransport for FakeRegistry {
    fn send(&self, request: RegistryRequest) -> BoxFuture<'_, Result<ConnectorResponse, ConnectorError>> {
        let mut url = request.url.clone();
        url.set_query(None);
        let is_known = request.headers.iter().any(|(name, _)| name == "authorization");
        let challenge = self
            .challenge
            .clone()
            .filter(|_| !is_known && url.as_str().starts_with(HOST) && url.path() != "/token");
        let known = || self.responses.get(request.url.as_str()).or_else(|| self.responses.get(url.as_str()));
        let response = challenge.or_else(|| known().cloned());
        self.requests.lock().push(request);
        let (status, headers, body) = response.unwrap_or((404, Vec::new(), Vec::new()));
        let parts: Vec<_> = body.chunks(4096).map(|part| Ok(part.to_vec())).collect();
        let parts = stream::iter(parts);
        let body: BodyStream = match self.stalls {
            true => Box::pin(parts.chain(stream::pending())),
            false => Box::pin(parts),
        };
        Box::pin(async move { Ok(ConnectorResponse { status, headers, body }) })
    }
}

#[derive(Debug)]
struct FakeCredentials(Option<RegistryCredentials>);

impl CredentialSource for FakeCredentials {
    fn find<'a>(&'a self, _: &'a Reference) -> BoxFuture<'a, CredentialResult> {
        Box::pin(async move { Ok(self.0.clone()) })
    }
}

fn headers(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn descriptor(bytes: &[u8]) -> Value {
    json!({"mediaType": "application/wasm", "digest": BlobDigest::of(bytes), "size": bytes.len()})
}

fn manifest(layers: &Value) -> Value {
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": {"mediaType": "x/y", "digest": "", "size": 0},
        "layers": layers})
}

impl FakeRegistry {
    fn new() -> Self {
        let mut registry = Self::default();
        registry.put_manifest("1.0", &manifest(&json!([descriptor(LAYER)])).to_string(), MANIFEST);
        registry.put(
            &format!("{HOST}/v2/acme/hash/blobs/{}", BlobDigest::of(LAYER)),
            (200, Vec::new(), LAYER.to_vec()),
        );
        registry
    }

    fn put(&mut self, url: &str, response: CannedResponse) {
        self.responses.insert(url.to_owned(), response);
    }

    /// Puts a manifest under a name and its digest.
    fn put_manifest(&mut self, name: &str, text: &str, media_type: &str) {
        for name in [name.to_owned(), BlobDigest::of(text.as_bytes()).to_string()] {
            let response = (200, headers(&[("content-type", media_type)]), text.as_bytes().to_vec());
            self.put(&format!("{HOST}/v2/acme/hash/manifests/{name}"), response);
        }
    }

    fn put_layer(&mut self, response: CannedResponse) {
        self.put(&format!("{HOST}/v2/acme/hash/blobs/{}", BlobDigest::of(LAYER)), response);
    }

    fn authorizations(&self) -> Vec<(String, String)> {
        let of = |request: &RegistryRequest| {
            let value = request.headers.iter().find(|(name, _)| name == "authorization");
            Some((request.url.host_str()?.to_owned(), value?.1.clone()))
        };
        self.requests.lock().iter().filter_map(of).collect()
    }
}

fn password() -> RegistryCredentials {
    RegistryCredentials::Password(UserPassword { user: "u".to_owned(), password: "p".to_owned().into() })
}

fn client(
    registry: &Arc<FakeRegistry>,
    reference: &str,
    settings: RegistryPolicy,
    credentials: Option<RegistryCredentials>,
) -> RegistryClient {
    let transport = Arc::clone(registry) as Arc<dyn RegistryTransport>;
    let credentials = Arc::new(FakeCredentials(credentials));
    let access = RegistryAccess::Pull;
    RegistryClient::new(&reference.parse().unwrap(), access, settings, transport, credentials).unwrap()
}

/// Pulls `acme/hash:1.0`. Returns the error, after checking that nothing was stored.
async fn pull_as(
    registry: FakeRegistry,
    credentials: Option<RegistryCredentials>,
    settings: RegistryPolicy,
) -> (Arc<FakeRegistry>, Result<(), String>) {
    let registry = Arc::new(registry);
    let client = client(&registry, "registry.example/acme/hash:1.0", settings, credentials);
    let dir = tempfile::tempdir().unwrap();
    let store = BlobStore::new(dir.path());
    let pulled = async {
        let found = client.resolve().await?;
        client.fetch_layer(&found.manifest.layer, found.manifest.size, &store, &|_| {}).await
    };
    let pulled = pulled.await.map_err(|error| error.to_string());
    assert_eq!(store.verify(&BlobDigest::of(LAYER), LAYER.len() as u64), pulled.is_ok());
    for folder in ["blobs/sha256", "incoming"] {
        let entries = std::fs::read_dir(dir.path().join(folder)).map_or(0, Iterator::count);
        let expected = usize::from(pulled.is_ok() && folder != "incoming");
        assert_eq!(entries, expected, "{folder}: {pulled:?}");
    }
    (registry, pulled)
}

async fn pull(registry: FakeRegistry) -> Result<(), String> {
    pull_as(registry, None, RegistryPolicy::default()).await.1
}

#[tokio::test]
async fn a_component_is_pulled_by_a_tag_and_by_its_digest() {
    assert_eq!(pull(FakeRegistry::new()).await, Ok(()));
    let registry = Arc::new(FakeRegistry::new());
    let settings = RegistryPolicy::default;
    let by_tag =
        client(&registry, "registry.example/acme/hash:1.0", settings(), None).resolve().await.unwrap();
    let pinned = format!("registry.example/acme/hash:gone@{}", by_tag.digest);
    assert_eq!(client(&registry, &pinned, settings(), None).resolve().await.unwrap(), by_tag);
    let absent = client(&registry, "registry.example/acme/hash:2", settings(), None).resolve().await;
    assert!(matches!(absent, Err(RegistryError::NotFound(_))), "{absent:?}");
    let open = client(&registry, "registry.example/acme/hash", settings(), None).resolve().await;
    assert!(open.unwrap_err().to_string().contains("names no version"));
}

#[tokio::test]
async fn content_that_differs_from_its_digest_or_header_is_refused() {
    let other = manifest(&json!([descriptor(b"other")])).to_string();
    let registry = FakeRegistry::new();
    let good = manifest(&json!([descriptor(LAYER)])).to_string();
    let digest = BlobDigest::of(good.as_bytes());
    // A tag that moved leads elsewhere; the digest that the lock has does not.
    let mut moved = FakeRegistry::new();
    moved.put_manifest("1.0", &other, MANIFEST);
    let moved = Arc::new(moved);
    let pinned = format!("registry.example/acme/hash@{digest}");
    let found = client(&moved, &pinned, RegistryPolicy::default(), None).resolve().await.unwrap();
    assert_eq!(found.bytes, good.as_bytes());
    // A registry that sends another document for a digest.
    let mut lying = registry;
    lying.put(&format!("{HOST}/v2/acme/hash/manifests/{digest}"), (200, Vec::new(), other.into_bytes()));
    let error =
        client(&Arc::new(lying), &pinned, RegistryPolicy::default(), None).resolve().await.unwrap_err();
    assert!(error.to_string().contains("its content has the digest"), "{error}");
    let mut header = FakeRegistry::new();
    let said = headers(&[("content-type", MANIFEST), ("docker-content-digest", "sha256:0")]);
    header.put(&format!("{HOST}/v2/acme/hash/manifests/1.0"), (200, said, good.into_bytes()));
    let error = pull(header).await.unwrap_err();
    assert!(error.contains("the registry says `sha256:0`"), "{error}");
}

#[tokio::test]
async fn a_layer_with_another_content_or_size_is_refused_and_not_stored() {
    let longer = [LAYER, b"x"].concat();
    let short = LAYER[..5].to_vec();
    for (header, body, part) in [
        (vec![], b"\0asm Component".to_vec(), "its digest is"),
        (vec![], short.clone(), "it ended after 5 of"),
        (vec![], longer.clone(), "more than the"),
        (vec![("content-length", "1000000")], longer, "the registry sends 1000000 bytes"),
        (vec![("content-length", "5")], short, "the registry sends 5 bytes"),
    ] {
        let mut registry = FakeRegistry::new();
        registry.put_layer((200, headers(&header), body));
        let error = pull(registry).await.unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_stalls_ends_and_leaves_nothing() {
    let registry = Arc::new(FakeRegistry { stalls: true, ..FakeRegistry::new() });
    let client = client(&registry, "registry.example/acme/hash:1.0", RegistryPolicy::default(), None);
    let error = client.resolve().await.unwrap_err().to_string();
    assert!(error.contains("the response took longer than 30s"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let (store, layer, size) = (BlobStore::new(dir.path()), BlobDigest::of(LAYER), LAYER.len() as u64);
    let error = client.fetch_layer(&layer, size, &store, &|_| {}).await.unwrap_err().to_string();
    assert!(error.contains("nothing came for 30s"), "{error}");
    assert!(!store.verify(&layer, size));
    assert_eq!(std::fs::read_dir(dir.path().join("incoming")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_manifest_that_is_no_component_is_refused() {
    let wasm = descriptor(LAYER);
    let with = |key: &str, value: Value| {
        let mut layer = wasm.clone();
        layer[key] = value;
        manifest(&json!([layer]))
    };
    let mut both = manifest(&json!([wasm]));
    both["manifests"] = json!([]);
    let mut old = manifest(&json!([wasm]));
    old["schemaVersion"] = json!(1);
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": []});
    let many = Value::Array(vec![with("mediaType", json!("text/plain"))["layers"][0].clone(); 65]);
    for (document, part) in [
        (manifest(&json!([])), "exactly one"),
        (manifest(&json!([wasm, wasm])), "exactly one"),
        (with("mediaType", json!("application/x-tar")), "exactly one"),
        (with("size", json!((64 << 20) + 1)), "the limit is 67108864"),
        (with("size", json!(-1)), "not an OCI manifest"),
        (with("urls", json!(["https://evil.example/"])), "`urls`"),
        (with("digest", json!("sha256:../x")), "not a digest"),
        (with("digest", json!(format!("sha512:{}", "0".repeat(128)))), "not a digest"),
        (manifest(&many), "the limit is 64"),
        (both, "both"),
        (old, "schemaVersion"),
        (index, "the registry says"),
        (json!([]), "not an OCI manifest"),
    ] {
        let mut registry = FakeRegistry::new();
        registry.put_manifest("1.0", &document.to_string(), MANIFEST);
        let error = pull(registry).await.unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    let mut bomb = FakeRegistry::new();
    bomb.put_manifest("1.0", &" ".repeat(MAX_MANIFEST + 1), MANIFEST);
    assert!(pull(bomb).await.unwrap_err().contains("more than 4194304 bytes"));
    let mut twice = FakeRegistry::new();
    let text = manifest(&json!([wasm])).to_string().replace("\"layers\"", "\"layers\":[],\"layers\"");
    twice.put_manifest("1.0", &text, MANIFEST);
    assert!(pull(twice).await.unwrap_err().contains("not an OCI manifest"));
}

#[tokio::test]
async fn an_index_is_followed_once_to_the_manifest_for_webassembly() {
    let inner = manifest(&json!([descriptor(LAYER)])).to_string();
    let entry = |architecture: &str, media_type: &str, text: &str| {
        json!({"mediaType": media_type, "digest": BlobDigest::of(text.as_bytes()), "size": text.len(),
            "platform": {"architecture": architecture, "os": "wasip2"}})
    };
    let index =
        |entries: Value| json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    let nested = index(json!([entry("wasm", MANIFEST, &inner)]));
    let mut longer = entry("wasm", MANIFEST, &inner);
    longer["size"] = json!(inner.len() + 1);
    let other = manifest(&json!([])).to_string();
    for (entries, expected) in [
        (json!([entry("amd64", MANIFEST, &other), entry("wasm", MANIFEST, &inner)]), Ok(())),
        (json!([entry("amd64", MANIFEST, &inner)]), Ok(())),
        (json!([]), Err("0 manifests")),
        (json!([entry("wasm", MANIFEST, &inner), entry("wasm", MANIFEST, &other)]), Err("2 of them")),
        (json!([entry("wasm", INDEX, &nested)]), Err("not a manifest")),
        (json!([longer]), Err("its index says")),
        // An index that is declared as a manifest.
        (json!([entry("wasm", MANIFEST, &nested)]), Err("another index")),
    ] {
        let mut registry = FakeRegistry::new();
        registry.put_manifest("inner", &inner, MANIFEST);
        registry.put_manifest("other", &other, MANIFEST);
        registry.put_manifest("nested", &nested, INDEX);
        registry.put_manifest("1.0", &index(entries), INDEX);
        match (pull(registry).await, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{part}: {error}"),
            (found, expected) => panic!("{found:?}, and not {expected:?}"),
        }
    }
}

#[tokio::test]
async fn a_blob_redirect_is_followed_without_credentials_and_only_over_https() {
    let blob = format!("{HOST}/v2/acme/hash/blobs/{}", BlobDigest::of(LAYER));
    let challenge = (401, headers(&[("www-authenticate", "Basic realm=x")]), Vec::new());
    let to = |location: &str| (307, headers(&[("location", location)]), Vec::new());
    let mut registry = FakeRegistry::new();
    registry.challenge = Some(challenge.clone());
    registry.put(&blob, to("https://storage.example/x"));
    registry.put("https://storage.example/x", (200, Vec::new(), LAYER.to_vec()));
    // A realm is listed for tokens: the registry, not the operator, wrote a redirect to it.
    let realm = vec!["https://storage.example".to_owned()];
    let settings = RegistryPolicy { realm, ..RegistryPolicy::default() };
    let (registry, pulled) = pull_as(registry, Some(password()), settings).await;
    assert_eq!(pulled, Ok(()));
    let basic = "Basic dTpw".to_owned();
    assert!(
        registry.authorizations().iter().all(|sent| *sent == ("registry.example".to_owned(), basic.clone()))
    );
    let last = registry.requests.lock().last().unwrap().clone();
    assert_eq!((last.author, last.headers), (UrlAuthor::Registry, Vec::new()));
    for (location, part) in [
        ("http://storage.example/x", "does not use https"),
        ("http://127.0.0.1/x", "does not use https"),
        ("file:///etc/passwd", "does not use https"),
        ("https://u:p@storage.example/x", "does not use https"),
        ("https://", "invalid location"),
        (&*blob, "more than 3 times"),
    ] {
        let mut registry = FakeRegistry::new();
        registry.put(&blob, to(location));
        let error = pull(registry).await.unwrap_err();
        assert!(error.contains(part), "{location}: {error}");
    }
    // A manifest is not looked for elsewhere.
    let mut registry = FakeRegistry::new();
    registry.put(&format!("{HOST}/v2/acme/hash/manifests/1.0"), to("https://storage.example/x"));
    let (registry, pulled) = pull_as(registry, None, RegistryPolicy::default()).await;
    assert!(pulled.unwrap_err().contains("redirects `1.0`"));
    assert_eq!(registry.requests.lock().len(), 1);
    // A challenge of another host is not answered.
    let mut registry = FakeRegistry::new();
    registry.put(&blob, to("https://storage.example/x"));
    registry.put("https://storage.example/x", challenge);
    let (registry, pulled) = pull_as(registry, Some(password()), RegistryPolicy::default()).await;
    assert!(pulled.unwrap_err().contains("login") && registry.authorizations().is_empty());
}

#[tokio::test]
async fn credentials_go_to_the_own_host_or_to_a_listed_realm_only() {
    let challenged = |realm: &str| {
        let mut registry = FakeRegistry::new();
        let value = format!("Bearer realm=\"{realm}\",service=\"s\",scope=\"repository:other:delete\"");
        registry.challenge = Some((401, headers(&[("www-authenticate", &value)]), Vec::new()));
        if let Ok(mut url) = Url::parse(realm) {
            url.set_query(None);
            registry.put(url.as_str(), (200, Vec::new(), br#"{"token": "t"}"#.to_vec()));
        }
        registry
    };
    let listed =
        || RegistryPolicy { realm: vec!["https://auth.example".to_owned()], ..RegistryPolicy::default() };
    let sent = |host: &str, value: &str| (host.to_owned(), value.to_owned());
    for (realm, settings) in [
        ("https://registry.example/token", RegistryPolicy::default()),
        ("https://registry.example:443/token?account=u", RegistryPolicy::default()),
        ("https://auth.example/token", listed()),
    ] {
        let (registry, pulled) = pull_as(challenged(realm), Some(password()), settings).await;
        assert_eq!(pulled, Ok(()), "{realm}");
        let host = Url::parse(realm).unwrap().host_str().unwrap().to_owned();
        let authorizations = registry.authorizations();
        assert_eq!(authorizations[0], sent(&host, "Basic dTpw"));
        assert!(authorizations[1..].iter().all(|one| *one == sent("registry.example", "Bearer t")));
        // The client asks for what it needs, and not for what the challenge says.
        let request = registry.requests.lock()[1].clone();
        assert_eq!(request.author, UrlAuthor::Operator, "{realm}");
        let query = request.url.query().unwrap().trim_start_matches("account=u&");
        assert_eq!(query, "service=s&scope=repository%3Aacme%2Fhash%3Apull");
    }
    for (realm, part) in [
        ("https://evil.example/token", "realm = [\"https://evil.example\"]"),
        ("https://registry.example.evil.example/token", "on another host"),
        ("https://registry.example:444/token", "on another host"),
        ("https://registry.example./token", "on another host"),
        ("https://[::1]/token", "on another host"),
        ("http://registry.example/token", "https"),
        ("http://169.254.169.254/token", "https"),
        ("https://u@registry.example/token", "user name"),
        ("nonsense", "not a URL"),
    ] {
        let (registry, pulled) =
            pull_as(challenged(realm), Some(password()), RegistryPolicy::default()).await;
        let error = pulled.unwrap_err();
        assert!(error.contains(part), "{realm}: {error}");
        assert!(registry.authorizations().is_empty(), "{realm}");
    }
    // Without credentials, a token of another host is anonymous.
    let (registry, pulled) =
        pull_as(challenged("https://auth.example/token"), None, RegistryPolicy::default()).await;
    assert_eq!(pulled, Ok(()));
    assert!(registry.authorizations().iter().all(|one| *one == sent("registry.example", "Bearer t")));
    assert_eq!(registry.requests.lock()[1].author, UrlAuthor::Registry);
}

#[tokio::test]
async fn a_token_server_is_bounded_and_its_redirects_are_not_followed() {
    for (response, part) in [
        ((302, headers(&[("location", "https://registry.example/other")]), Vec::new()), "status 302"),
        ((200, Vec::new(), vec![b' '; (64 << 10) + 1]), "more than 65536 bytes"),
        ((200, Vec::new(), b"{}".to_vec()), "no token"),
        ((200, Vec::new(), br#"{"token": "a\r\nhost: b"}"#.to_vec()), "no token"),
        ((500, Vec::new(), Vec::new()), "status 500"),
        ((401, Vec::new(), Vec::new()), "docker login"),
    ] {
        let mut registry = FakeRegistry::new();
        let value = format!("Bearer realm=\"{HOST}/token\"");
        registry.challenge = Some((401, headers(&[("www-authenticate", &value)]), Vec::new()));
        registry.put(&format!("{HOST}/token"), response);
        let error = pull(registry).await.unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    // An identity token is exchanged in a form, and not in the URL.
    let mut registry = FakeRegistry::new();
    let value = format!("Bearer realm=\"{HOST}/token\",service=\"s\"");
    registry.challenge = Some((401, headers(&[("www-authenticate", &value)]), Vec::new()));
    registry.put(&format!("{HOST}/token"), (200, Vec::new(), br#"{"access_token": "t"}"#.to_vec()));
    let identity = RegistryCredentials::IdentityToken("secret".to_owned().into());
    let (registry, pulled) = pull_as(registry, Some(identity), RegistryPolicy::default()).await;
    assert_eq!(pulled, Ok(()));
    let exchange = registry.requests.lock()[1].clone();
    assert!(exchange.method == "POST" && exchange.url.query().is_none());
    assert!(std::str::from_utf8(&exchange.body).unwrap().contains("refresh_token=secret"));
    assert!(!format!("{exchange:?}").contains("secret"));
}

/// Pushes a small component as `acme/hash:2.0`.
async fn push(registry: FakeRegistry, tag: &str) -> (Arc<FakeRegistry>, Result<PushOutcome, String>) {
    let registry = Arc::new(registry);
    let transport = Arc::clone(&registry) as Arc<dyn RegistryTransport>;
    let reference = format!("registry.example/acme/hash{tag}").parse().unwrap();
    let credentials = Arc::new(FakeCredentials(Some(password())));
    let client = RegistryClient::new(
        &reference,
        RegistryAccess::Push,
        RegistryPolicy::default(),
        transport,
        credentials,
    );
    let pushed = client.unwrap().push(&artifact()).await.map_err(|error| error.to_string());
    (registry, pushed)
}

fn artifact() -> ComponentArtifact {
    ComponentArtifact::new(Bytes::from_static(LAYER), &ComponentFacts::default())
}

#[tokio::test]
async fn a_tag_is_never_moved_and_an_equal_one_is_left() {
    let (registry, pushed) = push(FakeRegistry::new(), ":1.0").await;
    assert!(pushed.unwrap_err().contains("already"));
    assert!(registry.requests.lock().iter().all(|request| request.method == "GET"));
    let mut same = FakeRegistry::new();
    same.put_manifest("2.0", std::str::from_utf8(&artifact().manifest).unwrap(), MANIFEST);
    let (registry, pushed) = push(same, ":2.0").await;
    assert_eq!(pushed, Ok(PushOutcome::Unchanged));
    assert_eq!(registry.requests.lock().len(), 1);
    assert!(push(FakeRegistry::new(), "").await.1.unwrap_err().contains("does not name an upload"));
}

#[tokio::test]
async fn an_upload_goes_to_the_registry_only() {
    for (location, part) in [
        (Some("https://evil.example/upload"), "wants the upload at `https://evil.example`"),
        (Some("http://registry.example/upload"), "wants the upload at"),
        (None, "names no place"),
    ] {
        let mut registry = FakeRegistry::new();
        let location = location.map(|location| headers(&[("location", location)])).unwrap_or_default();
        registry.put(&format!("{HOST}/v2/acme/hash/blobs/uploads/"), (202, location, Vec::new()));
        let (registry, pushed) = push(registry, ":2.0").await;
        let error = pushed.unwrap_err();
        assert!(error.contains(part), "{error}");
        assert!(registry.requests.lock().iter().all(|request| request.body.is_empty()), "{part}");
    }
}

#[tokio::test]
async fn tags_are_listed_by_pages_of_the_registry_itself() {
    let list = format!("{HOST}/v2/acme/hash/tags/list");
    let tags = async |registry: FakeRegistry| {
        let registry = Arc::new(registry);
        let client = client(&registry, "registry.example/acme/hash:1.0", RegistryPolicy::default(), None);
        client.tags().await.map_err(|error| error.to_string())
    };
    let page = |tags: &Value| json!({"name": "acme/hash", "tags": tags}).to_string().into_bytes();
    for (body, expected) in [
        (page(&json!(["1.0", "latest"])), Ok(vec!["1.0".to_owned(), "latest".to_owned()])),
        (page(&json!(null)), Ok(Vec::new())),
        (page(&json!(["../x"])), Err("`../x` is not a tag")),
        (page(&json!([1])), Err("not a document")),
        (b"<html>".to_vec(), Err("not a document")),
        (vec![b' '; 300 << 10], Err("more than")),
        (page(&json!(vec!["a"; 10_001])), Err("more than 10000 tags")),
    ] {
        let mut registry = FakeRegistry::new();
        registry.put(&list, (200, Vec::new(), body));
        match (tags(registry).await, expected) {
            (found @ Ok(_), Ok(expected)) => assert_eq!(found, Ok(expected)),
            (Err(error), Err(part)) => assert!(error.contains(part), "{part}: {error}"),
            (found, expected) => panic!("{found:?}, and not {expected:?}"),
        }
    }
    // A page that leads to itself ends at the limit; one elsewhere is not read.
    for (link, part) in [
        ("</v2/acme/hash/tags/list?last=a>; rel=\"next\"", "more than 10000 tags"),
        ("<https://evil.example/v2/acme/hash/tags/list>; rel=\"next\"", "not its own"),
        ("nonsense", "not its own"),
    ] {
        let mut registry = FakeRegistry::new();
        registry.put(&list, (200, headers(&[("link", link)]), page(&json!(vec!["a"; 999]))));
        assert!(tags(registry).await.unwrap_err().contains(part), "{part}");
    }
}
