//! Outbound connections: to a checked address, with TLS for the host name, and pooled for the same user.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
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
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use toolbay_policy::capability::net::{NetTarget, Scheme};
use toolbay_policy::name::PluginId;
use toolbay_policy::route::OutboundRoute;

use super::call_network::NetError;
use super::dispatch::DispatchError;
use super::head_limit::HeadLimit;
use super::headers;
use super::outbound_limiter::OutboundPermit;
use super::proxy::HttpProxy;
use super::tls;

/// Timeout of the connection attempt to one address while others remain.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of idle connections, and of those with the same [`ConnectionKey`].
const MAX_IDLE_CONNECTIONS: usize = 32;
const MAX_IDLE_PER_KEY: usize = 2;
/// Bytes of one response that are buffered for a slow reader.
const HTTP2_WINDOW: u32 = 256 << 10;
/// Bytes read from an HTTP/1 socket at once. With a small buffer a body arrives in many pieces, and each wakes its
/// reader. The length of the header is checked against [`headers::MAX_BYTES`] afterwards.
const HTTP1_BUFFER: usize = 256 << 10;

/// The body of an outgoing request.
pub(super) type OutboundBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// A request body from bytes in memory.
pub(super) fn full_body(bytes: Bytes) -> OutboundBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// The user of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ConnectionUser {
    /// A plugin.
    Plugin(PluginId),
    /// The host itself, for URLs that its operator wrote.
    Host,
    /// The host itself, as the client of an MCP server of the policy.
    Server(PluginId),
    /// An OpenAPI service.
    Service(PluginId),
}

impl fmt::Display for ConnectionUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin(name) => write!(f, "plugin `{name}`"),
            Self::Host => f.write_str("the host"),
            Self::Server(name) => write!(f, "MCP server `{name}`"),
            Self::Service(name) => write!(f, "service `{name}`"),
        }
    }
}

/// How a connection is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// To a checked address, with the certificates that the host trusts: for guests.
    Direct,
    /// As configured by the operator, in a section of the policy or in the environment.
    Operator(OutboundRoute),
}

impl Route {
    /// A file with further trusted certificates.
    pub(super) fn ca(&self) -> Option<&Path> {
        match self {
            Self::Direct => None,
            Self::Operator(route) => route.ca.as_deref(),
        }
    }
}

/// Identifies the requests that can share a connection: it was checked for this user, origin and list of private
/// networks, and made in this way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConnectionKey {
    pub(super) user: ConnectionUser,
    pub(super) scheme: Scheme,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) private: Vec<IpNet>,
    pub(super) route: Route,
}

impl ConnectionKey {
    /// The key of the connections for a request.
    pub(super) fn new(user: ConnectionUser, target: &NetTarget, private: &[IpNet], route: Route) -> Self {
        Self {
            user,
            route,
            scheme: target.scheme(),
            host: target.host().to_owned(),
            port: target.port(),
            private: private.to_vec(),
        }
    }
}

/// A connection. Dropping it closes it at once, also during a request.
#[derive(Debug)]
pub(super) struct OutboundConnection {
    sender: RequestSender,
    tasks: ConnectionTasks,
    permit: OutboundPermit,
}

/// The tasks that drive one connection; HTTP/2 spawns more of them. They are aborted when the connection is dropped:
/// a task that waits for the peer's close would hold the socket open.
#[derive(Debug, Clone, Default)]
struct ConnectionTasks(Arc<Mutex<JoinSet<()>>>);

impl ConnectionTasks {
    fn add(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        drop(tasks.spawn(task));
    }
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for ConnectionTasks {
    fn execute(&self, task: F) {
        self.add(async move {
            drop(task.await);
        });
    }
}

impl Drop for OutboundConnection {
    fn drop(&mut self) {
        self.tasks.0.lock().abort_all();
    }
}

/// The error of a request, and the request itself if it was not sent.
type SendError = (hyper::Error, Option<Box<Request<OutboundBody>>>);

#[derive(Debug)]
enum RequestSender {
    Http1(http1::SendRequest<OutboundBody>, HeadLimit),
    Http2(http2::SendRequest<OutboundBody>),
}

impl OutboundConnection {
    /// Connects to the first address that accepts: of the host, or of the proxy to it.
    pub(super) async fn open(
        addresses: &[SocketAddr],
        key: &ConnectionKey,
        tls: Option<Arc<ClientConfig>>,
        proxy: Option<&HttpProxy>,
        permit: OutboundPermit,
    ) -> Result<Self, DispatchError> {
        let text =
            |error: &dyn fmt::Display| format!("no connection to `{}`, port {}: {error}", key.host, key.port);
        let failed = |error: &dyn fmt::Display| DispatchError::Net(NetError::Transport(text(error)));
        let stream = match proxy {
            None => dial(addresses).await.map_err(|e| failed(&e))?,
            Some(proxy) => proxy.open_tunnel(addresses, &key.host, key.port).await.map_err(|e| failed(&e))?,
        };
        let tasks = ConnectionTasks::default();
        let sender = match tls {
            None => handshake_http1(stream, &tasks).await.map_err(|e| failed(&e))?,
            Some(config) => {
                let name = key.host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(|e| failed(&e))?;
                let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream);
                let stream = stream.await.map_err(|error| match tls::explain(&error) {
                    tls::HandshakeFailure::UnknownAuthority(why) => {
                        DispatchError::UnknownAuthority(text(&why))
                    }
                    tls::HandshakeFailure::Other(why) => failed(&why),
                })?;
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    handshake_http2(TokioIo::new(stream), &tasks).await.map_err(|e| failed(&e))?
                } else {
                    handshake_http1(stream, &tasks).await.map_err(|e| failed(&e))?
                }
            }
        };
        Ok(Self { sender, tasks, permit })
    }

    /// Sends a request, whose URI is absolute. On an error, returns the request if no byte of it was sent.
    pub(super) async fn send(
        &mut self,
        mut request: Box<Request<OutboundBody>>,
    ) -> Result<Response<Incoming>, SendError> {
        let failed = |mut e: TrySendError<Request<OutboundBody>>| {
            let unsent = e.take_message().map(Box::new);
            (e.into_error(), unsent)
        };
        match &mut self.sender {
            RequestSender::Http1(sender, limit) => {
                origin_form(&mut request);
                limit.start();
                let response = sender.try_send_request(*request).await.map_err(failed);
                limit.end();
                response
            }
            RequestSender::Http2(sender) => {
                request.headers_mut().remove(hyper::header::HOST);
                sender.try_send_request(*request).await.map_err(failed)
            }
        }
    }

    /// Whether the connection can send the next request. The end of the last response may not have been processed
    /// yet, and its body may never end, so the wait is short.
    pub(super) async fn wait_ready(&mut self) -> bool {
        const READY_TIMEOUT: Duration = Duration::from_millis(50);
        let is_ready = match &self.sender {
            RequestSender::Http1(sender, _) => sender.is_ready(),
            RequestSender::Http2(sender) => sender.is_ready(),
        };
        if is_ready {
            return true;
        }
        let ready = async {
            match &mut self.sender {
                RequestSender::Http1(sender, _) => sender.ready().await.is_ok(),
                RequestSender::Http2(sender) => sender.ready().await.is_ok(),
            }
        };
        Box::pin(tokio::time::timeout(READY_TIMEOUT, ready)).await.unwrap_or(false)
    }

    fn is_open(&self) -> bool {
        match &self.sender {
            RequestSender::Http1(sender, _) => !sender.is_closed(),
            RequestSender::Http2(sender) => !sender.is_closed(),
        }
    }
}

/// Reduces the URI to origin form, which HTTP/1 requires; the `host` header is already set.
fn origin_form(request: &mut Request<OutboundBody>) {
    let mut parts = hyper::http::uri::Parts::default();
    parts.path_and_query = request.uri().path_and_query().cloned();
    if let Ok(uri) = hyper::Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// Connects to the first address that accepts.
pub(super) async fn dial(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (tried, address) in addresses.iter().enumerate() {
        let connect = TcpStream::connect(address);
        let connected = if tried + 1 == addresses.len() {
            connect.await
        } else {
            tokio::time::timeout(ATTEMPT_TIMEOUT, connect)
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

async fn handshake_http1<S>(stream: S, tasks: &ConnectionTasks) -> hyper::Result<RequestSender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_headers(headers::MAX_COUNT).max_buf_size(HTTP1_BUFFER);
    let limit = HeadLimit::default();
    let (sender, connection) = builder.handshake(TokioIo::new(limit.clone().wrap(stream))).await?;
    tasks.add(drive(connection));
    Ok(RequestSender::Http1(sender, limit))
}

async fn handshake_http2<S>(stream: TokioIo<S>, tasks: &ConnectionTasks) -> hyper::Result<RequestSender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(tasks.clone());
    builder
        .max_header_list_size(u32::try_from(headers::MAX_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(HTTP2_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW)
        .max_send_buf_size(headers::MAX_BYTES);
    let (sender, connection) = builder.handshake(stream).await?;
    tasks.add(drive(connection));
    Ok(RequestSender::Http2(sender))
}

/// Drives a connection. The sender of the request gets its errors.
async fn drive(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        tracing::debug!("a connection ended with an error: {error}");
    }
}

/// The idle connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionPool(Mutex<IdleConnections>);

#[derive(Debug, Default)]
struct IdleConnections {
    connections: Vec<(ConnectionKey, OutboundConnection, Instant)>,
    has_sweeper: bool,
}

impl ConnectionPool {
    /// Takes an idle connection with this key.
    pub(super) fn take(&self, key: &ConnectionKey) -> Option<OutboundConnection> {
        let mut idle = self.0.lock();
        idle.sweep();
        let at = idle.connections.iter().rposition(|(of, ..)| of == key)?;
        Some(idle.connections.remove(at).1)
    }

    /// Keeps an idle connection, unless a request may be waiting for its permit. Closes the oldest when there are too
    /// many.
    pub(super) fn put(self: &Arc<Self>, key: ConnectionKey, connection: OutboundConnection) {
        // Without a runtime, no task could drive the connection.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut idle = self.0.lock();
        idle.sweep();
        if connection.permit.may_have_waiters() {
            return;
        }
        if idle.connections.iter().filter(|(of, ..)| *of == key).count() >= MAX_IDLE_PER_KEY {
            return;
        }
        if idle.connections.len() >= MAX_IDLE_CONNECTIONS {
            idle.connections.remove(0);
        }
        idle.connections.push((key, connection, Instant::now()));
        let swept = std::mem::replace(&mut idle.has_sweeper, true);
        drop(idle);
        // Spawned without the lock: a runtime that shuts down drops a new task at once, and that drop takes the lock.
        if !swept {
            // The task ends when no connection is idle.
            drop(runtime.spawn(sweep(Sweeper(Arc::downgrade(self)))));
        }
    }

    /// Closes all idle connections to release their permits.
    pub(super) fn clear(&self) {
        self.0.lock().connections.clear();
    }

    /// Closes the idle connections of one user.
    pub(super) fn clear_user(&self, user: &ConnectionUser) {
        self.0.lock().connections.retain(|(key, ..)| key.user != *user);
    }
}

impl IdleConnections {
    fn sweep(&mut self) {
        self.connections
            .retain(|(_, connection, since)| since.elapsed() < IDLE_TIMEOUT && connection.is_open());
    }
}

/// Clears `has_sweeper` when the sweeper task ends, also when its runtime shuts down.
struct Sweeper(std::sync::Weak<ConnectionPool>);

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.0.lock().has_sweeper = false;
        }
    }
}

/// Closes connections that were idle too long. Ends when none is left.
async fn sweep(sweeper: Sweeper) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT / 3).await;
        let Some(pool) = sweeper.0.upgrade() else { return };
        let mut idle = pool.0.lock();
        idle.sweep();
        if idle.connections.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::outbound_limiter::OutboundLimiter;
    use std::net::TcpListener;
    use std::sync::mpsc;
    use toolbay_policy::limits::HostLimits;

    #[test]
    fn returning_a_connection_after_its_runtime_ended_does_not_deadlock() {
        let (pool, limiter) =
            (Arc::new(ConnectionPool::default()), OutboundLimiter::new(&HostLimits::default()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (host, port) = (address.ip().to_string(), address.port());
        let key = ConnectionKey {
            user: ConnectionUser::Host,
            scheme: Scheme::Http,
            host,
            port,
            private: Vec::new(),
            route: Route::Direct,
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let permit = limiter.try_acquire(&key.user, &pool).unwrap();
        let connection =
            runtime.block_on(OutboundConnection::open(&[address], &key, None, None, permit)).unwrap();
        drop(runtime);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let _entered = handle.enter();
            pool.put(key, connection);
            sender.send(pool.0.lock().has_sweeper).unwrap();
        });
        let swept = receiver.recv_timeout(Duration::from_secs(30)).expect("`put` returns without a deadlock");
        assert!(!swept, "the next connection starts a new sweeper");
    }
}
