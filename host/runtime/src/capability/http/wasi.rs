//! `wasi:http/outgoing-handler` through the same client, under the same checks and limits.
//!
//! Redirects and codings are the guest's business here: each request it sends is judged anew, and bodies pass as
//! they are, counted. What is refused is `HTTP-request-denied`, or `destination-IP-prohibited` for an address; the
//! reason is in the audit.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::{HeaderMap, Request, Response};
use toolbay_policy::capability::net::Target;
use url::Url;
use wasmtime_wasi_http::{
    Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpHooks,
};

use super::body::{self, Inbound};
use super::session::{NetError, Session};
use super::{exchange, headers, seam};
use crate::capability::Capabilities;
use crate::capability::secrets::Scrubber;

/// Bytes that a guest writes into a body at once, and with it what waits in memory for a slow peer.
const CHUNK: usize = 64 << 10;

/// The context of a guest: what its headers may take in memory.
pub(crate) fn context() -> WasiHttpCtx {
    let mut context = WasiHttpCtx::new();
    context.set_field_size_limit(headers::MAX_BYTES);
    context
}

impl WasiHttpHooks for Capabilities {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        // `content-length` is checked against the body, see `forward`.
        Arc::new(|name| *name != CONTENT_LENGTH && headers::is_forbidden(name))
    }

    fn set_host_header(&mut self) -> bool {
        false
    }

    fn p2_outgoing_body_buffer_chunks(&mut self) -> usize {
        1
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Sent, Error>> + Send> {
        let session = self.session();
        Box::new(async move {
            let session = session.ok_or(Error::HttpRequestDenied)?;
            let response = forward(session.clone(), request, options.unwrap_or_default()).await;
            let response = response.map_err(|error| told(&session, seam::error(&session, error)))?;
            Ok((response, Box::new(std::future::ready(Ok(()))) as Box<dyn Future<Output = _> + Send>))
        })
    }
}

/// A response, and what goes on beside it: nothing, the connection is driven elsewhere.
type Sent = (Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>);

/// The error as the interface has it. It has no words for a refusal: those are appended to the result of the call.
fn told(session: &Session, error: NetError) -> Error {
    if let NetError::Denied(text) | NetError::Address(text) = &error {
        session.who.unheard(text);
    }
    shown(error)
}

fn shown(error: NetError) -> Error {
    match error {
        NetError::Denied(_) => Error::HttpRequestDenied,
        NetError::Address(_) => Error::DestinationIpProhibited,
        NetError::Timeout => Error::ConnectionTimeout,
        NetError::Invalid(why) | NetError::Transport(why) => Error::InternalError(Some(why)),
    }
}

async fn forward(
    session: Session,
    request: Request<WasiBody>,
    options: RequestOptions,
) -> Result<Response<WasiBody>, NetError> {
    let (mut parts, body) = request.into_parts();
    let length = parts.headers.remove(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    headers::check(&parts.headers)?;
    seam::keep_readable(&session, &mut parts.headers, "identity");
    let url = Url::parse(&parts.uri.to_string()).map_err(|e| NetError::Invalid(format!("no URL: {e}")))?;
    let target = Target::request(parts.method.as_str(), &url).map_err(NetError::Invalid)?;
    let body = Outbound { body, session: session.clone(), length, sent: 0 };
    let body = body.map_err(Into::into).boxed_unsync();
    let asked = options.first_byte_timeout.map(|first| first + options.connect_timeout.unwrap_or_default());
    let response = exchange::send(&session, &target, &url, parts.headers, (body, 0));
    let response =
        tokio::time::timeout(session.time(asked), response).await.map_err(|_| NetError::Timeout)??;
    let (mut parts, body) = response.into_parts();
    let coded = !body.is_end_stream() && body::is_coded(&parts.headers);
    if coded && session.tokens.any() {
        return Err(body::unreadable());
    }
    parts.headers = scrub(&session, &parts.headers);
    let scrubber = Scrubber::new(&session.tokens, session.redactor());
    let pause = options.between_bytes_timeout;
    let body = Passing { body, coded, timer: None, pause, scrubber, session, trailers: None, ended: false };
    Ok(Response::from_parts(parts, body.boxed_unsync()))
}

fn scrub(session: &Session, headers: &HeaderMap) -> HeaderMap {
    let clean =
        |value: &HeaderValue| HeaderValue::from_bytes(&seam::scrub(session, value.as_bytes().to_vec())).ok();
    headers.iter().filter_map(|(name, value)| Some((name.clone(), clean(value)?))).collect()
}

/// A guest's body on its way out: counted, of the length it was said to have, without trailers and without empty
/// parts, which cost nothing to write and would pile up.
struct Outbound {
    body: WasiBody,
    session: Session,
    length: Option<u64>,
    sent: u64,
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = NetError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NetError>>> {
        let wrong = |why: &str| Poll::Ready(Some(Err(NetError::Invalid(why.to_owned()))));
        loop {
            let data = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame.into_data().ok(),
                Some(Err(_)) => return wrong("the body was not finished"),
                None => None,
            };
            let Some(data) = data else {
                return match self.length {
                    Some(length) if length != self.sent => {
                        wrong("the body is shorter than its `content-length`")
                    }
                    _ => Poll::Ready(None),
                };
            };
            if data.is_empty() {
                continue;
            }
            self.sent += data.len() as u64;
            if self.length.is_some_and(|length| self.sent > length) {
                return wrong("the body is longer than its `content-length`");
            }
            let counted = self.session.count_bytes(data.len());
            return Poll::Ready(Some(counted.map(|()| Frame::data(data))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.length.is_none_or(|length| length == self.sent)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(|| self.body.size_hint(), |length| SizeHint::with_exact(length - self.sent))
    }
}

/// A response's body on its way to the guest: counted, and not slower than the guest asked for.
struct Passing {
    body: Inbound,
    /// Whether it is in a coding, so that no secret could be found in it.
    coded: bool,
    session: Session,
    scrubber: Scrubber,
    pause: Option<Duration>,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    trailers: Option<HeaderMap>,
    ended: bool,
}

impl Passing {
    /// What is left when the body has ended: what was held back, then the trailers.
    fn rest(&mut self) -> Option<Frame<Bytes>> {
        if !std::mem::replace(&mut self.ended, true) {
            let held = self.scrubber.end();
            if !held.is_empty() {
                return Some(Frame::data(held));
            }
        }
        self.trailers.take().map(Frame::trailers)
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if self.ended {
                return Poll::Ready(self.rest().map(Ok));
            }
            // The call got a stand-in since, and the server may say here what it hears elsewhere.
            if self.coded && self.session.tokens.any() {
                return Poll::Ready(Some(Err(Error::HttpResponseContentCoding(None))));
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                let Some(pause) = self.pause else { return Poll::Pending };
                let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
                ready!(timer.as_mut().poll(cx));
                return Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
            };
            self.timer = None;
            let frame = match frame {
                None => return Poll::Ready(self.rest().map(Ok)),
                Some(Err(_)) => return Poll::Ready(Some(Err(Error::HttpResponseIncomplete))),
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(data) => {
                    if self.session.count_bytes(data.len()).is_err() {
                        return Poll::Ready(Some(Err(Error::HttpResponseBodySize(None))));
                    }
                    let data = self.scrubber.push(data);
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    self.trailers = Some(scrub(&self.session, &trailers));
                }
            }
        }
    }
}
