//! A server on the loopback interface that sends exact bytes and records its requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// The response to one request.
pub(crate) enum LoopbackReply {
    /// These bytes. The connection stays open for the next request.
    Bytes(Vec<u8>),
    /// These bytes, then the connection is closed.
    Last(Vec<u8>),
    /// The first bytes, then the second ones repeatedly with a pause, until the client disconnects.
    Endless(Vec<u8>, Vec<u8>, Duration),
    /// No response. The connection stays open.
    Silence,
}

/// A response with a body and further header lines, each with its line end.
pub(crate) fn response(status: u16, headers: &str, body: impl AsRef<[u8]>) -> LoopbackReply {
    let body = body.as_ref();
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend(body);
    LoopbackReply::Bytes(bytes)
}

/// A redirect.
pub(crate) fn redirect(status: u16, to: &str) -> LoopbackReply {
    response(status, &format!("location: {to}\r\n"), "moved")
}

/// A received request: the head as text, and the body.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    /// `GET /path`.
    pub(crate) fn line(&self) -> &str {
        self.head.split(" HTTP/1.1").next().unwrap()
    }

    /// The path and query.
    pub(crate) fn path(&self) -> &str {
        self.line().split(' ').nth(1).unwrap()
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

type LoopbackResponse = Arc<dyn Fn(&ReceivedRequest) -> LoopbackReply + Send + Sync>;

/// A running server. It ends when it is dropped.
pub(crate) struct LoopbackServer {
    pub(crate) address: SocketAddr,
    state: Arc<LoopbackState>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct LoopbackState {
    seen: Mutex<Vec<ReceivedRequest>>,
    opened: AtomicUsize,
    closed: AtomicUsize,
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LoopbackServer {
    pub(crate) async fn new(
        answer: impl Fn(&ReceivedRequest) -> LoopbackReply + Send + Sync + 'static,
    ) -> Self {
        Self::listen(None, Arc::new(answer)).await
    }

    /// With TLS: a certificate for `names`, and the root certificate as PEM.
    pub(crate) async fn tls(
        names: &[&str],
        answer: impl Fn(&ReceivedRequest) -> LoopbackReply + Send + Sync + 'static,
    ) -> (Self, String) {
        let (config, pem) = tls_config(names);
        (Self::listen(Some(TlsAcceptor::from(Arc::new(config))), Arc::new(answer)).await, pem)
    }

    async fn listen(tls: Option<TlsAcceptor>, answer: LoopbackResponse) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(LoopbackState::default());
        let inner = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (state, answer, tls) = (Arc::clone(&inner), Arc::clone(&answer), tls.clone());
                state.opened.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &state, &answer).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &state, &answer).await;
                            }
                        }
                    }
                    state.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, state, task }
    }

    /// `http://127.0.0.1:port` with this suffix.
    pub(crate) fn url(&self, rest: &str) -> String {
        format!("http://{}{rest}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.state.seen.lock().unwrap().clone()
    }

    /// The number of connections so far.
    pub(crate) fn opened(&self) -> usize {
        self.state.opened.load(Ordering::SeqCst)
    }

    /// Waits until every connection is closed. Fails after `within`.
    pub(crate) async fn all_closed(&self, within: Duration) {
        self.all_closed_but(0, within).await;
    }

    /// Waits until no more than `kept` connections are open. Fails after `within`.
    pub(crate) async fn all_closed_but(&self, kept: usize, within: Duration) {
        let start = std::time::Instant::now();
        while self.state.closed.load(Ordering::SeqCst) + kept < self.opened() {
            assert!(start.elapsed() < within, "a connection is still open");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The TLS settings of a server with a certificate for `names`, and the certificate as PEM.
pub(crate) fn tls_config(names: &[&str]) -> (ServerConfig, String) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    (config, made.cert.pem())
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    state: &LoopbackState,
    answer: &LoopbackResponse,
) {
    while let Some(seen) = receive(&mut stream).await {
        let reply = answer(&seen);
        state.seen.lock().unwrap().push(seen);
        let sent = match reply {
            LoopbackReply::Bytes(bytes) => stream.write_all(&bytes).await,
            LoopbackReply::Last(bytes) => {
                drop(stream.write_all(&bytes).await);
                drop(stream.shutdown().await);
                return;
            }
            LoopbackReply::Endless(head, part, pause) => endless(&mut stream, &head, &part, pause).await,
            LoopbackReply::Silence => gone(&mut stream).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn endless(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    head: &[u8],
    part: &[u8],
    pause: Duration,
) -> std::io::Result<()> {
    stream.write_all(head).await?;
    loop {
        stream.write_all(part).await?;
        stream.flush().await?;
        let mut byte = [0];
        if let Ok(read) = tokio::time::timeout(pause, stream.read(&mut byte)).await
            && read? == 0
        {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
    }
}

async fn gone(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    let mut byte = [0];
    while stream.read(&mut byte).await? > 0 {}
    Err(std::io::ErrorKind::ConnectionReset.into())
}

/// Reads one request; `None` at the end of the connection.
async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let mut part = [0; 8192];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut part).await {
            Ok(n) if n > 0 => bytes.extend(&part[..n]),
            _ => return None,
        }
    };
    let mut body = bytes.split_off(end);
    let mut seen = ReceivedRequest { head: String::from_utf8_lossy(&bytes).into_owned(), body: Vec::new() };
    let length = seen.header("content-length").map_or(0, |n| n.parse().unwrap());
    let chunked = seen.header("transfer-encoding") == Some("chunked");
    while body.len() < length || (chunked && !body.ends_with(b"0\r\n\r\n")) {
        match stream.read(&mut part).await {
            Ok(n) if n > 0 => body.extend(&part[..n]),
            _ => return None,
        }
    }
    seen.body = body;
    Some(seen)
}
