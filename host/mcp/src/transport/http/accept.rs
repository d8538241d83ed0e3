//! Accepts connections, serves them, and shuts them down in order.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolbay_core::audit::refusals;
use toolbay_policy::serve::ServeLimits;

use super::HttpState;
use super::connections::{ConnectionPermit, client_network};
use super::request_source::RequestSource;
use super::route;
use super::socket::{SocketTimeouts, TimeoutStream};

/// Delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Delay after a failed accept for which idle connections were closed.
const AFTER_SHED_DELAY: Duration = Duration::from_millis(5);
/// Shortest time between two log messages about a lack of descriptors.
const SHORTAGE_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time between two sweeps of expired sessions.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Shortest time between two sweeps of expired sessions.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of the final shutdown. Cancelled calls have 1 s to end and be recorded.
const END_WAIT: Duration = Duration::from_secs(2);
/// How long cancelled calls have to end and get their responses written.
const CANCELLED_CALLS_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest buffer of a connection, in bytes. It grows only as needed.
const MAX_BUFFER: usize = 64 << 10;
/// Response on a connection over the limit.
const UNAVAILABLE_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

/// Serves until the shutdown is complete.
pub(super) async fn run(state: Arc<HttpState>, listeners: Vec<TcpListener>) {
    let tasks = TaskTracker::new();
    let closing = CancellationToken::new();
    for listener in listeners {
        let acceptor = Acceptor { state: Arc::clone(&state), tasks: tasks.clone(), closing: closing.clone() };
        // The tracker owns the task. It ends when `closing` fires.
        tasks.spawn(async move {
            tokio::select! {
                () = acceptor.closing.cancelled() => {}
                () = acceptor.accept(&listener) => {}
            }
        });
    }
    let stop = &state.shutdown.stop;
    let draining = async {
        state.shutdown.drain.cancelled().await;
        let limits = state.settings.load().serve.limits.clone();
        tokio::time::sleep(limits.drain_delay).await;
        state.draining.cancel();
        closing.cancel();
        tasks.close();
        if tokio::time::timeout(limits.drain_grace, wait_ended(&state, &tasks)).await.is_err() {
            tracing::warn!("requests did not end within the grace period and are cancelled");
            state.server.calls.shutdown.cancel();
            // A client that does not read in time gets no response.
            drop(tokio::time::timeout(CANCELLED_CALLS_TIMEOUT, wait_ended(&state, &tasks)).await);
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = draining => {}
        () = sweep(&state) => {}
        () = log_refused(&state) => {}
        () = state.server.receive_task_messages() => {}
    }
    closing.cancel();
    state.shutdown.stop.cancel();
    tasks.close();
    // Cancelled tasks end at once: none of them waits for a client.
    if tokio::time::timeout(END_WAIT, wait_ended(&state, &tasks)).await.is_err() {
        tracing::warn!("connections or calls did not end in time");
    }
}

/// Waits until all connections are closed and all calls have ended. Calls in a session, and tasks, outlive their
/// connection.
async fn wait_ended(state: &HttpState, connections: &TaskTracker) {
    connections.wait().await;
    state.server.calls.tracker.wait().await;
}

/// Drops expired sessions, forever.
async fn sweep(state: &HttpState) {
    loop {
        let idle = state.settings.load().serve.limits.session_idle / 2;
        tokio::time::sleep(idle.clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL)).await;
        state.sessions.sweep(&state.settings.load().serve.limits);
    }
}

/// Logs the counts of refused requests, forever.
async fn log_refused(state: &HttpState) {
    loop {
        tokio::time::sleep(refusals::WINDOW).await;
        state.refused.log_due();
    }
}

/// Accepts connections on the listeners.
struct Acceptor {
    state: Arc<HttpState>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl Acceptor {
    async fn accept(&self, listener: &TcpListener) {
        let mut shortage = DescriptorShortage::default();
        loop {
            match listener.accept().await {
                Ok((stream, address)) => self.spawn_connection(stream, address),
                Err(error) if lacks_descriptors(&error) => {
                    let closed = self.state.connections.shed_idle();
                    shortage.log(&error, closed);
                    // The tasks of these connections close them.
                    tokio::time::sleep(if closed > 0 { AFTER_SHED_DELAY } else { ACCEPT_RETRY_DELAY }).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Acquires a permit for a connection and spawns its task.
    fn spawn_connection(&self, mut stream: TcpStream, address: SocketAddr) {
        // Small responses must not wait for an acknowledgement (Nagle).
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let (state, peer) = (Arc::clone(&self.state), client_network(address.ip()));
        let settings = state.settings.load_full();
        let Some(permit) = state.connections.acquire(peer, &settings.serve.limits) else {
            tracing::warn!(%peer, "a connection was refused: the limit is reached and all connections are active");
            // The response fits into the send buffer of a new connection.
            drop(stream.try_write(UNAVAILABLE_RESPONSE));
            self.tasks.spawn(async move {
                drop(tokio::time::timeout(ACCEPT_RETRY_DELAY, stream.shutdown()).await);
            });
            return;
        };
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            let stop = state.shutdown.stop.clone();
            let source = RequestSource::new(address.ip(), &permit.connection);
            let serving = serve_connection(stream, permit, source, state, &settings.serve.limits, closing);
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = serving => {}
            }
        });
    }
}

/// Rate-limits log messages about a lack of descriptors.
#[derive(Debug, Default)]
struct DescriptorShortage {
    logged: Option<Instant>,
    /// Idle connections that were closed since the last log message.
    closed: usize,
}

impl DescriptorShortage {
    /// Counts closed connections, and logs them from time to time.
    fn log(&mut self, error: &io::Error, closed: usize) {
        self.closed = self.closed.saturating_add(closed);
        if self.logged.is_some_and(|at| at.elapsed() < SHORTAGE_LOG_INTERVAL) {
            return;
        }
        self.logged = Some(Instant::now());
        let closed = std::mem::take(&mut self.closed);
        tracing::error!(%error, closed, "no descriptor is left for a new connection; idle connections were closed");
    }
}

/// Whether an accept failed because the process or the system is out of descriptors or memory.
fn lacks_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    lacks.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Serves one connection until it ends, is evicted, or the server shuts down.
fn serve_connection(
    stream: TcpStream,
    permit: ConnectionPermit,
    source: RequestSource,
    state: Arc<HttpState>,
    limits: &ServeLimits,
    closing: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let connection = Arc::clone(&permit.connection);
    let evicted = connection.evicted.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(source.clone());
        let state = Arc::clone(&state);
        async move { Ok::<Response<Body>, Infallible>(route::handle(&state, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // `TimeoutStream` detects idle connections. It knows when the last response is still being written.
        .header_read_timeout(None)
        .max_headers(usize::try_from(limits.headers).unwrap_or(usize::MAX))
        .max_header_size(usize::try_from(limits.header_bytes).unwrap_or(usize::MAX))
        .max_buf_size(MAX_BUFFER.max(usize::try_from(limits.header_bytes).unwrap_or(MAX_BUFFER)));
    let timeouts = SocketTimeouts { idle: limits.idle_timeout, write: limits.write_timeout };
    let io = TokioIo::new(TimeoutStream::new(stream, Arc::clone(&connection), timeouts));
    let mut serving = Box::pin(builder.serve_connection(io, service));
    async move {
        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = evicted.cancelled() => return,
            () = closing.cancelled() => {
                serving.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = &mut serving => ended,
                    () = permit.connection.wait_settled() => return,
                }
            }
        };
        if let Err(error) = ended {
            // Slow, broken or disconnected clients are no problem of the server.
            tracing::debug!(%error, "a connection ended");
        }
    }
}
