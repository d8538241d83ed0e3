//! Request bodies, which are read completely before dispatch, and response bodies, which hold the permits of their
//! request until they end.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, Response, StatusCode};
use futures_util::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use rmcp::model::ErrorCode;
use toolbay_policy::quantity;
use toolbay_policy::serve::ServeLimits;

use super::clients::QuotaPermit;
use super::refusals::with_limit;
use super::responses::{self, SERVE_LIMITS};

/// The body of a request, with its permit.
#[derive(Debug)]
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    pub(super) permit: QuotaPermit,
}

/// Reads the body of a request within the quota of its client.
///
/// # Errors
/// The body is too long or too slow, exceeds the quota, or the client disconnected. The error is the response.
pub(super) async fn read_body(
    room: QuotaPermit,
    headers: &HeaderMap,
    body: Body,
    limits: &ServeLimits,
) -> Result<RequestBody, Box<Response<Body>>> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limits.body_bytes) {
        return Err(too_long(limits));
    }
    let read = collect_body(room, body, limits);
    tokio::time::timeout(limits.body_timeout, read).await.unwrap_or_else(|_| {
        let most = quantity::show_duration(limits.body_timeout);
        let text = format!("the body took longer than {most}, the limit `body_timeout`");
        Err(refuse(StatusCode::REQUEST_TIMEOUT, text, "body_timeout"))
    })
}

async fn collect_body(
    mut room: QuotaPermit,
    mut body: Body,
    limits: &ServeLimits,
) -> Result<RequestBody, Box<Response<Body>>> {
    let mut first: Option<Bytes> = None;
    let mut rest: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| {
            let text = "the body could not be read";
            Box::new(responses::error(StatusCode::BAD_REQUEST, ErrorCode::PARSE_ERROR, text, None))
        };
        let Ok(bytes) = frame.map_err(broken)?.into_data() else { continue };
        let length = bytes.len() as u64;
        if room.amount().saturating_add(length) > limits.body_bytes {
            return Err(too_long(limits));
        }
        room.grow(length, limits).map_err(responses::quota_exceeded)?;
        match &first {
            None => first = Some(bytes),
            Some(begin) => {
                if rest.is_empty() {
                    rest.extend_from_slice(begin);
                }
                rest.extend_from_slice(&bytes);
            }
        }
    }
    // Most bodies arrive in one frame and need no copy.
    let bytes = if rest.is_empty() { first.unwrap_or_default() } else { rest.into() };
    Ok(RequestBody { bytes, permit: room })
}

fn too_long(limits: &ServeLimits) -> Box<Response<Body>> {
    let text =
        format!("the body exceeds {}, the limit `body_bytes`", quantity::show_bytes(limits.body_bytes));
    refuse(StatusCode::PAYLOAD_TOO_LARGE, text, "body_bytes")
}

fn refuse(status: StatusCode, text: String, limit: &'static str) -> Box<Response<Body>> {
    let response = responses::error(status, ErrorCode::INVALID_REQUEST, text, None);
    Box::new(with_limit(response, SERVE_LIMITS, limit))
}

/// A response body with a guard that is held until the body ends or the client disconnects.
pub(super) struct GuardedBody<T> {
    inner: Body,
    end: Option<BoxFuture<'static, ()>>,
    _guard: T,
}

impl<T> GuardedBody<T> {
    /// Creates the body. The future `ends` terminates it early, unless its size is known: such a body is already
    /// complete.
    pub(super) fn new(inner: Body, ends: impl Future<Output = ()> + Send + 'static, guard: T) -> Self {
        let is_whole = HttpBody::size_hint(&inner).exact().is_some();
        let ends: Option<BoxFuture<'static, ()>> = (!is_whole).then(|| Box::pin(ends) as _);
        Self { inner, end: ends, _guard: guard }
    }
}

impl<T: Unpin> HttpBody for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Available data first: it may contain the reason for the end.
        if let Poll::Ready(piece) = Pin::new(&mut self.inner).poll_frame(cx) {
            return Poll::Ready(piece);
        }
        match &mut self.end {
            Some(ends) => ends.as_mut().poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
