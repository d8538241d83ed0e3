//! Connections: taken in, served, and ended in order.

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

use super::State;
use super::connections::{ConnectionPermit, network};
use super::route::{self, Source};
use super::socket::{Patience, Patient};

/// How long the next connection waits when one could not be taken in.
const BREATH: Duration = Duration::from_millis(50);
/// The same, when idle connections were closed for it.
const SHED_WAIT: Duration = Duration::from_millis(5);
/// How often a lack of descriptors is logged.
const SHORTAGE_LOG: Duration = Duration::from_secs(10);
/// How often sessions are looked for that are too old; more often where they are to end soon.
const SWEEP: Duration = Duration::from_secs(30);
/// Never more often than that.
const MIN_SWEEP: Duration = Duration::from_millis(100);
/// How long the end of everything may take: calls that are ended then have a second, and are recorded.
const END_WAIT: Duration = Duration::from_secs(2);
/// How long calls that were cut off have to end and to be answered.
const CUT_OFF_WAIT: Duration = Duration::from_secs(3);
/// Largest piece of a connection that is held while it is read or written, in bytes; grows only for what needs it.
const MAX_BUFFER: usize = 64 << 10;
/// What is said to a connection for which there is no place.
const NO_PLACE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

/// Serves until the end.
pub(super) async fn run(state: Arc<State>, listeners: Vec<TcpListener>) {
    let tasks = TaskTracker::new();
    let closing = CancellationToken::new();
    for listener in listeners {
        let taking = Taking { state: Arc::clone(&state), tasks: tasks.clone(), closing: closing.clone() };
        tasks.spawn(async move {
            tokio::select! {
                () = taking.closing.cancelled() => {}
                () = taking.accept(&listener) => {}
            }
        });
    }
    let stop = &state.ends.stop;
    let draining = async {
        state.ends.drain.cancelled().await;
        let limits = state.settings.load().serve.limits.clone();
        tokio::time::sleep(limits.drain_delay).await;
        state.draining.cancel();
        closing.cancel();
        tasks.close();
        if tokio::time::timeout(limits.drain_grace, ended(&state, &tasks)).await.is_err() {
            tracing::warn!("requests did not end in time and are cut off");
            state.server.calls.cut_off.cancel();
            // Who does not read the answer in time gets none.
            drop(tokio::time::timeout(CUT_OFF_WAIT, ended(&state, &tasks)).await);
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = draining => {}
        () = sweep(&state) => {}
        () = log_refused(&state) => {}
    }
    closing.cancel();
    state.ends.stop.cancel();
    tasks.close();
    // What is told to end ends at once; nothing of it waits for a client.
    if tokio::time::timeout(END_WAIT, ended(&state, &tasks)).await.is_err() {
        tracing::warn!("something did not end in time");
    }
}

/// Waits until no connection is open and no call runs: in a session calls go on without the connection that they came by,
/// and tasks without any.
async fn ended(state: &State, connections: &TaskTracker) {
    connections.wait().await;
    state.server.calls.tracker.wait().await;
}

/// Drops sessions that are too old, for ever.
async fn sweep(state: &State) {
    loop {
        let idle = state.settings.load().serve.limits.session_idle / 2;
        tokio::time::sleep(idle.clamp(MIN_SWEEP, SWEEP)).await;
        state.sessions.sweep(&state.settings.load().serve.limits);
    }
}

/// Logs the counts of refused requests, for ever.
async fn log_refused(state: &State) {
    loop {
        tokio::time::sleep(refusals::WINDOW).await;
        state.refused.log_due();
    }
}

/// What takes connections in.
struct Taking {
    state: Arc<State>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl Taking {
    async fn accept(&self, listener: &TcpListener) {
        let mut shortage = Shortage::default();
        loop {
            match listener.accept().await {
                Ok((stream, address)) => self.take(stream, address),
                Err(error) if lacks_descriptors(&error) => {
                    let closed = self.state.connections.shed();
                    shortage.log(&error, closed);
                    // They are closed by their own tasks.
                    tokio::time::sleep(if closed > 0 { SHED_WAIT } else { BREATH }).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken in");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    /// Gives a connection a place and a task.
    fn take(&self, mut stream: TcpStream, address: SocketAddr) {
        // Small answers must not wait for an acknowledgement.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small packets may wait");
        }
        let (state, peer) = (Arc::clone(&self.state), network(address.ip()));
        let settings = state.settings.load_full();
        let Some(place) = state.connections.enter(peer, &settings.serve.limits) else {
            tracing::warn!(%peer, "a connection was refused: as many as may be are at work");
            // It fits into the buffer of a new connection, or the connection is none.
            drop(stream.try_write(NO_PLACE));
            self.tasks.spawn(async move { drop(tokio::time::timeout(BREATH, stream.shutdown()).await) });
            return;
        };
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            let stop = state.ends.stop.clone();
            let source = Source::of(address.ip(), &place.connection);
            let serving = serve(stream, place, source, state, &settings.serve.limits, closing);
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = serving => {}
            }
        });
    }
}

/// What is logged while descriptors are lacking.
#[derive(Debug, Default)]
struct Shortage {
    logged: Option<Instant>,
    /// Idle connections that were closed since then.
    closed: usize,
}

impl Shortage {
    /// Counts connections that were closed, and logs them from time to time.
    fn log(&mut self, error: &io::Error, closed: usize) {
        self.closed = self.closed.saturating_add(closed);
        if self.logged.is_some_and(|at| at.elapsed() < SHORTAGE_LOG) {
            return;
        }
        self.logged = Some(Instant::now());
        let closed = std::mem::take(&mut self.closed);
        tracing::error!(%error, closed, "no descriptor is left for a connection; idle connections were closed");
    }
}

/// Whether a connection could not be taken in because the process or the system has no descriptor or memory left for it.
fn lacks_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    lacks.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Serves one connection until it ends, has to go, or everything ends.
fn serve(
    stream: TcpStream,
    place: ConnectionPermit,
    source: Source,
    state: Arc<State>,
    limits: &ServeLimits,
    closing: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let connection = Arc::clone(&place.connection);
    let gone = connection.gone.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(source.clone());
        let state = Arc::clone(&state);
        async move { Ok::<Response<Body>, Infallible>(route::answer(&state, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // The connection's bytes know better when it is idle: not while its last answer is still on the way.
        .header_read_timeout(None)
        .max_headers(usize::try_from(limits.headers).unwrap_or(usize::MAX))
        .max_header_size(usize::try_from(limits.header_bytes).unwrap_or(usize::MAX))
        .max_buf_size(MAX_BUFFER.max(usize::try_from(limits.header_bytes).unwrap_or(MAX_BUFFER)));
    let patience = Patience { idle: limits.idle_timeout, write: limits.write_timeout };
    let io = TokioIo::new(Patient::new(stream, Arc::clone(&connection), patience));
    let mut serving = Box::pin(builder.serve_connection(io, service));
    async move {
        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = gone.cancelled() => return,
            () = closing.cancelled() => {
                serving.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = &mut serving => ended,
                    () = place.connection.is_settled() => return,
                }
            }
        };
        if let Err(error) = ended {
            // Clients that are slow, broken or gone: nobody's concern but theirs.
            tracing::debug!(%error, "a connection ended");
        }
    }
}
