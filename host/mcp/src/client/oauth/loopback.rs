//! The redirect address of an authorization: a listener on 127.0.0.1 that lives as long as the authorization (RFC 8252,
//! section 7.3). Any program on this machine can connect, so only a request with the right `state` counts, connections
//! are few and short, and nothing of a request is sent back.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

use super::OAuthError;
use super::authorization::Authorization;

/// The path of the redirect address.
const PATH: &str = "/callback";
/// Most open connections. Browsers open a few ahead.
const MAX_CONNECTIONS: usize = 16;
/// Most connections of one authorization.
const MAX_ALL_CONNECTIONS: usize = 1000;
/// Lifetime of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the head of a request.
const MAX_HEAD: usize = 32 << 10;

/// Listens for the browser.
#[derive(Debug)]
pub(super) struct LoopbackListener {
    listener: TcpListener,
    pub(super) redirect_uri: String,
}

impl LoopbackListener {
    /// Listens on a port. `required` must be free; otherwise `preferred` is used if it is free.
    pub(super) async fn bind(required: Option<u16>, preferred: Option<u16>) -> Result<Self, OAuthError> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let bound = match (required, preferred) {
            (Some(port), _) => bind(port).await,
            (None, Some(port)) => match bind(port).await {
                Ok(listener) => Ok(listener),
                Err(_) => bind(0).await,
            },
            (None, None) => bind(0).await,
        };
        let fail =
            |e: std::io::Error| OAuthError::new(format!("cannot listen on 127.0.0.1 for the browser: {e}"));
        let listener = bound.map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        Ok(Self { listener, redirect_uri: format!("http://127.0.0.1:{port}{PATH}") })
    }

    /// The port of a redirect address of an earlier listener.
    pub(super) fn port_of(redirect_uri: &str) -> Option<u16> {
        redirect_uri.strip_prefix("http://127.0.0.1:")?.strip_suffix(PATH)?.parse().ok()
    }

    /// Waits for the query of the answer.
    pub(super) async fn wait_answer(&self, authorization: &Authorization) -> Result<String, OAuthError> {
        let mut open = FuturesUnordered::new();
        let mut accepted = 0;
        loop {
            tokio::select! {
                Some(answer) = open.next() => if let Some(query) = answer { return Ok(query) },
                connection = self.listener.accept(), if open.len() < MAX_CONNECTIONS => {
                    accepted += 1;
                    if accepted > MAX_ALL_CONNECTIONS {
                        return Err(OAuthError::new("too many requests to the redirect address".to_owned()));
                    }
                    // A failed connection is the loss of its client.
                    if let Ok((stream, _)) = connection {
                        open.push(serve(stream, authorization));
                    }
                }
            }
        }
    }
}

/// Answers the requests of one connection. Returns the query of the answer, if it was among them.
async fn serve(stream: TcpStream, authorization: &Authorization) -> Option<String> {
    let found = Mutex::new(None);
    let service = service_fn(|request: Request<Incoming>| {
        let query =
            request.uri().query().filter(|query| authorization.is_answer(query)).map(ToOwned::to_owned);
        let fits = request.method() == Method::GET && request.uri().path() == PATH;
        let response = match query.filter(|_| fits) {
            Some(query) => {
                *found.lock() = Some(query);
                plain(StatusCode::OK, "Toolbay has the answer. You can close this window.\n")
            }
            None => plain(StatusCode::NOT_FOUND, "Nothing is here.\n"),
        };
        async { Ok::<_, Infallible>(response) }
    });
    let mut builder = http1::Builder::new();
    let served =
        builder.keep_alive(false).max_buf_size(MAX_HEAD).serve_connection(TokioIo::new(stream), service);
    // Whether the browser has read the page does not matter.
    drop(tokio::time::timeout(CONNECTION_TIMEOUT, served).await);
    found.into_inner()
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
