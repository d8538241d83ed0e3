//! Bodies: of requests, read whole before anything is done with them, and of responses, which hold what a request takes
//! until they have ended.

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

use super::answer;
use super::clients::QuotaPermit;

/// The body of a request, and the room it takes.
#[derive(Debug)]
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    pub(super) permit: QuotaPermit,
}

/// Reads the body of a request into the room of its client.
///
/// # Errors
/// It is too long or too slow, there is no room for it, or the client left: the answer.
pub(super) async fn read(
    room: QuotaPermit,
    headers: &HeaderMap,
    body: Body,
    limits: &ServeLimits,
) -> Result<RequestBody, Box<Response<Body>>> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limits.body_bytes) {
        return Err(too_long(limits));
    }
    let read = collect(room, body, limits);
    tokio::time::timeout(limits.body_timeout, read).await.unwrap_or_else(|_| {
        let text = format!(
            "the body took longer than {}; to allow more: [serve.limits] body_timeout = …",
            quantity::show_duration(limits.body_timeout)
        );
        Err(Box::new(answer::error(StatusCode::REQUEST_TIMEOUT, ErrorCode::INVALID_REQUEST, text, None)))
    })
}

async fn collect(
    mut room: QuotaPermit,
    mut body: Body,
    limits: &ServeLimits,
) -> Result<RequestBody, Box<Response<Body>>> {
    let mut first: Option<Bytes> = None;
    let mut rest: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| {
            let text = "the body could not be read";
            Box::new(answer::error(StatusCode::BAD_REQUEST, ErrorCode::PARSE_ERROR, text, None))
        };
        let Ok(bytes) = frame.map_err(broken)?.into_data() else { continue };
        let length = bytes.len() as u64;
        if room.amount().saturating_add(length) > limits.body_bytes {
            return Err(too_long(limits));
        }
        room.grow(length, limits).map_err(|full| Box::new(answer::full(full)))?;
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
    // Most requests come in one piece, which need not be copied.
    let bytes = if rest.is_empty() { first.unwrap_or_default() } else { rest.into() };
    Ok(RequestBody { bytes, permit: room })
}

fn too_long(limits: &ServeLimits) -> Box<Response<Body>> {
    let text = format!(
        "the body has more than {}; to allow more: [serve.limits] body_bytes = …",
        quantity::show_bytes(limits.body_bytes)
    );
    Box::new(answer::error(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::INVALID_REQUEST, text, None))
}

/// The body of a response, and what is held until it has ended or the client has left.
pub(super) struct HoldingBody<T> {
    inner: Body,
    ends: Option<BoxFuture<'static, ()>>,
    _held: T,
}

impl<T> HoldingBody<T> {
    /// What ends it early is asked only where it comes in pieces: what is whole is on its way.
    pub(super) fn new(inner: Body, ends: impl Future<Output = ()> + Send + 'static, held: T) -> Self {
        let is_whole = HttpBody::size_hint(&inner).exact().is_some();
        let ends: Option<BoxFuture<'static, ()>> = (!is_whole).then(|| Box::pin(ends) as _);
        Self { inner, ends, _held: held }
    }
}

impl<T: Unpin> HttpBody for HoldingBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // What is there goes out first: it may be the reason for the end.
        if let Poll::Ready(piece) = Pin::new(&mut self.inner).poll_frame(cx) {
            return Poll::Ready(piece);
        }
        match &mut self.ends {
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
