//! The plugin `web` with a test server on the loopback interface.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use integration_tests::{outcome, policy, refusal, structured, words as value};
use serde_json::{Value, json};
use toolbay::core::tool::content::ErrorCode;
use toolbay::{CallResult, Filter, Host, PluginId, ToolCall, TurnContext};

const VALUE: &str = "canary-of-the-web-0123456789";

/// Answers each connection with the result of `answer`, and keeps the requests.
struct RecordingServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl RecordingServer {
    fn start(answer: fn(&str) -> Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&requests);
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                serve(stream, answer, &kept);
            }
        });
        Self { address, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn last(&self) -> String {
        self.requests.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

fn serve(mut stream: TcpStream, answer: fn(&str) -> Vec<u8>, kept: &Mutex<Vec<String>>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    let head = loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&buffer[..count]),
        }
        if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = text
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next()?.parse().ok())
        .unwrap_or(0);
    while request.len() < head + length {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => request.extend_from_slice(&buffer[..count]),
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    kept.lock().unwrap().push(request.clone());
    // A disconnected client is ignored.
    stream.write_all(&answer(&request)).ok();
}

fn page(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn answer(request: &str) -> Vec<u8> {
    let path = request.split(' ').nth(1).unwrap_or_default();
    match path {
        "/page" => page(
            "200 OK",
            "content-type: text/html; charset=iso-8859-1\r\n",
            b"<title>A p\xe4ge</title><script>evil()</script><h1>Head</h1><p>see <a href='other'>this</a>",
        ),
        "/search?q=small%20%26%20dogs" => page(
            "200 OK",
            "content-type: application/json\r\n",
            br#"{"results":[{"title":"Dogs","url":"https://dogs.example/","snippet":"Small ones."}]}"#,
        ),
        "/json" => page("200 OK", "content-type: application/json\r\n", b"{\"a\":1}"),
        "/moved" => page("302 Found", "location: /page\r\n", b""),
        "/png" => page("200 OK", "content-type: image/png\r\n", b"\x89PNG\0"),
        "/large" => page("200 OK", "content-type: text/plain\r\n", &vec![b'x'; 5 << 20]),
        // Echoes head, values and body.
        "/echo" => page("201 Created", "content-type: text/plain\r\nx-echo: 1\r\n", request.as_bytes()),
        _ => page("404 Not Found", "content-type: text/html\r\n", b"<h1>nothing here</h1>"),
    }
}

struct WebFixture {
    host: Host,
    server: RecordingServer,
    _dir: tempfile::TempDir,
}

impl WebFixture {
    async fn new() -> Self {
        let server = RecordingServer::start(answer);
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("key"), VALUE).unwrap();
        std::fs::set_permissions(root.join("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let work = root.join("work");
        std::fs::create_dir(&work).unwrap();
        let origin = server.url("");
        let text = format!(
            "[secrets.\"web/api\"]\nfrom = \"file:{}\"\norigins = [\"{origin}\"]\nheaders = [\"authorization\", \"x-api-key\"]\n\
             [plugins.web.grant]\nnet = [\"{origin}\", \"https://example.invalid\"]\nnet_private = [\"127.0.0.1\"]\n\
             secrets = [\"web/*\"]\n\
             [plugins.web.config.search]\nurl = \"{origin}/search?q={{query}}\"\nsecret = \"api\"\nheader = \"x-api-key\"\n",
            root.join("key").display()
        );
        let host =
            Host::builder(policy(&text, &work)).cache_dir(integration_tests::cache_dir()).build().unwrap();
        host.load_file(PluginId::new("web").unwrap(), Path::new(guest_artifacts::PLUGIN_WEB)).await.unwrap();
        Self { host, server, _dir: dir }
    }

    async fn call(&self, tool: &str, args: Value) -> CallResult {
        let view = self.host.view(Filter::default());
        let call = ToolCall::new("1", format!("web__{tool}"), args.to_string());
        self.host.call_all(&view, vec![call], TurnContext::default()).await.pop().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_fetched_as_markdown() {
    let web = WebFixture::new().await;
    let other = web.server.url("/other");
    for path in ["/page", "/moved"] {
        let delivered = web.call("fetch_url", json!({"url": web.server.url(path)})).await;
        assert_eq!(value(&delivered), format!("# A päge\n\n# Head\n\nsee [this]({other})"));
        let data = structured(&delivered);
        assert_eq!((&data["url"], &data["title"]), (&json!(web.server.url("/page")), &json!("A päge")));
    }
    assert_eq!(value(&web.call("fetch_url", json!({"url": web.server.url("/json")})).await), "{\"a\":1}");
    let large = web.call("fetch_url", json!({"url": web.server.url("/large")})).await;
    assert_eq!(structured(&large)["truncated"], true);
    for (path, subject) in [("/none", "404"), ("/png", "not-text")] {
        let delivered = web.call("fetch_url", json!({"url": web.server.url(path)})).await;
        assert_eq!(refusal(&delivered).subject.as_deref(), Some(subject));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_addresses_are_not_fetched() {
    let web = WebFixture::new().await;
    let other = RecordingServer::start(answer);
    for url in [
        other.url("/page"),
        "http://127.0.0.1:1/".to_owned(),
        "https://example.com/".to_owned(),
        "http://169.254.169.254/latest".to_owned(),
    ] {
        let delivered = web.call("fetch_url", json!({"url": url})).await;
        assert_eq!(refusal(&delivered).subject.as_deref(), Some("denied"), "{url}: {delivered:?}");
    }
    assert_eq!(other.last(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_reaches_the_server_and_neither_the_plugin_nor_the_model() {
    let web = WebFixture::new().await;
    for (args, sent) in [
        (json!({"url": web.server.url("/echo"), "secret": "api"}), format!("authorization: bearer {VALUE}")),
        (
            json!({"url": web.server.url("/echo"), "secret": "api", "secret_header": "X-Api-Key", "method": "POST", "body": "hello"}),
            format!("x-api-key: {VALUE}"),
        ),
    ] {
        let delivered = web.call("http_request", args).await;
        assert!(web.server.last().to_ascii_lowercase().contains(&sent), "{}", web.server.last());
        let said = format!("{:?}", delivered.result);
        assert!(said.contains("[secret web/api]") && !said.contains(VALUE), "the echo is clean: {said}");
        assert_eq!(structured(&delivered)["status"], 201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_only_into_its_header() {
    let web = WebFixture::new().await;
    let before = web.server.requests.lock().unwrap().len();
    let echo = web.server.url("/echo");
    for args in [
        json!({"url": echo, "secret": "api", "secret_header": "x-other"}),
        json!({"url": echo, "secret": "api", "secret_header": "host"}),
        json!({"url": "https://example.invalid/", "secret": "api"}),
        json!({"url": echo, "secret": "unknown"}),
    ] {
        let delivered = web.call("http_request", args.clone()).await;
        assert_ne!(outcome(&delivered), "ok", "{args}");
        assert!(!format!("{delivered:?}").contains(VALUE), "{args}");
    }
    assert_eq!(web.server.requests.lock().unwrap().len(), before, "nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configured_provider_is_queried_with_its_key() {
    let web = WebFixture::new().await;
    let delivered = web.call("web_search", json!({"query": "small & dogs"})).await;
    assert_eq!(value(&delivered), "1. Dogs\n   https://dogs.example/\n   Small ones.\n");
    let sent = web.server.last().to_ascii_lowercase();
    assert!(sent.contains(&format!("x-api-key: {VALUE}")), "{sent}");
    assert_eq!(
        refusal(&web.call("web_search", json!({"query": "x"})).await).code,
        ErrorCode::ExecutionFailed
    );
    let without = integration_tests::TestHost::new(&[("web", guest_artifacts::PLUGIN_WEB)], "").await;
    let refused = without.call("web__web_search", json!({"query": "x"})).await;
    assert_eq!(refusal(&refused).code, ErrorCode::NotAvailable);
}
