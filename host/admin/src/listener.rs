//! Accepts connections and serves the routes on them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Most connections at once. Further ones wait.
pub(crate) const MAX_CONNECTIONS: usize = 128;
/// How long a client may take to send the head of a request, and to keep a connection without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest life of a connection.
const MAX_LIFE: Duration = Duration::from_secs(60);
/// Largest buffer of a connection, in bytes.
const MAX_BUFFER: usize = 64 << 10;
/// Delay after a failed accept.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum Acceptor {
    /// A socket for this user only.
    OwnSocket(UnixListener),
    /// A socket whose requests need a token.
    Socket(UnixListener),
    /// A loopback address.
    Loopback(TcpListener),
}

/// The address of a connection; `None` for a socket. An extension of its requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PeerAddress(pub(crate) Option<IpAddr>);

/// A stream of bytes from and to a client.
trait ClientStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ClientStream for T {}

impl Acceptor {
    /// The next connection; `None` for another user's on a socket for this user only.
    async fn accept(&self) -> std::io::Result<Option<(Box<dyn ClientStream>, PeerAddress)>> {
        Ok(match self {
            Self::OwnSocket(listener) => {
                let (stream, _) = listener.accept().await?;
                let own = rustix::process::geteuid().as_raw();
                // The folder is private; this holds where its mode was changed.
                let is_own = stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0);
                is_own.then(|| (Box::new(stream) as _, PeerAddress(None)))
            }
            Self::Socket(listener) => Some((Box::new(listener.accept().await?.0), PeerAddress(None))),
            Self::Loopback(listener) => {
                let (stream, address) = listener.accept().await?;
                Some((Box::new(stream), PeerAddress(Some(address.ip()))))
            }
        })
    }
}

/// Serves connections until the future is dropped.
pub(crate) async fn serve(acceptor: Acceptor, router: Router) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Aborts its tasks when this future is dropped.
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        match acceptor.accept().await {
            Ok(Some((stream, peer))) => {
                let router = router.clone().layer(Extension(peer));
                drop(tasks.spawn(serve_connection(stream, router, permit)));
            }
            Ok(None) => tracing::warn!("another user connected to the control socket and was refused"),
            Err(error) => {
                tracing::debug!(%error, "a connection of an operator was not accepted");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

async fn serve_connection(stream: Box<dyn ClientStream>, router: Router, _permit: OwnedSemaphorePermit) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // A client that breaks the protocol or is too slow loses its connection, and nobody else notices.
    drop(tokio::time::timeout(MAX_LIFE, connection).await);
}
