//! Connections: to an address that was checked, with TLS for the name, and kept for a while for the same plugin.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::Executor;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use toolbay_policy::capability::net::{Scheme, Target};
use toolbay_policy::name::PluginId;

use super::headers;
use super::places::Place;
use super::session::NetError;

/// How long one address may take to answer while there is another.
const ATTEMPT: Duration = Duration::from_secs(3);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(15);
/// Unused connections that are kept, and those of one [`Key`].
const MAX_IDLE: usize = 32;
const MAX_IDLE_OF_KEY: usize = 2;
/// Bytes of one response that may wait in memory for whoever reads it.
const WINDOW: u32 = 256 << 10;
/// The same of HTTP/1: what is read of a socket at once. With little, a body comes in many pieces, and each wakes its
/// reader. That a header is no longer than [`headers::MAX_BYTES`] is looked at when it is there.
const READ_AHEAD: usize = 256 << 10;

/// The body of a request on its way out.
pub(super) type Outgoing = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// For whom a connection is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum User {
    /// A plugin.
    Plugin(PluginId),
    /// The host itself, for what its operator named.
    Host,
    /// The host itself, as a client of a server of the policy.
    Server(PluginId),
    /// A service that an OpenAPI document describes.
    Service(PluginId),
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin(name) => write!(f, "plugin `{name}`"),
            Self::Host => f.write_str("the host"),
            Self::Server(name) => write!(f, "MCP server `{name}`"),
            Self::Service(name) => write!(f, "service `{name}`"),
        }
    }
}

/// Who may use a connection again: it was checked for this user, this place and these private networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) user: User,
    pub(super) scheme: Scheme,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) private: Vec<IpNet>,
}

impl Key {
    /// The key of the connections to a request's origin.
    pub(super) fn new(user: User, target: &Target, private: &[IpNet]) -> Self {
        Self {
            user,
            scheme: target.scheme(),
            host: target.host().to_owned(),
            port: target.port(),
            private: private.to_vec(),
        }
    }
}

/// A connection. Dropping it closes it at once, whatever it is doing.
#[derive(Debug)]
pub(super) struct Connection {
    sender: Sender,
    tasks: Tasks,
    place: Place,
}

/// The tasks that drive one connection; HTTP/2 adds some as it goes. Ended when the connection is dropped: one that
/// waited for a peer to read its farewell would hold the socket open.
#[derive(Debug, Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn add(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        drop(tasks.spawn(task));
    }
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.add(async move {
            drop(task.await);
        });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.0.lock().abort_all();
    }
}

/// Why there is no response, and the request if it was not sent.
type Unanswered = (hyper::Error, Option<Box<Request<Outgoing>>>);

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Outgoing>),
    Http2(http2::SendRequest<Outgoing>),
}

impl Connection {
    /// Connects to the first of the addresses that answers.
    pub(super) async fn open(
        addresses: &[SocketAddr],
        key: &Key,
        tls: Option<Arc<ClientConfig>>,
        place: Place,
    ) -> Result<Self, NetError> {
        let failed = |error: &dyn std::fmt::Display| {
            NetError::Transport(format!("no connection to `{}`, port {}: {error}", key.host, key.port))
        };
        let stream = dial(addresses).await.map_err(|e| failed(&e))?;
        let tasks = Tasks::default();
        let sender = match tls {
            None => plain(TokioIo::new(stream), &tasks).await.map_err(|e| failed(&e))?,
            Some(config) => {
                let name = key.host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(|e| failed(&e))?;
                let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream);
                let stream = stream.await.map_err(|e| failed(&e))?;
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    multiplexed(TokioIo::new(stream), &tasks).await.map_err(|e| failed(&e))?
                } else {
                    plain(TokioIo::new(stream), &tasks).await.map_err(|e| failed(&e))?
                }
            }
        };
        Ok(Self { sender, tasks, place })
    }

    /// Sends a request; the URI names the whole URL. A request that was not sent at all comes back.
    pub(super) async fn send(
        &mut self,
        mut request: Box<Request<Outgoing>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let failed = |mut e: TrySendError<Request<Outgoing>>| {
            let unsent = e.take_message().map(Box::new);
            (e.into_error(), unsent)
        };
        match &mut self.sender {
            Sender::Http1(sender) => {
                origin_form(&mut request);
                sender.try_send_request(*request).await.map_err(failed)
            }
            Sender::Http2(sender) => {
                request.headers_mut().remove(hyper::header::HOST);
                sender.try_send_request(*request).await.map_err(failed)
            }
        }
    }

    /// Whether the next request can be sent. The last one is done, but its end may not have been noticed yet; its
    /// body may also never end, so this does not wait for long.
    pub(super) async fn ready(&mut self) -> bool {
        const MOMENT: Duration = Duration::from_millis(50);
        let is_ready = match &self.sender {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2(sender) => sender.is_ready(),
        };
        if is_ready {
            return true;
        }
        let ready = async {
            match &mut self.sender {
                Sender::Http1(sender) => sender.ready().await.is_ok(),
                Sender::Http2(sender) => sender.ready().await.is_ok(),
            }
        };
        Box::pin(tokio::time::timeout(MOMENT, ready)).await.unwrap_or(false)
    }

    fn is_open(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }
}

/// HTTP/1 wants the path alone in its first line; the `host` header is already there.
fn origin_form(request: &mut Request<Outgoing>) {
    let mut parts = hyper::http::uri::Parts::default();
    parts.path_and_query = request.uri().path_and_query().cloned();
    if let Ok(uri) = hyper::Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

async fn dial(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (tried, address) in addresses.iter().enumerate() {
        let connect = TcpStream::connect(address);
        let connected = if tried + 1 == addresses.len() {
            connect.await
        } else {
            tokio::time::timeout(ATTEMPT, connect)
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        };
        match connected {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn plain<S>(stream: TokioIo<S>, tasks: &Tasks) -> hyper::Result<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_headers(headers::MAX_COUNT).max_buf_size(READ_AHEAD);
    let (sender, connection) = builder.handshake(stream).await?;
    tasks.add(ended(connection));
    Ok(Sender::Http1(sender))
}

async fn multiplexed<S>(stream: TokioIo<S>, tasks: &Tasks) -> hyper::Result<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(tasks.clone());
    builder
        .max_header_list_size(u32::try_from(headers::MAX_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(headers::MAX_BYTES);
    let (sender, connection) = builder.handshake(stream).await?;
    tasks.add(ended(connection));
    Ok(Sender::Http2(sender))
}

/// Drives a connection. Its errors reach who waits for the response.
async fn ended(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        tracing::debug!("a connection ended: {error}");
    }
}

/// The connections that nobody uses now.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Idle>);

#[derive(Debug, Default)]
struct Idle {
    connections: Vec<(Key, Connection, Instant)>,
    swept: bool,
}

impl Pool {
    /// One that may be used for `key`.
    pub(super) fn take(&self, key: &Key) -> Option<Connection> {
        let mut idle = self.0.lock();
        idle.sweep();
        let at = idle.connections.iter().rposition(|(of, ..)| of == key)?;
        Some(idle.connections.remove(at).1)
    }

    /// Keeps one, unless somebody may be waiting for its place. The oldest go when there are too many.
    pub(super) fn put(self: &Arc<Self>, key: Key, connection: Connection) {
        // Outside of a runtime there is nobody who would drive it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut idle = self.0.lock();
        idle.sweep();
        if connection.place.is_wanted() {
            return;
        }
        if idle.connections.iter().filter(|(of, ..)| *of == key).count() >= MAX_IDLE_OF_KEY {
            return;
        }
        if idle.connections.len() >= MAX_IDLE {
            idle.connections.remove(0);
        }
        idle.connections.push((key, connection, Instant::now()));
        let swept = std::mem::replace(&mut idle.swept, true);
        drop(idle);
        // Not under the lock: a runtime that ends drops at once what is begun there, and that takes the lock.
        if !swept {
            // Ends when no connection is idle.
            drop(runtime.spawn(sweep(Sweeper(Arc::downgrade(self)))));
        }
    }

    /// Closes them all, for who needs their places.
    pub(super) fn clear(&self) {
        self.0.lock().connections.clear();
    }

    /// Closes those of one user.
    pub(super) fn clear_of(&self, user: &User) {
        self.0.lock().connections.retain(|(key, ..)| key.user != *user);
    }
}

impl Idle {
    fn sweep(&mut self) {
        self.connections.retain(|(_, connection, since)| since.elapsed() < IDLE && connection.is_open());
    }
}

/// Remembers when the task that closes old connections has gone, also with its runtime.
struct Sweeper(std::sync::Weak<Pool>);

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.0.lock().swept = false;
        }
    }
}

/// Closes what was not used for long; ends when nothing is left.
async fn sweep(sweeper: Sweeper) {
    loop {
        tokio::time::sleep(IDLE / 3).await;
        let Some(pool) = sweeper.0.upgrade() else { return };
        let mut idle = pool.0.lock();
        idle.sweep();
        if idle.connections.is_empty() {
            return;
        }
    }
}

/// Whom TLS trusts: the system's roots, or Mozilla's where the system has none, and those the embedder adds.
#[derive(Debug, Default)]
pub(super) struct Trust {
    extra: OnceLock<Vec<CertificateDer<'static>>>,
    config: tokio::sync::OnceCell<Arc<ClientConfig>>,
}

impl Trust {
    /// Adds roots, before the first connection.
    pub(super) fn add(&self, pem: &[u8]) -> Result<(), String> {
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let roots = roots.map_err(|e| format!("the TLS roots cannot be read: {e}"))?;
        if roots.is_empty() {
            return Err("the TLS roots have no certificate among them".to_owned());
        }
        self.extra.set(roots).map_err(|_| "the TLS roots were set before".to_owned())
    }

    /// The settings of all TLS connections. Reads the system's roots the first time.
    pub(super) async fn config(&self) -> Result<Arc<ClientConfig>, NetError> {
        let extra = self.extra.get().cloned().unwrap_or_default();
        let made = self.config.get_or_try_init(|| async {
            tokio::task::spawn_blocking(move || configure(extra)).await.map_err(|e| e.to_string())?
        });
        made.await.cloned().map_err(|e| NetError::Transport(format!("TLS cannot be used: {e}")))
    }
}

fn configure(extra: Vec<CertificateDer<'static>>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!("a root certificate of the system cannot be read: {error}");
    }
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots.add_parsable_certificates(extra);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::http::places::Places;
    use std::net::TcpListener;
    use std::sync::mpsc;
    use toolbay_policy::limits::HostLimits;

    #[test]
    fn what_is_put_back_when_the_runtime_has_ended_keeps_nobody_waiting() {
        let (pool, places) = (Arc::new(Pool::default()), Places::new(&HostLimits::default()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (host, port) = (address.ip().to_string(), address.port());
        let key = Key { user: User::Host, scheme: Scheme::Http, host, port, private: Vec::new() };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let place = places.try_take(&key.user, &pool).unwrap();
        let connection = runtime.block_on(Connection::open(&[address], &key, None, place)).unwrap();
        drop(runtime);
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let _entered = handle.enter();
            pool.put(key, connection);
            tell.send(pool.0.lock().swept).unwrap();
        });
        let swept = told.recv_timeout(Duration::from_secs(30)).expect("it waits for itself");
        assert!(!swept, "the next one begins a sweeper");
    }
}
