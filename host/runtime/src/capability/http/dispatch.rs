//! One request on its way, whoever sends it: a plugin, a service, the bridge, the host itself. Over a connection that is
//! kept for the same sender, or a new one to addresses of which every one was checked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::{self, Authority, PathAndQuery};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use toolbay_policy::capability::net::{Scheme, Target};
use toolbay_policy::name::PluginId;
use url::{Position, Url};

use super::Client;
use super::body::Inbound;
use super::connect::{Connection, Key, Outgoing};
use super::headers;
use super::session::{Lease, NetError};

/// What the host calls itself.
pub(super) const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("toolbay/", env!("CARGO_PKG_VERSION")));

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Unsent {
    /// It was not sent, or it cannot be used.
    Net(NetError),
    /// The peer, or the way to it, broke off. What it says may be the peer's words.
    Broken(hyper::Error),
}

impl From<NetError> for Unsent {
    fn from(error: NetError) -> Self {
        Self::Net(error)
    }
}

impl Client {
    /// Sends a request and returns when the head of its response is there. `looks_up` is whose look-ups are counted, `left`
    /// the time that is left to it; `check` is asked about all addresses that the host stands for, before any of them is connected to.
    pub(super) async fn dispatch(
        &self,
        mut request: Box<Request<Outgoing>>,
        key: Key,
        looks_up: &PluginId,
        (lease, left): (Lease, Duration),
        check: impl FnOnce(&[SocketAddr]) -> Result<(), NetError>,
    ) -> Result<Response<Inbound>, Unsent> {
        while let Some(mut connection) = self.pool.take(&key) {
            if !connection.ready().await {
                continue;
            }
            match connection.send(request).await {
                Ok(response) => return self.received(response, key, connection, lease),
                // The peer closed it while nobody was looking; nothing was sent.
                Err((_, Some(unsent))) => request = whole(unsent, key.scheme)?,
                Err((error, None)) => return Err(Unsent::Broken(error)),
            }
        }
        // In a box, as all that is rare: a future is as large as its largest part, and moved whole.
        let mut connection = Box::pin(self.open(&key, looks_up, left, check)).await?;
        match connection.send(request).await {
            Ok(response) => self.received(response, key, connection, lease),
            Err((error, _)) => Err(Unsent::Broken(error)),
        }
    }

    /// A new connection, to addresses that were checked.
    async fn open(
        &self,
        key: &Key,
        looks_up: &PluginId,
        left: Duration,
        check: impl FnOnce(&[SocketAddr]) -> Result<(), NetError>,
    ) -> Result<Connection, NetError> {
        let addresses = self.resolver.addresses(looks_up, &key.host, key.port).await?;
        check(&addresses)?;
        let tls = match key.scheme {
            Scheme::Https => Some(self.trust.config().await?),
            Scheme::Http | Scheme::Tcp | Scheme::Udp => None,
        };
        let place = self.places.take(&key.user, &self.pool, left).await?;
        Connection::open(&addresses, key, tls, place).await
    }

    fn received(
        &self,
        response: Response<hyper::body::Incoming>,
        key: Key,
        connection: Connection,
        lease: Lease,
    ) -> Result<Response<Inbound>, Unsent> {
        if response.status().is_informational() {
            return Err(NetError::Transport(format!("`{}` wants another protocol", key.host)).into());
        }
        if headers::bytes(response.headers()) > headers::MAX_BYTES {
            let most = headers::MAX_BYTES;
            return Err(NetError::Transport(format!(
                "`{}` sends more than {most} bytes of headers",
                key.host
            ))
            .into());
        }
        Ok(response.map(|body| Inbound::new(body, key, connection, Arc::clone(&self.pool), lease)))
    }
}

/// A request as it goes out: the URL with the host as it was compared with the rules, and no other `host` header. In a
/// box: it is passed on from future to future.
pub(super) fn request(
    target: &Target,
    url: &Url,
    mut headers: HeaderMap,
    body: Outgoing,
) -> Result<Box<Request<Outgoing>>, NetError> {
    let invalid = |what: &str| NetError::Invalid(format!("the {what} cannot be sent"));
    let mut request = Box::new(Request::new(body));
    *request.method_mut() = Method::from_bytes(target.method().as_bytes()).map_err(|_| invalid("method"))?;
    let host = match url.port() {
        Some(port) => format!("{}:{port}", target.host()),
        None => target.host().to_owned(),
    };
    let host = Bytes::from(host);
    let path = &url[Position::BeforePath..Position::AfterQuery];
    let path = PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(path.as_bytes()));
    *request.uri_mut() = uri(target.scheme(), host.clone(), path.ok()).ok_or_else(|| invalid("URL"))?;
    headers.insert(HOST, HeaderValue::from_maybe_shared(host).map_err(|_| invalid("host"))?);
    *request.headers_mut() = headers;
    Ok(request)
}

fn uri(scheme: Scheme, authority: Bytes, path: Option<PathAndQuery>) -> Option<Uri> {
    let mut parts = uri::Parts::default();
    parts.scheme = Some(uri::Scheme::try_from(scheme.name()).ok()?);
    parts.authority = Some(Authority::from_maybe_shared(authority).ok()?);
    parts.path_and_query = Some(path?);
    Uri::from_parts(parts).ok()
}

/// A request that was not sent, as [`request`] made it: each version of HTTP writes the host in one place, and takes it
/// out of the other.
fn whole(mut request: Box<Request<Outgoing>>, scheme: Scheme) -> Result<Box<Request<Outgoing>>, NetError> {
    let again =
        || NetError::Transport("the connection was closed, and the request cannot be sent again".to_owned());
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| again())?;
        request.headers_mut().insert(HOST, host);
    } else if let Some(host) = request.headers().get(HOST) {
        let authority = Bytes::copy_from_slice(host.as_bytes());
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = uri(scheme, authority, path).ok_or_else(again)?;
    }
    Ok(request)
}

#[cfg(all(test, target_os = "linux"))]
#[path = "rebinding_tests.rs"]
mod rebinding_tests;

/// The innermost reason of an error: hyper's own texts say little.
pub(super) fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
