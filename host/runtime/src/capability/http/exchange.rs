//! One request after the other: each hop is asked about, looked up, checked and sent; redirects are followed by us.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{ACCEPT_ENCODING, HeaderValue, LOCATION, USER_AGENT};
use hyper::{HeaderMap, Response, StatusCode};
use toolbay_policy::capability::net::Target;
use url::Url;

use super::body::{self, Inbound};
use super::connect::{Key, Outgoing};
use super::dispatch::{AGENT, Unsent, request};
use super::session::{NetError, Session};
use super::{headers, recorded, seam};
use crate::engine::bindings::host::http_client::{HttpRequest, HttpResponse};

/// Redirects that are followed.
const MAX_REDIRECTS: u32 = 5;
/// The codings that [`body::collect`] reads.
const CODINGS: &str = "gzip, deflate, br";
/// Longest URL.
const MAX_URL: usize = 8 << 10;

/// What is sent next.
struct Hop {
    target: Target,
    url: Url,
    headers: HeaderMap,
    body: Option<Bytes>,
}

// Futures are in boxes below, each small: one that holds all others is moved whole at every step, and too large for what an
// allocator hands out quickly.

/// Fetches for `http-client`: redirects followed, the body read and decoded.
pub(super) async fn fetch(session: &Session, request: HttpRequest) -> Result<HttpResponse, NetError> {
    let headers = headers::read(&request.headers)?;
    let url = parse(None, &request.url).map_err(NetError::Invalid)?;
    let target = Target::request(&request.method, &url).map_err(NetError::Invalid)?;
    if let Some(body) = &request.body {
        session.tokens.check_body(body).map_err(NetError::Denied)?;
    }
    let mut hop = Box::new(Hop { target, url, headers, body: request.body.map(Bytes::from) });
    let mut redirects = 0;
    let response = loop {
        let response = Box::pin(hop.send(session)).await?;
        let Some(next) = hop.redirect(session, &response)? else { break response };
        redirects += 1;
        if redirects > MAX_REDIRECTS {
            return Err(NetError::Transport(format!("more than {MAX_REDIRECTS} redirects")));
        }
        *hop = next;
    };
    let (mut parts, body) = response.into_parts();
    let body = body::collect(session, &mut parts.headers, body, request.max_response_bytes);
    let (body, truncated) = Box::pin(body).await?;
    Ok(HttpResponse {
        status: parts.status.as_u16(),
        url: seam::text(session, hop.url.into()),
        headers: headers::show(session, &parts.headers),
        body,
        truncated,
    })
}

/// Reads a URL, or one relative to `base`. What is behind a `#` never leaves the host.
fn parse(base: Option<&Url>, text: &str) -> Result<Url, String> {
    let shown = || toolbay_policy::text::one_line(text, 200);
    if text.len() > MAX_URL {
        return Err(format!("a URL can have at most {MAX_URL} bytes"));
    }
    let url = match base {
        Some(base) => base.join(text),
        None => Url::parse(text),
    };
    let mut url = url.map_err(|e| format!("`{}` is no URL: {e}", shown()))?;
    if url.as_str().len() > MAX_URL {
        return Err(format!("a URL can have at most {MAX_URL} bytes"));
    }
    url.set_fragment(None);
    Ok(url)
}

impl Hop {
    fn send(&self, session: &Session) -> impl Future<Output = Result<Response<Inbound>, NetError>> + Send {
        let body = self.body.clone();
        let length = body.as_ref().map_or(0, Bytes::len);
        let body = Full::new(body.unwrap_or_default()).map_err(|never| match never {}).boxed_unsync();
        let mut headers = self.headers.clone();
        headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static(CODINGS));
        seam::keep_readable(session, &mut headers, CODINGS);
        send(session, &self.target, &self.url, headers, (body, length))
    }

    /// The hop that a response asks for, by the rules of the Fetch standard.
    fn redirect(&self, session: &Session, response: &Response<Inbound>) -> Result<Option<Self>, NetError> {
        let status = response.status();
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
        let broken =
            |why: &str| NetError::Transport(format!("`{}` redirects to nowhere: {why}", self.target.host()));
        if seam::scrub(session, location.as_bytes().to_vec()) != location.as_bytes() {
            // It goes in named headers to named origins, and nowhere else; nor is it told to the guest or the log.
            let host = self.target.host();
            let why = format!(
                "`{host}` redirects to an address with the value of a secret in it, which is not followed"
            );
            return Err(NetError::Denied(why));
        }
        let location = std::str::from_utf8(location.as_bytes()).map_err(|_| broken("no text"))?;
        let url = parse(Some(&self.url), location).map_err(|e| broken(&e))?;
        let method = self.target.method();
        let as_get = match status {
            StatusCode::SEE_OTHER => method != "GET" && method != "HEAD",
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => method == "POST",
            _ => false,
        };
        let target = Target::request(if as_get { "GET" } else { method }, &url).map_err(|why| {
            let to = toolbay_policy::text::one_line(url.scheme(), 40);
            NetError::Denied(format!(
                "`{}` redirects to a URL of `{to}` that is not followed: {why}",
                self.target.host()
            ))
        })?;
        let (mut headers, mut body) = (self.headers.clone(), self.body.clone());
        if as_get {
            headers::drop_body(&mut headers);
            body = None;
        }
        if !target.same_origin(&self.target) {
            headers::keep_safe(&mut headers);
        }
        Ok(Some(Self { target, url, headers, body }))
    }
}

/// Sends one hop, if it may be sent. All requests of all guests go through here. With the body comes the number of
/// its bytes that are not counted while they pass.
pub(super) async fn send(
    session: &Session,
    target: &Target,
    url: &Url,
    mut headers: HeaderMap,
    (body, length): (Outgoing, usize),
) -> Result<Response<Inbound>, NetError> {
    let allowed = session.admit(target, url)?;
    session.count_request()?;
    session.count_bytes(length)?;
    let lease = session.lease()?;
    seam::inject(session, &mut headers, url).map_err(NetError::Denied)?;
    headers.entry(USER_AGENT).or_insert(AGENT);
    let request = request(target, &*session.with_query(target, url)?, headers, body)?;
    let key = Key::new(session.user(), target, session.private(allowed));
    let sent = match session.client().recorded() {
        Some(record) => {
            let hop = recorded::Hop { target, url, allowed, key, lease };
            Box::pin(recorded::send(session, record, hop, request)).await
        }
        None => {
            let check = |addresses: &[SocketAddr]| session.check(target, allowed, addresses);
            let lease = (lease, session.time(None));
            Box::pin(session.client().dispatch(request, key, &session.who.plugin, lease, check)).await
        }
    };
    sent.map_err(|unsent| match unsent {
        Unsent::Net(error) => error,
        Unsent::Broken(error) => failed(session, target, &error),
    })
}

fn failed(session: &Session, target: &Target, error: &hyper::Error) -> NetError {
    NetError::Transport(format!("`{}` gave no response: {}", target.host(), body::cause(session, error)))
}
