//! `wasi:http/outgoing-handler` through the same client, with the same checks and limits.
//!
//! The guest handles redirects and content codings: each of its requests is checked, and bodies pass unchanged and
//! counted. A refusal is `HTTP-request-denied`, or `destination-IP-prohibited` for an address; the audit has the
//! reason.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::{HeaderMap, Request, Response};
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::refusal::PolicyRefusal;
use url::Url;
use wasmtime_wasi_http::{
    Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks,
    WasiHttpView,
};

use super::body::{self, ResponseBody};
use super::call_network::{CallNetwork, NetError};
use super::{exchange, headers, secret_injection};
use crate::Capabilities;
use crate::secrets::Scrubber;
use crate::state::GuestState;

/// Chunk size of a guest's request body, which also bounds the buffer for a slow peer.
const CHUNK: usize = 64 << 10;

/// Creates the context of a guest, with the memory limit of its headers.
pub(crate) fn context() -> WasiHttpCtx {
    let mut context = WasiHttpCtx::new();
    context.set_field_size_limit(headers::MAX_BYTES);
    context
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.capabilities, table: &mut self.table, ctx: &mut self.http }
    }
}

impl WasiHttpHooks for Capabilities {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        // [`forward`] checks `content-length` against the body.
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

    fn p3_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<HookResponse, Error>> + Send> {
        let network = self.network();
        Box::new(async move {
            let network = network.ok_or(Error::HttpRequestDenied)?;
            let response = forward(network.clone(), request, options.unwrap_or_default()).await;
            let response = response
                .map_err(|error| report_error(&network, secret_injection::scrub_error(&network, error)))?;
            Ok((response, Box::new(std::future::ready(Ok(()))) as Box<dyn Future<Output = _> + Send>))
        })
    }
}

/// A response, and its background task: none, since the connection drives itself.
type HookResponse = (Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>);

/// Converts an error. The interface has no text for a refusal, so the reason is appended to the result of the call.
fn report_error(network: &CallNetwork, error: NetError) -> Error {
    if let NetError::Denied(text) | NetError::Address(PolicyRefusal { text, .. }) = &error {
        network.grantee.append_refusal(text);
    }
    to_wasi_error(error)
}

fn to_wasi_error(error: NetError) -> Error {
    match error {
        NetError::Denied(_) => Error::HttpRequestDenied,
        NetError::Address(_) => Error::DestinationIpProhibited,
        NetError::Timeout => Error::ConnectionTimeout,
        NetError::Invalid(why) | NetError::Transport(why) => Error::InternalError(Some(why)),
    }
}

async fn forward(
    network: CallNetwork,
    request: Request<WasiBody>,
    options: RequestOptions,
) -> Result<Response<WasiBody>, NetError> {
    let (mut parts, body) = request.into_parts();
    let length = parts.headers.remove(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    headers::check(&parts.headers)?;
    secret_injection::keep_readable(&network, &mut parts.headers, "identity");
    let url = Url::parse(&parts.uri.to_string())
        .map_err(|e| NetError::Invalid(format!("the URL is invalid: {e}")))?;
    let target = NetTarget::request(parts.method.as_str(), &url).map_err(NetError::Invalid)?;
    let body = GuestRequestBody { body, network: network.clone(), length, sent: 0 };
    let body = body.map_err(Into::into).boxed_unsync();
    let asked = options.first_byte_timeout.map(|first| first + options.connect_timeout.unwrap_or_default());
    let response = exchange::send_hop(&network, &target, &url, parts.headers, (body, 0));
    let response =
        tokio::time::timeout(network.time_left(asked), response).await.map_err(|_| NetError::Timeout)??;
    let (mut parts, body) = response.into_parts();
    let coded = !body.is_end_stream() && body::has_content_coding(&parts.headers);
    if coded && network.placeholders.has_any() {
        return Err(body::unsearchable_coding());
    }
    parts.headers = scrub_headers(&network, &parts.headers);
    let scrubber = Scrubber::new(&network.placeholders, network.redactor());
    let pause = options.between_bytes_timeout;
    let body = GuestResponseBody {
        body,
        is_encoded: coded,
        timer: None,
        between_bytes_timeout: pause,
        scrubber,
        network,
        trailers: None,
        ended: false,
    };
    Ok(Response::from_parts(parts, body.boxed_unsync()))
}

fn scrub_headers(network: &CallNetwork, headers: &HeaderMap) -> HeaderMap {
    let clean = |value: &HeaderValue| {
        HeaderValue::from_bytes(&secret_injection::scrub(network, value.as_bytes().to_vec())).ok()
    };
    headers.iter().filter_map(|(name, value)| Some((name.clone(), clean(value)?))).collect()
}

/// The body of a guest's request: counted, and of the declared length. Trailers are dropped. So are empty chunks,
/// which cost the guest nothing and would pile up.
struct GuestRequestBody {
    body: WasiBody,
    network: CallNetwork,
    length: Option<u64>,
    sent: u64,
}

impl Body for GuestRequestBody {
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
                Some(Err(_)) => return wrong("the request body was not finished"),
                None => None,
            };
            let Some(data) = data else {
                return match self.length {
                    Some(length) if length != self.sent => {
                        wrong("the request body is shorter than its `content-length`")
                    }
                    _ => Poll::Ready(None),
                };
            };
            if data.is_empty() {
                continue;
            }
            self.sent += data.len() as u64;
            if self.length.is_some_and(|length| self.sent > length) {
                return wrong("the request body is longer than its `content-length`");
            }
            let counted = self.network.count_bytes(data.len());
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

/// The body of a response for the guest: counted, and limited by the guest's timeout between bytes.
struct GuestResponseBody {
    body: ResponseBody,
    /// Whether the body has a content coding, in which secrets cannot be found.
    is_encoded: bool,
    network: CallNetwork,
    scrubber: Scrubber,
    between_bytes_timeout: Option<Duration>,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    trailers: Option<HeaderMap>,
    ended: bool,
}

impl GuestResponseBody {
    /// The frames after the end of the body: the pending bytes of the scrubber, then the trailers.
    fn final_frame(&mut self) -> Option<Frame<Bytes>> {
        if !std::mem::replace(&mut self.ended, true) {
            let held = self.scrubber.finish();
            if !held.is_empty() {
                return Some(Frame::data(held));
            }
        }
        self.trailers.take().map(Frame::trailers)
    }
}

impl Body for GuestResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if self.ended {
                return Poll::Ready(self.final_frame().map(Ok));
            }
            // The call received a placeholder after this body started, and the server can echo the value here.
            if self.is_encoded && self.network.placeholders.has_any() {
                return Poll::Ready(Some(Err(Error::HttpResponseContentCoding(None))));
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                let Some(pause) = self.between_bytes_timeout else { return Poll::Pending };
                let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
                ready!(timer.as_mut().poll(cx));
                return Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
            };
            self.timer = None;
            let frame = match frame {
                None => return Poll::Ready(self.final_frame().map(Ok)),
                Some(Err(_)) => return Poll::Ready(Some(Err(Error::HttpResponseIncomplete))),
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(data) => {
                    if self.network.count_bytes(data.len()).is_err() {
                        return Poll::Ready(Some(Err(Error::HttpResponseBodySize(None))));
                    }
                    let data = self.scrubber.push(data);
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    self.trailers = Some(scrub_headers(&self.network, &trailers));
                }
            }
        }
    }
}
