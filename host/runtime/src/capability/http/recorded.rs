//! Requests that are answered from a record instead of the network, or kept in one: a port of the embedder's, for tests.
//!
//! It stands behind the policy, not before it: a request gets here when the rules, the limits and the secrets' places have
//! let it through. What a name leads to is looked up and judged only where the network is used.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ACCEPT_ENCODING, HeaderName, HeaderValue};
use hyper::{HeaderMap, Request, Response, StatusCode};
use toolbay_policy::capability::net::{Allowed, Target};
use url::Url;

use super::body::Inbound;
use super::connect::{Key, Outgoing};
use super::dispatch::Unsent;
use super::resolve::literal;
use super::seam;
use super::session::{Lease, NetError, Session};

/// Stands in front of the network for the requests of plugins and services: answers them from a record, or hears what the
/// network answered. [`crate::HostBuilder::recorded_http`] puts one in.
///
/// What the host asks for itself (keys, other MCP servers) does not come here, nor do raw sockets.
pub trait RecordedHttp: Send + Sync + fmt::Debug {
    /// The response to a request; `None`: it goes to the network.
    ///
    /// # Errors
    /// What the plugin is told in place of a response, as if the connection had failed.
    fn answer(&self, request: &RecordedRequest) -> Result<Option<RecordedResponse>, String>;

    /// Hears of a response that came from the network.
    fn received(&self, request: &RecordedRequest, response: &RecordedResponse);
}

/// A request that was let through, before the values of secrets were put into it; its header fields are not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The method, such as `GET`.
    pub method: String,
    /// The whole URL, without a fragment.
    pub url: String,
    /// The body; empty where there is none.
    pub body: Vec<u8>,
}

/// A response, with the values of secrets taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResponse {
    /// The status code.
    pub status: u16,
    /// The header fields, each as often as it came.
    pub headers: Vec<(String, String)>,
    /// The whole body, in the coding that `content-encoding` names.
    pub body: Vec<u8>,
}

/// One hop that was let through.
pub(super) struct Hop<'a> {
    pub(super) target: &'a Target,
    pub(super) url: &'a Url,
    pub(super) allowed: Allowed,
    pub(super) key: Key,
    pub(super) lease: Lease,
}

/// Answers from the record, or sends and tells the record. The request's body is read to its end first.
pub(super) async fn send(
    session: &Session,
    recorded: &Arc<dyn RecordedHttp>,
    hop: Hop<'_>,
    request: Box<Request<Outgoing>>,
) -> Result<Response<Inbound>, Unsent> {
    let Hop { target, url, allowed, key, lease } = hop;
    // An address that stands in the URL needs no look-up to be judged.
    if let Some(address) = literal(target.host()) {
        session.check(target, allowed, &[SocketAddr::new(address, target.port())])?;
    }
    let (mut head, body) = request.into_parts();
    // Counted while it passes, so that the limits of the call bound it.
    let body = body.collect().await.map_err(|error| match error.downcast::<NetError>() {
        Ok(error) => *error,
        Err(error) => NetError::Invalid(error.to_string()),
    })?;
    let body = body.to_bytes();
    let asked =
        RecordedRequest { method: target.method().to_owned(), url: url.to_string(), body: body.to_vec() };
    if let Some(answer) = recorded.answer(&asked).map_err(NetError::Transport)? {
        return Ok(replayed(answer, lease)?);
    }
    // A record is read by people, and a value in a coding is not found in it.
    head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let check = |addresses: &[SocketAddr]| session.check(target, allowed, addresses);
    let sent = session.client().dispatch(
        Box::new(Request::from_parts(head, body)),
        key,
        &session.who.plugin,
        (lease, session.time(None)),
        check,
    );
    let (head, body) = sent.await?.into_parts();
    let (left, limit) = session.bytes_left();
    let most = usize::try_from(left).unwrap_or(usize::MAX);
    let body =
        Limited::new(body, most).collect().await.map_err(|error| match error.is::<hyper::Error>() {
            true => NetError::Transport(format!("the response broke off: {error}")),
            false => NetError::Denied(session.limit(limit)),
        })?;
    let response = RecordedResponse {
        status: head.status.as_u16(),
        headers: shown(session, &head.headers),
        body: seam::scrub(session, body.to_bytes().to_vec()),
    };
    recorded.received(&asked, &response);
    Ok(replayed(response, Lease::of_the_host())?)
}

fn shown(session: &Session, headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |value: &HeaderValue| {
        String::from_utf8_lossy(&seam::scrub(session, value.as_bytes().to_vec())).into_owned()
    };
    headers.iter().map(|(name, field)| (name.as_str().to_owned(), value(field))).collect()
}

/// A response as the network would have given it.
fn replayed(answer: RecordedResponse, lease: Lease) -> Result<Response<Inbound>, NetError> {
    let broken = |what: &str| NetError::Transport(format!("the recorded response has {what} that is none"));
    let mut response = Response::new(Inbound::replayed(Bytes::from(answer.body), lease));
    *response.status_mut() = StatusCode::from_u16(answer.status).map_err(|_| broken("a status"))?;
    for (name, value) in answer.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| broken("a header name"))?;
        let value = HeaderValue::from_str(&value).map_err(|_| broken("a header value"))?;
        response.headers_mut().append(name, value);
    }
    Ok(response)
}
