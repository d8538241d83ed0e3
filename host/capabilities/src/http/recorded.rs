//! Recorded HTTP for tests: an embedder's port that answers requests from a recording, or records responses of the
//! network.
//!
//! The recorder sits behind the policy: it sees a request only after the rules, the limits and the secret checks.
//! Names are resolved and checked only when the network is used.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{ACCEPT_ENCODING, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use toolbay_policy::capability::net::{AddressScope, NetTarget};
use url::Url;

use super::body::ResponseBody;
use super::call_network::{CallNetwork, NetError, OpenConnectionGuard};
use super::connect::{ConnectionKey, OutboundBody, full_body};
use super::dispatch::DispatchError;
use super::resolve::parse_ip_literal;
use super::{headers, secret_injection};

/// A recorder in front of the network, for requests of plugins and services. It replays responses or records those of
/// the network. `HostBuilder::recorded_http` sets one.
///
/// Requests of the host itself (keys, MCP servers) and raw sockets bypass it.
pub trait RecordedHttp: Send + Sync + fmt::Debug {
    /// Returns the recorded response to a request; `None` sends the request to the network.
    ///
    /// # Errors
    /// The error that the plugin gets, as for a failed connection.
    fn replay(&self, request: &RecordedRequest) -> Result<Option<RecordedResponse>, String>;

    /// Records a response of the network.
    fn record(&self, request: &RecordedRequest, response: &RecordedResponse);
}

/// A request that passed the policy, before secret injection, without its header fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The method, such as `GET`.
    pub method: String,
    /// The whole URL, without a fragment.
    pub url: String,
    /// The body; empty when the request has none.
    pub body: Vec<u8>,
}

/// A response with the values of secrets redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResponse {
    /// The status code.
    pub status: u16,
    /// The header fields in order, repeated fields included.
    pub headers: Vec<(String, String)>,
    /// The whole body, in the coding that `content-encoding` names.
    pub body: Vec<u8>,
}

/// A hop that passed the policy.
pub(super) struct AdmittedHop<'a> {
    pub(super) target: &'a NetTarget,
    pub(super) url: &'a Url,
    pub(super) allowed: AddressScope,
    pub(super) key: ConnectionKey,
    pub(super) guard: OpenConnectionGuard,
}

/// Replays a recorded response, or sends the request and records the response. Reads the whole request body first.
pub(super) async fn send(
    network: &CallNetwork,
    recorded: &Arc<dyn RecordedHttp>,
    hop: AdmittedHop<'_>,
    request: Box<Request<OutboundBody>>,
) -> Result<Response<ResponseBody>, DispatchError> {
    let AdmittedHop { target, url, allowed, key, guard } = hop;
    // An IP address in the URL can be checked without a lookup.
    if let Some(address) = parse_ip_literal(target.host()) {
        network.check_addresses(target, allowed, &[SocketAddr::new(address, target.port())])?;
    }
    let (mut head, body) = request.into_parts();
    // The body counts against the limits of the call while it is read.
    let body = body.collect().await.map_err(|error| match error.downcast::<NetError>() {
        Ok(error) => *error,
        Err(error) => NetError::Invalid(error.to_string()),
    })?;
    let body = body.to_bytes();
    let asked =
        RecordedRequest { method: target.method().to_owned(), url: url.to_string(), body: body.to_vec() };
    if let Some(recording) = recorded.replay(&asked).map_err(NetError::Transport)? {
        return Ok(to_response(recording, guard)?);
    }
    // People read recordings, and a secret cannot be found in an encoded body.
    head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let check = |addresses: &[SocketAddr]| network.check_addresses(target, allowed, addresses);
    let sent = network.client().dispatch(
        Box::new(Request::from_parts(head, full_body(body))),
        key,
        &network.grantee.plugin,
        (guard, network.time_left(None)),
        check,
    );
    let (head, body) = sent.await?.into_parts();
    let (left, limit) = network.bytes_left();
    let max = usize::try_from(left).unwrap_or(usize::MAX);
    let body = Limited::new(body, max).collect().await.map_err(|error| match error.is::<hyper::Error>() {
        true => NetError::Transport(format!("the response ended early: {error}")),
        false => NetError::Denied(network.limit_error(limit)),
    })?;
    let response = RecordedResponse {
        status: head.status.as_u16(),
        headers: headers::to_text(network, &head.headers)
            .map(|(name, value)| (name.as_str().to_owned(), value))
            .collect(),
        body: secret_injection::scrub(network, body.to_bytes().to_vec()),
    };
    recorded.record(&asked, &response);
    Ok(to_response(response, OpenConnectionGuard::uncounted())?)
}

/// Converts a recorded response to one as the network returns it.
fn to_response(
    recording: RecordedResponse,
    guard: OpenConnectionGuard,
) -> Result<Response<ResponseBody>, NetError> {
    let broken = |what: &str| NetError::Transport(format!("the recorded response has an invalid {what}"));
    let mut response = Response::new(ResponseBody::replayed(Bytes::from(recording.body), guard));
    *response.status_mut() = StatusCode::from_u16(recording.status).map_err(|_| broken("status"))?;
    for (name, value) in recording.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| broken("header name"))?;
        let value = HeaderValue::from_str(&value).map_err(|_| broken("header value"))?;
        response.headers_mut().append(name, value);
    }
    Ok(response)
}
