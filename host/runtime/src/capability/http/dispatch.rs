//! One request on its way, whoever sends it: a plugin, a service, the bridge, the host itself. Over a connection that is
//! kept for the same sender, or a new one to addresses of which every one was checked.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::{HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response};
use toolbay_core::name::PluginId;
use toolbay_core::net::{Scheme, Target};
use url::Url;

use super::Client;
use super::body::Inbound;
use super::connect::{Connection, Key, Outgoing};
use super::headers;
use super::session::{Lease, NetError};

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Unsent {
    /// It was not sent, or it can not be used.
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
    /// Sends a request and returns when the head of its response is there. `looks_up` is whose look-ups are counted;
    /// `check` is asked about all addresses that the host stands for, before any of them is connected to.
    pub(super) async fn dispatch(
        &self,
        mut request: Request<Outgoing>,
        key: Key,
        looks_up: &PluginId,
        lease: Lease,
        check: impl FnOnce(&[SocketAddr]) -> Result<(), NetError>,
    ) -> Result<Response<Inbound>, Unsent> {
        let (uri, host) = (request.uri().clone(), request.headers().get(HOST).cloned());
        while let Some(mut connection) = self.pool.take(&key) {
            if !connection.ready().await {
                continue;
            }
            match connection.send(request).await {
                Ok(response) => return self.received(response, key, connection, lease),
                // The peer closed it while nobody was looking; nothing was sent.
                Err((_, Some(unsent))) => request = unsent,
                Err((error, None)) => return Err(Unsent::Broken(error)),
            }
            // The next connection may speak the other version of HTTP, which writes these differently.
            *request.uri_mut() = uri.clone();
            host.clone().map(|host| request.headers_mut().insert(HOST, host));
        }
        let addresses = self.resolver.addresses(looks_up, &key.host, key.port).await?;
        check(&addresses)?;
        let tls = match key.scheme {
            Scheme::Https => Some(self.trust.config().await?),
            Scheme::Http | Scheme::Tcp | Scheme::Udp => None,
        };
        let mut connection = Connection::open(&addresses, &key, tls, self.place().await?).await?;
        match connection.send(request).await {
            Ok(response) => self.received(response, key, connection, lease),
            Err((error, _)) => Err(Unsent::Broken(error)),
        }
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

/// A request as it goes out: the URL with the host as it was compared with the rules, and no other `host` header.
pub(super) fn request(
    target: &Target,
    url: &Url,
    mut headers: HeaderMap,
    body: Outgoing,
) -> Result<Request<Outgoing>, NetError> {
    let invalid = |what: &str| NetError::Invalid(format!("the {what} can not be sent"));
    let mut request = Request::new(body);
    *request.method_mut() = Method::from_bytes(target.method().as_bytes()).map_err(|_| invalid("method"))?;
    let uri = uri(target, url).ok_or_else(|| invalid("URL"))?;
    let host = uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
    headers.insert(HOST, HeaderValue::from_str(&host).map_err(|_| invalid("host"))?);
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

fn uri(target: &Target, url: &Url) -> Option<hyper::Uri> {
    let authority = match url.port() {
        Some(port) => format!("{}:{port}", target.host()),
        None => target.host().to_owned(),
    };
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    hyper::Uri::builder()
        .scheme(target.scheme().name())
        .authority(authority)
        .path_and_query(path)
        .build()
        .ok()
}
