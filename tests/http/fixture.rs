//! A server over HTTP with real guests, and a client that sends exact bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use integration_tests::TestHost;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolbay::core::audit::AuditRecord;
use toolbay::core::tool::content::ToolOutput;
use toolbay::policy::serve::ServePolicy;
use toolbay::{Filter, native_tool};
use toolbay_mcp::http::{McpHttpServer, ShutdownSignals};
use toolbay_mcp::{KeyFetcher, Options, Server};

/// An operation that takes this long hangs.
pub(crate) const HANGS: Duration = Duration::from_secs(60);
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const MODERN: &str = "2026-07-28";

/// A listening server with the plugins `e` (every kind of result) and `s` (waits).
pub(crate) struct HttpFixture {
    pub(crate) host: TestHost,
    pub(crate) http: McpHttpServer,
    pub(crate) server: Server,
    pub(crate) ends: ShutdownSignals,
    pub(crate) address: SocketAddr,
    pub(crate) task: tokio::task::JoinHandle<()>,
}

impl Drop for HttpFixture {
    fn drop(&mut self) {
        self.ends.stop.cancel();
    }
}

impl HttpFixture {
    /// A server with this policy, whose `[serve]` section applies.
    pub(crate) async fn new(policy: &str) -> Self {
        Self::fetching(policy, KeyFetcher::disabled()).await
    }

    pub(crate) async fn fetching(policy: &str, fetch: KeyFetcher) -> Self {
        let host = TestHost::empty(policy);
        host.load("e", guest_artifacts::API_ECHO).await;
        host.load("s", guest_artifacts::HOSTILE_SLEEP).await;
        Self::of(host, fetch, None).await
    }

    pub(crate) async fn of(host: TestHost, fetch: KeyFetcher, loaded: Option<CancellationToken>) -> Self {
        // The wait ends when everything is loaded.
        let options = Options { list_wait: HANGS, ..Options::default() };
        Self::with(host, fetch, options, |server| match loaded {
            Some(loaded) => server.with_loaded_signal(loaded),
            None => server,
        })
        .await
    }

    pub(crate) async fn with(
        host: TestHost,
        fetch: KeyFetcher,
        options: Options,
        serving: impl FnOnce(Server) -> Server,
    ) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").await.unwrap(), host, fetch, options, serving).await
    }

    /// A server whose connections have a send buffer of this size, in bytes. Without it, the kernel takes an unread
    /// response of megabytes at once, and the server sees no blocked write.
    pub(crate) async fn with_send_buffer(policy: &str, bytes: u32) -> Self {
        let host = TestHost::empty(policy);
        host.load("e", guest_artifacts::API_ECHO).await;
        let socket = TcpSocket::new_v4().unwrap();
        // Accepted connections inherit it.
        socket.set_send_buffer_size(bytes).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1024).unwrap();
        Self::listening(listener, host, KeyFetcher::disabled(), Options::default(), |server| server).await
    }

    async fn listening(
        listener: TcpListener,
        host: TestHost,
        fetch: KeyFetcher,
        options: Options,
        serving: impl FnOnce(Server) -> Server,
    ) -> Self {
        let (registry, pipeline) = (host.host.registry().clone(), host.host.pipeline().clone());
        let server = serving(Server::new(registry, pipeline, Filter::default(), options));
        let address = listener.local_addr().unwrap();
        let serve: ServePolicy = host.host.policy().serve().clone();
        let ends = ShutdownSignals::default();
        let http = McpHttpServer::new(server.clone(), serve, vec![address], fetch, ends.clone()).unwrap();
        let running = http.clone();
        let task = tokio::spawn(async move { running.run(vec![listener]).await });
        Self { host, http, server, ends, address, task }
    }

    /// A request to `/mcp` with the usual headers.
    pub(crate) fn post(&self, body: &Value) -> RequestBuilder {
        RequestBuilder::new(self.address, "POST", "/mcp").json(body)
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        RequestBuilder::new(self.address, "GET", path)
    }

    /// A 2026-07-28 request.
    pub(crate) fn modern(&self, method: &str, params: Value) -> RequestBuilder {
        let ask = self.post(&Value::Null).modern_headers(method, &params);
        ask.json(&modern(method, params))
    }

    /// The result of a 2026-07-28 call.
    pub(crate) async fn call(&self, tool: &str, args: Value) -> Value {
        let answer = self.modern("tools/call", json!({"name": tool, "arguments": args})).send().await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["result"].clone()
    }

    /// Opens a 2025-11-25 session and returns its id.
    pub(crate) async fn begin(&self) -> String {
        self.begin_with(|ask| ask).await
    }

    pub(crate) async fn begin_with(&self, more: impl Fn(RequestBuilder) -> RequestBuilder) -> String {
        let answer = more(self.post(&initialize(LEGACY))).send().await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let id = answer.header("mcp-session-id").unwrap().to_owned();
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let answer = more(self.post(&told).session(&id)).send().await;
        assert_eq!(answer.status, 202);
        id
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let mut tries = 0;
        while !holds(self) {
            tries += 1;
            assert!(tries < 3000, "never: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The records of this many calls, in order. A cancelled call frees its permit before it is recorded.
    pub(crate) async fn records(&self, calls: usize) -> Vec<AuditRecord> {
        let mut records = Vec::new();
        let recorded = |desk: &Self| {
            records.extend(desk.host.audit.take());
            records.len() >= calls
        };
        self.until("calls that are recorded", recorded).await;
        records
    }

    /// Adds a tool `held`, whose calls end when the test says so.
    pub(crate) fn held_tool(&self) -> HeldTool {
        let held = HeldTool { began: Arc::default(), ends: Arc::new(Semaphore::new(0)) };
        let tool = native_tool("held").description("Ends when the test says so.").run({
            let held = held.clone();
            move |_, _| {
                held.began.fetch_add(1, Ordering::SeqCst);
                let ends = Arc::clone(&held.ends);
                async move {
                    ends.acquire_owned().await.unwrap().forget();
                    Ok(ToolOutput::text("held"))
                }
            }
        });
        self.host.host.register(vec![tool.unwrap()]).unwrap();
        held
    }

    /// Waits until this many guests run.
    pub(crate) async fn until_running(&self, calls: usize, places: usize) {
        self.until("calls that run", |desk| places - desk.host.host.available_call_permits() == calls).await;
    }
}

/// The calls of the tool `held`.
#[derive(Clone)]
pub(crate) struct HeldTool {
    began: Arc<AtomicUsize>,
    ends: Arc<Semaphore>,
}

impl HeldTool {
    /// Waits until this many calls have begun since the start.
    pub(crate) async fn until_begun(&self, desk: &HttpFixture, calls: usize) {
        desk.until("calls that run", |_| self.began.load(Ordering::SeqCst) == calls).await;
    }

    /// Lets this many calls end.
    pub(crate) fn end(&self, calls: usize) {
        self.ends.add_permits(calls);
    }
}

pub(crate) fn initialize(version: &str) -> Value {
    let client = json!({"name": "t", "version": "1"});
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

pub(crate) fn modern(method: &str, mut params: Value) -> Value {
    let meta = params.as_object_mut().unwrap().entry("_meta").or_insert_with(|| json!({}));
    meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "t", "version": "1"});
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// A request before it is sent.
#[derive(Clone)]
pub(crate) struct RequestBuilder {
    address: SocketAddr,
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl RequestBuilder {
    pub(crate) fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let headers = vec![("host".to_owned(), address.to_string())];
        Self { address, line: format!("{method} {path} HTTP/1.1"), headers, body: Vec::new() }
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        let method = self.line.split(' ').next().unwrap().to_owned();
        self.line = format!("{method} {path} HTTP/1.1");
        self
    }

    /// Sets a header. An empty value removes it.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        if !value.is_empty() {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Adds a header beside an existing one of the same name.
    pub(crate) fn another(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.bytes(body.to_string().into_bytes())
    }

    pub(crate) fn bytes(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self.header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
    }

    pub(crate) fn modern_headers(self, method: &str, params: &Value) -> Self {
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
        self.header("mcp-protocol-version", MODERN).header("mcp-method", method).header("mcp-name", &name)
    }

    pub(crate) fn session(self, id: &str) -> Self {
        self.header("mcp-session-id", id).header("mcp-protocol-version", LEGACY)
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// The bytes on the wire.
    pub(crate) fn wire(&self) -> Vec<u8> {
        let mut bytes = format!("{}\r\n", self.line).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        if !self.headers.iter().any(|(name, _)| name == "content-length") {
            bytes.extend(format!("content-length: {}\r\n", self.body.len()).into_bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }

    /// A connection before its first request.
    pub(crate) async fn connect(&self) -> RawConnection {
        RawConnection::connect(self.address).await
    }

    /// Sends the request on a new connection, which stays open.
    pub(crate) async fn open(&self) -> RawConnection {
        let mut wire = self.connect().await;
        wire.write(&self.wire()).await;
        wire
    }

    /// Sends the request and reads the whole response.
    pub(crate) async fn send(&self) -> RawResponse {
        self.open().await.answer().await
    }
}

/// A connection.
pub(crate) struct RawConnection {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

/// A response with its decoded body.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl RawConnection {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads more; false at the end.
    async fn more(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        let read = tokio::time::timeout(HANGS, self.stream.read(&mut piece)).await.expect("no answer");
        let read = read.unwrap_or(0);
        self.read.extend(&piece[..read]);
        read > 0
    }

    /// Reads until this text arrives, and returns everything up to its end.
    pub(crate) async fn until(&mut self, mark: &str) -> String {
        loop {
            if let Some(at) = find(&self.read, mark.as_bytes()) {
                let rest = self.read.split_off(at + mark.len());
                return String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap();
            }
            let before = String::from_utf8_lossy(&self.read).into_owned();
            assert!(self.more().await, "it ended before `{mark}`: {before}");
        }
    }

    /// Whether the server has closed the connection, after its last bytes.
    pub(crate) async fn closed(&mut self) -> bool {
        while self.more().await {}
        true
    }

    pub(crate) async fn answer(&mut self) -> RawResponse {
        let head = self.until("\r\n\r\n").await;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = RawResponse { status, head, body: String::new() };
        let mut body = Vec::new();
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let length = self.until("\r\n").await;
                let length = usize::from_str_radix(length.trim(), 16).unwrap();
                body.extend(self.exactly(length).await);
                self.until("\r\n").await;
                if length == 0 {
                    break;
                }
            }
        } else if let Some(length) = answer.header("content-length").map(|length| length.parse().unwrap()) {
            body = self.exactly(length).await;
        }
        answer.body = String::from_utf8(body).unwrap();
        answer
    }

    async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.read.len() < length {
            assert!(self.more().await, "it ended in the middle");
        }
        let rest = self.read.split_off(length);
        std::mem::replace(&mut self.read, rest)
    }
}

impl RawResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The messages of a stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
        lines.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect()
    }

    /// The message, or the last message of a stream.
    pub(crate) fn json(&self) -> Value {
        match self.header("content-type") {
            Some("text/event-stream") => self.events().pop().unwrap_or_else(|| panic!("{self:?}")),
            _ => serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}")),
        }
    }

    /// The error code.
    pub(crate) fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("{self:?}"))
    }
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

/// Keys that a function provides.
pub(crate) fn keys(keys: impl Fn() -> Value + Send + Sync + 'static) -> KeyFetcher {
    let keys = Arc::new(keys);
    KeyFetcher::new(move |_| {
        let bytes = keys().to_string().into_bytes();
        Box::pin(async move { Ok(bytes) })
    })
}

/// An authorization server that only signs.
pub(crate) struct FakeAuthorizationServer(Ed25519KeyPair);

impl FakeAuthorizationServer {
    pub(crate) fn new() -> Self {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
    }

    pub(crate) fn jwks(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": x}]})
    }

    /// A token for `/mcp`.
    pub(crate) fn token(&self, subject: &str, scope: &str, seconds: i64) -> String {
        self.token_for(&json!("https://tools.example/mcp"), subject, scope, seconds)
    }

    pub(crate) fn token_for(&self, audience: &Value, subject: &str, scope: &str, seconds: i64) -> String {
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
        let claims = json!({"iss": "https://id.example", "aud": audience, "sub": subject,
            "scope": scope, "exp": now + seconds});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed =
            format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": "k", "typ": "at+jwt"})), part(&claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes())))
    }
}
