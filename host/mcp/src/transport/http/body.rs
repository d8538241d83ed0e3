//! Bodies: of requests, read whole before anything is done with them, and of responses, which hold what a request takes
//! until they have ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, Response, StatusCode};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use rmcp::model::{ErrorCode, RequestId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toolbay_policy::quantity;
use toolbay_policy::serve::ServeLimits;

use super::answer;
use super::clients::Share;
use crate::protocol::raw;
use crate::server::outbox;

/// Pieces of a response that are sent without a look at whether it is to end: what comes at once is soon over.
const MAX_AT_ONCE: u32 = 16;

/// The body of a request, and the room it takes.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    pub(super) room: Arc<Share>,
}

/// Reads the body of a request into the room of its client.
///
/// # Errors
/// It is too long or too slow, there is no room for it, or the client left: the answer.
pub(super) async fn read(
    room: Share,
    headers: &HeaderMap,
    body: Body,
    limits: &ServeLimits,
) -> Result<Whole, Box<Response<Body>>> {
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
    mut room: Share,
    mut body: Body,
    limits: &ServeLimits,
) -> Result<Whole, Box<Response<Body>>> {
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
    Ok(Whole { bytes, room: Arc::new(room) })
}

fn too_long(limits: &ServeLimits) -> Box<Response<Body>> {
    let text = format!(
        "the body has more than {}; to allow more: [serve.limits] body_bytes = …",
        quantity::show_bytes(limits.body_bytes)
    );
    Box::new(answer::error(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::INVALID_REQUEST, text, None))
}

/// What is wrong with a body that is no message of the protocol.
pub(super) fn explain(bytes: &[u8]) -> Response<Body> {
    #[derive(Deserialize)]
    struct Message {
        id: Option<RequestId>,
    }
    let answer = |code, text: String, id| answer::error(StatusCode::BAD_REQUEST, code, text, id);
    if std::str::from_utf8(bytes).is_err() {
        return answer(ErrorCode::PARSE_ERROR, "the body is not UTF-8".to_owned(), None);
    }
    // Looked through without being kept: a body can hold millions of values.
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
        // What is said of the place quotes nothing of the body.
        let text = format!("the body is no JSON, at line {} column {}", error.line(), error.column());
        return answer(ErrorCode::PARSE_ERROR, text, None);
    }
    if bytes.trim_ascii_start().starts_with(b"[") {
        let text = "batches are not part of the protocol any more; send each message in a request of its own";
        return answer(ErrorCode::INVALID_REQUEST, text.to_owned(), None);
    }
    let id = serde_json::from_slice::<Message>(bytes).ok().and_then(|message| message.id);
    answer(ErrorCode::INVALID_REQUEST, "the body is no message of JSON-RPC 2.0".to_owned(), id)
}

/// The body of a response, and what is held until it has ended or the client has left.
pub(super) struct Holding<T> {
    inner: Body,
    ends: Option<BoxFuture<'static, ()>>,
    /// Pieces that came one after the other without a wait.
    at_once: u32,
    /// Holds the client's room for each piece until it is written.
    response: Arc<outbox::Response>,
    _held: T,
}

impl<T> Holding<T> {
    /// What ends it early is asked only where it comes in pieces: what is whole is on its way.
    pub(super) fn new(
        inner: Body,
        ends: impl Future<Output = ()> + Send + 'static,
        response: Arc<outbox::Response>,
        held: T,
    ) -> Self {
        let size = HttpBody::size_hint(&inner).exact();
        let ends: Option<BoxFuture<'static, ()>> = size.is_none().then(|| Box::pin(ends) as _);
        // Its length is told before it is written, and must be that of what is written.
        let inner = match size {
            Some(size) if size >= raw::LEAST as u64 => restored(inner),
            Some(_) | None => inner,
        };
        Self { inner, ends, at_once: 0, response, _held: held }
    }
}

/// A body that is there as a whole, with its texts as JSON.
fn restored(body: Body) -> Body {
    match body.collect().now_or_never() {
        Some(Ok(whole)) => raw::restored(whole.to_bytes()).into(),
        Some(Err(_)) | None => Body::empty(),
    }
}

type Piece = Option<Result<Frame<Bytes>, axum::Error>>;

impl<T> Holding<T> {
    fn held(&self, piece: Piece) -> Piece {
        piece.map(|frame| frame.map(|frame| frame.map_data(|data| self.response.piece(data))))
    }
}

impl<T: Unpin> HttpBody for Holding<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let piece = (self.at_once < MAX_AT_ONCE).then(|| Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Poll::Ready(piece)) = piece {
            self.at_once += 1;
            return Poll::Ready(self.held(piece));
        }
        self.at_once = 0;
        if self.ends.as_mut().is_some_and(|ends| ends.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(None);
        }
        match piece {
            Some(_) => Poll::Pending,
            None => {
                let piece = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
                Poll::Ready(self.held(piece))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
