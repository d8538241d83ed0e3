//! Requests hop by hop: each hop is checked against the policy, resolved and sent. The host follows redirects itself.

use std::net::SocketAddr;

use bytes::Bytes;
use hyper::header::{ACCEPT_ENCODING, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT};
use hyper::{HeaderMap, Response, StatusCode};
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::excerpt::one_line;
use url::Url;

use super::body::{self, ResponseBody};
use super::call_network::{CallNetwork, NetError};
use super::connect::{ConnectionKey, OutboundBody, full_body};
use super::dispatch::{DispatchError, USER_AGENT_VALUE, build_request};
use super::{headers, recorded, secret_injection, trace};
use crate::bindings::host::http_client::{HttpRequest, HttpResponse};

/// Maximum length of a location and of `Retry-After` in a refusal, in characters.
const MAX_SHOWN_LOCATION: usize = 500;
const MAX_SHOWN_WAIT: usize = 60;
/// Maximum number of redirects.
const MAX_REDIRECTS: u32 = 5;
/// The content codings that [`body::collect`] decodes.
const ACCEPTED_CODINGS: &str = "gzip, deflate, br";
/// Maximum length of a URL, in bytes.
const MAX_URL: usize = 8 << 10;

/// The next hop of a request.
struct Hop {
    target: NetTarget,
    url: Url,
    headers: HeaderMap,
    body: Option<Bytes>,
}

// The futures below are boxed to stay small: one that holds all others moves as a whole at every step, and is too
// large for an allocator's fast path.

/// Runs a request of `http-client`: follows redirects, then reads and decodes the body.
pub(super) async fn fetch(network: &CallNetwork, request: HttpRequest) -> Result<HttpResponse, NetError> {
    let headers = headers::parse(&request.headers)?;
    let url = parse_url(None, &request.url).map_err(NetError::Invalid)?;
    let target = NetTarget::request(&request.method, &url).map_err(NetError::Invalid)?;
    if let Some(body) = &request.body {
        network.placeholders.check_body(body).map_err(NetError::Denied)?;
    }
    let mut hop = Box::new(Hop { target, url, headers, body: request.body.map(Bytes::from) });
    let mut redirects = 0;
    let mut answered = None;
    let response = loop {
        let sent = Box::pin(hop.send(network)).await;
        let response = sent.map_err(|error| after_answer(error, answered.as_deref()))?;
        let Some(next) = hop.follow_redirect(network, &response)? else { break response };
        answered = network.granted.service.is_some().then(|| describe_redirect(&response, &next.url));
        redirects += 1;
        if redirects > MAX_REDIRECTS {
            return Err(NetError::Transport(format!("more than {MAX_REDIRECTS} redirects")));
        }
        *hop = next;
    };
    let (mut parts, body) = response.into_parts();
    let body = body::collect(network, &mut parts.headers, body, request.max_response_bytes);
    let (body, truncated) = Box::pin(body).await?;
    Ok(HttpResponse {
        status: parts.status.as_u16(),
        url: secret_injection::scrub_text(network, hop.url.into()),
        headers: headers::to_guest(network, &parts.headers),
        body,
        truncated,
    })
}

/// Describes the redirect of a service: status, and path and query of the location.
fn describe_redirect(response: &Response<ResponseBody>, location: &Url) -> String {
    let query = location.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = one_line(&format!("{}{query}", location.path()), MAX_SHOWN_LOCATION);
    let wait = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
    let wait =
        wait.map(|wait| format!(" (retry after {})", one_line(wait, MAX_SHOWN_WAIT))).unwrap_or_default();
    format!("the service answered {} with the location {location}{wait}", response.status().as_u16())
}

/// Adds the response to the refusal of a redirect: the first request has run.
fn after_answer(error: NetError, answered: Option<&str>) -> NetError {
    let Some(answered) = answered else { return error };
    let with = |why: String| format!("{answered}, which is not followed: {why}");
    match error {
        NetError::Denied(why) => NetError::Denied(with(why)),
        NetError::Address(why) => NetError::Address(why.map_text(with)),
        NetError::Timeout | NetError::Invalid(_) | NetError::Transport(_) => error,
    }
}

/// Parses a URL, relative to `base` if given. The fragment never leaves the host.
fn parse_url(base: Option<&Url>, text: &str) -> Result<Url, String> {
    let shown = || toolbay_policy::excerpt::one_line(text, 200);
    if text.len() > MAX_URL {
        return Err(format!("a URL can have at most {MAX_URL} bytes"));
    }
    let url = match base {
        Some(base) => base.join(text),
        None => Url::parse(text),
    };
    let mut url = url.map_err(|e| format!("`{}` is not a valid URL: {e}", shown()))?;
    if url.as_str().len() > MAX_URL {
        return Err(format!("a URL can have at most {MAX_URL} bytes"));
    }
    url.set_fragment(None);
    Ok(url)
}

impl Hop {
    fn send(
        &self,
        network: &CallNetwork,
    ) -> impl Future<Output = Result<Response<ResponseBody>, NetError>> + Send {
        let body = self.body.clone().unwrap_or_default();
        let length = body.len();
        let mut headers = self.headers.clone();
        headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static(ACCEPTED_CODINGS));
        secret_injection::keep_readable(network, &mut headers, ACCEPTED_CODINGS);
        send_hop(network, &self.target, &self.url, headers, (full_body(body), length))
    }

    /// The next hop of a redirect response, by the rules of the Fetch standard; `None` for any other response.
    fn follow_redirect(
        &self,
        network: &CallNetwork,
        response: &Response<ResponseBody>,
    ) -> Result<Option<Self>, NetError> {
        let status = response.status();
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
        let broken = |why: &str| {
            NetError::Transport(format!("`{}` redirects to an invalid location: {why}", self.target.host()))
        };
        if secret_injection::scrub(network, location.as_bytes().to_vec()) != location.as_bytes() {
            // A secret is only sent in the headers and to the origins that the policy names. The location is kept
            // from the guest and the log.
            let host = self.target.host();
            let why = format!(
                "`{host}` redirects to a location that contains the value of a secret; the redirect is not followed"
            );
            return Err(NetError::Denied(why));
        }
        let location = std::str::from_utf8(location.as_bytes()).map_err(|_| broken("it is not UTF-8"))?;
        let url = parse_url(Some(&self.url), location).map_err(|e| broken(&e))?;
        let method = self.target.method();
        let as_get = match status {
            StatusCode::SEE_OTHER => method != "GET" && method != "HEAD",
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => method == "POST",
            _ => false,
        };
        let target = NetTarget::request(if as_get { "GET" } else { method }, &url).map_err(|why| {
            let to = toolbay_policy::excerpt::one_line(url.scheme(), 40);
            NetError::Denied(format!(
                "`{}` redirects to a `{to}` URL, which is not followed: {why}",
                self.target.host()
            ))
        })?;
        let (mut headers, mut body) = (self.headers.clone(), self.body.clone());
        if as_get {
            headers::remove_body_headers(&mut headers);
            body = None;
        }
        if !target.same_origin(&self.target) {
            headers::retain_cross_origin(&mut headers);
        }
        Ok(Some(Self { target, url, headers, body }))
    }
}

/// Sends one hop after all checks, with a span if the call is traced. Every request of every guest goes through this
/// function. `length` counts the body's bytes that are not counted while they are sent.
pub(super) async fn send_hop(
    network: &CallNetwork,
    target: &NetTarget,
    url: &Url,
    mut headers: HeaderMap,
    body: (OutboundBody, usize),
) -> Result<Response<ResponseBody>, NetError> {
    let span = trace::begin(network, target, url, &mut headers);
    let sent = send_checked(network, target, url, headers, body).await;
    if let Some(span) = span {
        trace::finish(span, &sent);
    }
    sent
}

async fn send_checked(
    network: &CallNetwork,
    target: &NetTarget,
    url: &Url,
    mut headers: HeaderMap,
    (body, length): (OutboundBody, usize),
) -> Result<Response<ResponseBody>, NetError> {
    let allowed = network.admit(target, url)?;
    network.count_request()?;
    network.count_bytes(length)?;
    let guard = network.count_connection()?;
    secret_injection::inject(network, &mut headers, url).map_err(NetError::Denied)?;
    headers.entry(USER_AGENT).or_insert(USER_AGENT_VALUE);
    let request = build_request(target, &*network.with_secret_query(target, url)?, headers, body)?;
    let key = ConnectionKey::new(network.user(), target, network.private_networks(allowed), network.route());
    let sent = match network.client().recorded.get() {
        Some(record) => {
            let hop = recorded::AdmittedHop { target, url, allowed, key, guard };
            Box::pin(recorded::send(network, record, hop, request)).await
        }
        None => {
            let check = |addresses: &[SocketAddr]| network.check_addresses(target, allowed, addresses);
            let guard = (guard, network.time_left(None));
            Box::pin(network.client().dispatch(request, key, &network.grantee.plugin, guard, check)).await
        }
    };
    sent.map_err(|unsent| match unsent {
        DispatchError::Net(error) => error,
        DispatchError::ConnectionLost(error) => failed(network, target, &error),
        DispatchError::UnknownAuthority(why) => network.unknown_authority(&why),
        DispatchError::NoCertificates(why) => {
            let text = format!(
                "no connection to `{}`: the host cannot read the certificates that it trusts",
                target.host()
            );
            NetError::Transport(network.grantee.advise(&text, why.into()))
        }
    })
}

fn failed(network: &CallNetwork, target: &NetTarget, error: &hyper::Error) -> NetError {
    NetError::Transport(format!("`{}` gave no response: {}", target.host(), body::error_text(network, error)))
}
