//! Sends one request, of a plugin, a service, the MCP client or the host itself: over a pooled connection of the same
//! user, or a new one to addresses that were all checked.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::{self, Authority, PathAndQuery};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use toolbay_policy::capability::net::{NetTarget, Scheme};
use toolbay_policy::name::PluginId;
use toolbay_policy::route::OutboundRoute;
use url::{Position, Url};

use super::HttpClient;
use super::body::ResponseBody;
use super::call_network::{NetError, OpenConnectionGuard};
use super::connect::{ConnectionKey, OutboundBody, OutboundConnection, Route};
use super::headers;
use super::proxy::HttpProxy;
use super::resolve::{is_localhost, parse_ip_literal};

/// The `user-agent` of the host.
pub(super) const USER_AGENT_VALUE: HeaderValue =
    HeaderValue::from_static(concat!("toolbay/", env!("CARGO_PKG_VERSION")));

/// The error of a request without a response.
#[derive(Debug)]
pub(super) enum DispatchError {
    /// The request was not sent, or the response cannot be used.
    Net(NetError),
    /// The connection failed. The text can contain words of the peer.
    ConnectionLost(hyper::Error),
    /// No trusted authority vouches for the peer. The text has no advice.
    UnknownAuthority(String),
    /// The trusted certificates cannot be read. The text is for the operator.
    NoCertificates(String),
}

impl From<NetError> for DispatchError {
    fn from(error: NetError) -> Self {
        Self::Net(error)
    }
}

impl HttpClient {
    /// Sends a request and returns with the head of the response. The lookup counts for the plugin `looks_up`; `left`
    /// is the request's remaining time. `check` receives all addresses of the host before the client connects to any
    /// of them.
    pub(super) async fn dispatch(
        &self,
        mut request: Box<Request<OutboundBody>>,
        key: ConnectionKey,
        looks_up: &PluginId,
        (guard, left): (OpenConnectionGuard, Duration),
        check: impl FnOnce(&[SocketAddr]) -> Result<(), NetError>,
    ) -> Result<Response<ResponseBody>, DispatchError> {
        while let Some(mut connection) = self.pool.take(&key) {
            if !connection.wait_ready().await {
                continue;
            }
            match connection.send(request).await {
                Ok(response) => return self.accept_response(response, key, connection, guard),
                // The peer had closed the idle connection; no byte was sent.
                Err((_, Some(unsent))) => request = restore_host(unsent, key.scheme)?,
                Err((error, None)) => return Err(DispatchError::ConnectionLost(error)),
            }
        }
        // Boxed like every rare part: a future is as large as its largest part and moves as a whole.
        let mut connection = Box::pin(self.open_connection(&key, looks_up, left, check)).await?;
        match connection.send(request).await {
            Ok(response) => self.accept_response(response, key, connection, guard),
            Err((error, _)) => Err(DispatchError::ConnectionLost(error)),
        }
    }

    /// Opens a connection to checked addresses.
    async fn open_connection(
        &self,
        key: &ConnectionKey,
        looks_up: &PluginId,
        left: Duration,
        check: impl FnOnce(&[SocketAddr]) -> Result<(), NetError>,
    ) -> Result<OutboundConnection, DispatchError> {
        let proxy = self.find_proxy(key)?;
        let addresses = match &proxy {
            None => {
                let addresses = self.resolver.resolve(looks_up, &key.host, key.port).await?;
                check(&addresses)?;
                addresses
            }
            Some(proxy) => {
                // The proxy looks up names, but this one is known.
                let local = is_localhost(&key.host).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
                if let Some(ip) = parse_ip_literal(&key.host).or(local) {
                    check(&[(ip, key.port).into()])?;
                }
                proxy.addresses(&self.resolver, looks_up).await?
            }
        };
        let tls = match key.scheme {
            Scheme::Https => {
                let config = self.tls_roots.client_config(key.route.ca()).await;
                Some(config.map_err(DispatchError::NoCertificates)?)
            }
            Scheme::Http | Scheme::Tcp | Scheme::Udp => None,
        };
        let permit = self.limiter.acquire(&key.user, &self.pool, left).await?;
        OutboundConnection::open(&addresses, key, tls, proxy.as_ref(), permit).await
    }

    /// The proxy for a connection. A connection without TLS uses none, because the proxy could read and change it.
    fn find_proxy(&self, key: &ConnectionKey) -> Result<Option<HttpProxy>, NetError> {
        match (&key.route, key.scheme) {
            (Route::Operator(OutboundRoute { proxy: Some(proxy), .. }), Scheme::Https) => {
                Ok(Some(self.environment_proxies.find_named(proxy)))
            }
            (Route::Operator(OutboundRoute { proxy: None, .. }), Scheme::Https) => {
                self.environment_proxies.find(&key.host, key.port)
            }
            (Route::Direct, _) | (_, Scheme::Http | Scheme::Tcp | Scheme::Udp) => Ok(None),
        }
    }

    fn accept_response(
        &self,
        response: Response<hyper::body::Incoming>,
        key: ConnectionKey,
        connection: OutboundConnection,
        guard: OpenConnectionGuard,
    ) -> Result<Response<ResponseBody>, DispatchError> {
        if response.status().is_informational() {
            return Err(NetError::Transport(format!("`{}` requests a protocol upgrade", key.host)).into());
        }
        if headers::byte_len(response.headers()) > headers::MAX_BYTES {
            let max = headers::MAX_BYTES;
            return Err(NetError::Transport(format!(
                "`{}` sends more than {max} bytes of headers",
                key.host
            ))
            .into());
        }
        Ok(response.map(|body| ResponseBody::new(body, key, connection, Arc::clone(&self.pool), guard)))
    }
}

/// Builds the request: its URL has the host as the rules saw it, and no other `host` header is set. Boxed because it
/// passes through several futures.
pub(super) fn build_request(
    target: &NetTarget,
    url: &Url,
    mut headers: HeaderMap,
    body: OutboundBody,
) -> Result<Box<Request<OutboundBody>>, NetError> {
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
    *request.uri_mut() = build_uri(target.scheme(), host.clone(), path.ok()).ok_or_else(|| invalid("URL"))?;
    headers.insert(HOST, HeaderValue::from_maybe_shared(host).map_err(|_| invalid("host"))?);
    *request.headers_mut() = headers;
    Ok(request)
}

fn build_uri(scheme: Scheme, authority: Bytes, path: Option<PathAndQuery>) -> Option<Uri> {
    let mut parts = uri::Parts::default();
    parts.scheme = Some(uri::Scheme::try_from(scheme.name()).ok()?);
    parts.authority = Some(Authority::from_maybe_shared(authority).ok()?);
    parts.path_and_query = Some(path?);
    Uri::from_parts(parts).ok()
}

/// Restores an unsent request to the form that [`build_request`] gave it: HTTP/1 keeps the host in the header, HTTP/2
/// in the URI.
fn restore_host(
    mut request: Box<Request<OutboundBody>>,
    scheme: Scheme,
) -> Result<Box<Request<OutboundBody>>, NetError> {
    let again =
        || NetError::Transport("the connection is closed, and the request cannot be sent again".to_owned());
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| again())?;
        request.headers_mut().insert(HOST, host);
    } else if let Some(host) = request.headers().get(HOST) {
        let authority = Bytes::copy_from_slice(host.as_bytes());
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = build_uri(scheme, authority, path).ok_or_else(again)?;
    }
    Ok(request)
}

#[cfg(all(test, target_os = "linux"))]
#[path = "rebinding_tests.rs"]
mod rebinding_tests;

/// The innermost source of an error; hyper's own texts say little.
pub(super) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
