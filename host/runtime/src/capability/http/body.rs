//! Bodies, counted while they pass: nothing is read that nobody will pay for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http_body_util::{BodyDataStream, BodyExt as _, Either, Full};
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::io::StreamReader;
use toolbay_policy::limits::Limit;

use super::connect::{Connection, Key, Pool};
use super::session::{Lease, NetError, Session};
use super::{dispatch, seam};

/// A response's body with all that it keeps open. Read to its end, the connection can be used again; dropped before,
/// it is closed.
pub(super) struct Inbound {
    body: Either<Incoming, Full<Bytes>>,
    connection: Option<(Key, Connection, Arc<Pool>)>,
    _lease: Lease,
}

impl Inbound {
    /// One that is in memory.
    pub(super) fn replayed(body: Bytes, lease: Lease) -> Self {
        Self { body: Either::Right(Full::new(body)), connection: None, _lease: lease }
    }

    pub(super) fn new(
        body: Incoming,
        key: Key,
        connection: Connection,
        pool: Arc<Pool>,
        lease: Lease,
    ) -> Self {
        Self { body: Either::Left(body), connection: Some((key, connection, pool)), _lease: lease }
    }

    fn end(&mut self) {
        if let Some((key, connection, pool)) = self.connection.take() {
            pool.put(key, connection);
        }
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        if self.is_end_stream() {
            self.end();
        }
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            None => self.end(),
            Some(Err(_)) => self.connection = None,
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes that are made room for because a peer says that they come.
const AHEAD: u64 = 1 << 20;

/// How a response's body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
}

/// The coding of a body, if it is one that is decoded here. Several on top of each other are left as they are.
fn coding(headers: &HeaderMap) -> Option<Coding> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    match value.to_str().ok()?.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => Some(Coding::Gzip),
        "deflate" => Some(Coding::Deflate),
        "br" => Some(Coding::Brotli),
        _ => None,
    }
}

/// Whether a body is written in any coding.
pub(super) fn is_coded(headers: &HeaderMap) -> bool {
    let plain = |value: &str| value.split(',').all(|one| matches!(one.trim(), "" | "identity"));
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|value| !value.to_str().is_ok_and(|value| plain(&value.to_ascii_lowercase())))
}

/// Why a body is not handed over in which no secret could be found.
pub(super) fn unreadable() -> NetError {
    NetError::Transport(
        "the response is in a coding that nobody asked for, and a call that got a secret takes none that cannot be \
         searched for it"
            .to_owned(),
    )
}

/// Reads a whole body, decoded and without the values of the call's secrets. `asked` is where the guest wants it cut. Takes out of `headers` what describes the
/// body as it was. Says whether it was cut.
pub(super) async fn collect(
    session: &Session,
    headers: &mut HeaderMap,
    mut body: Inbound,
    asked: Option<u64>,
) -> Result<(Vec<u8>, bool), NetError> {
    let (left, limit) = session.bytes_left();
    let most = asked.unwrap_or(u64::MAX).min(left);
    let coding = if body.is_end_stream() { None } else { coding(headers) };
    if coding.is_none() && !body.is_end_stream() && is_coded(headers) && session.tokens.any() {
        return Err(unreadable());
    }
    // A value may stand across the place where the body is cut: it is read on for as long as one can be.
    let ahead = most.saturating_add(session.tokens.reach() as u64);
    let expected = if coding.is_none() { body.size_hint().lower().min(most).min(AHEAD) } else { 0 };
    let read = match coding {
        None => pieces(&mut body, ahead, expected).await,
        // Decoders are large, and most bodies need none.
        Some(coding) => Box::pin(decoded(body, coding, ahead, left)).await,
    };
    let (bytes, more) = read.map_err(|error| refused(session, &error, limit))?;
    if coding.is_some() {
        headers.remove(CONTENT_ENCODING);
        headers.remove(CONTENT_LENGTH);
    }
    let more = more || bytes.len() as u64 > most;
    if more && most == left && asked != Some(most) {
        return Err(NetError::Denied(session.limit(limit)));
    }
    session.count_bytes(bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX)))?;
    Ok((seam::scrub_start(session, bytes, most), more))
}

/// Reads at most `most` bytes as they come, and says whether there are more.
async fn pieces(body: &mut Inbound, most: u64, expected: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame.map_err(std::io::Error::other)?.into_data() else { continue };
        let room = usize::try_from(most - bytes.len() as u64).unwrap_or(usize::MAX);
        let fits = part.get(..room);
        bytes.extend_from_slice(fits.unwrap_or(&part));
        if fits.is_some_and(|fits| fits.len() < part.len()) {
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}

/// [`pieces`] of what a body decodes to. More than `left` coded bytes are not read.
async fn decoded(body: Inbound, coding: Coding, most: u64, left: u64) -> std::io::Result<(Vec<u8>, bool)> {
    // Also what decodes to nothing is paid for: a stream of empty blocks has no end.
    let mut raw = 0_u64;
    let stream = BodyDataStream::new(body).map_err(std::io::Error::other).and_then(move |part| {
        raw = raw.saturating_add(part.len() as u64);
        std::future::ready(if raw > left { Err(TOO_MUCH.into()) } else { Ok(part) })
    });
    let reader = StreamReader::new(stream);
    match coding {
        Coding::Gzip => {
            let mut decoder = GzipDecoder::new(reader);
            decoder.multiple_members(true);
            read(decoder, most).await
        }
        Coding::Deflate => read(ZlibDecoder::new(reader), most).await,
        Coding::Brotli => read(BrotliDecoder::new(reader), most).await,
    }
}

/// More came over the wire than the call may read.
const TOO_MUCH: std::io::ErrorKind = std::io::ErrorKind::QuotaExceeded;

fn refused(session: &Session, error: &std::io::Error, limit: Limit) -> NetError {
    match error.get_ref() {
        None if error.kind() == TOO_MUCH => NetError::Denied(session.limit(limit)),
        Some(inner) if inner.is::<hyper::Error>() => {
            NetError::Transport(format!("the response broke off: {}", cause(session, inner)))
        }
        _ => NetError::Transport(format!("the response cannot be decoded: {error}")),
    }
}

/// The reason of an error, which a peer may have written (the last words of HTTP/2).
pub(super) fn cause(session: &Session, error: &(dyn std::error::Error + 'static)) -> String {
    toolbay_policy::text::one_line(&seam::text(session, dispatch::cause(error)), 300)
}

async fn read(reader: impl AsyncRead, most: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let (mut reader, mut bytes) = (std::pin::pin!(reader), Vec::new());
    (&mut reader).take(most).read_to_end(&mut bytes).await?;
    let more = bytes.len() as u64 == most && reader.read(&mut [0]).await? > 0;
    Ok((bytes, more))
}
