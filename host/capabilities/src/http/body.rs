//! Request and response bodies, counted against the limits of the call while they are read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyDataStream, BodyExt as _, Either, Full};
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt as _};
use tokio_util::io::{ReaderStream, StreamReader};
use toolbay_policy::limits::Limit;

use super::call_network::{CallNetwork, NetError, OpenConnectionGuard};
use super::connect::{ConnectionKey, ConnectionPool, OutboundConnection};
use super::{dispatch, secret_injection};

/// The body of a response, with its connection. A body that is read to its end returns the connection to the pool;
/// one that is dropped earlier closes it.
pub(super) struct ResponseBody {
    body: Either<Incoming, Full<Bytes>>,
    connection: Option<(ConnectionKey, OutboundConnection, Arc<ConnectionPool>)>,
    _guard: OpenConnectionGuard,
}

impl ResponseBody {
    /// Creates a body from bytes in memory.
    pub(super) fn replayed(body: Bytes, guard: OpenConnectionGuard) -> Self {
        Self { body: Either::Right(Full::new(body)), connection: None, _guard: guard }
    }

    pub(super) fn new(
        body: Incoming,
        key: ConnectionKey,
        connection: OutboundConnection,
        pool: Arc<ConnectionPool>,
        guard: OpenConnectionGuard,
    ) -> Self {
        Self { body: Either::Left(body), connection: Some((key, connection, pool)), _guard: guard }
    }

    fn release_connection(&mut self) {
        if let Some((key, connection, pool)) = self.connection.take() {
            pool.put(key, connection);
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if self.is_end_stream() {
            self.release_connection();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            None => self.release_connection(),
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

/// Maximum buffer reserved because of a peer's `content-length`.
const MAX_PREALLOCATION: u64 = 1 << 20;

/// The content coding of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentCoding {
    Gzip,
    Deflate,
    Brotli,
}

impl ContentCoding {
    /// The coding that a word of `content-encoding` names, if it can be decoded here.
    fn named(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "br" => Some(Self::Brotli),
            _ => None,
        }
    }

    /// Decodes what `reader` reads. Boxed: decoders are large.
    fn decoder(self, reader: impl AsyncBufRead + Send + 'static) -> Pin<Box<dyn AsyncRead + Send>> {
        match self {
            Self::Gzip => {
                let mut decoder = GzipDecoder::new(reader);
                decoder.multiple_members(true);
                Box::pin(decoder)
            }
            Self::Deflate => Box::pin(ZlibDecoder::new(reader)),
            Self::Brotli => Box::pin(BrotliDecoder::new(reader)),
        }
    }
}

/// The coding of a body, if it can be decoded here. A stack of several codings is left as it is.
fn content_coding(headers: &HeaderMap) -> Option<ContentCoding> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    ContentCoding::named(value.to_str().ok()?.trim())
}

/// Maximum encoded bytes that decode to nothing: a stream of empty blocks never ends.
const MAX_EMPTY_CODED_BYTES: u64 = 64 << 10;

/// Decoded bytes that are read at once.
const DECODED_CHUNK: usize = 16 << 10;

/// The content codings that exist (RFC 9110, section 16.6.1, and its registry) and are not decoded here. A server that
/// names anything else, such as a character set, has not encoded its body.
const OTHER_CODINGS: [&str; 8] =
    ["aes128gcm", "compress", "dcb", "dcz", "exi", "pack200-gzip", "x-compress", "zstd"];

/// The chunks of a body whose content coding was not requested, decoded while they are read. The reader bounds the
/// decoded bytes. Removes the headers that describe the encoded body.
///
/// # Errors
/// The coding cannot be decoded. The error is a message for people.
pub(super) fn decode_stream<S, E>(
    headers: &mut HeaderMap,
    chunks: S,
) -> Result<BoxStream<'static, std::io::Result<Bytes>>, String>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let named: Vec<String> = values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|word| String::from_utf8_lossy(word.trim_ascii()).to_ascii_lowercase())
        .collect();
    if let Some(other) = named.iter().find(|word| OTHER_CODINGS.contains(&word.as_str())) {
        return Err(format!("the response has the content coding `{other}`, which was not requested"));
    }
    let mut codings = named.iter().filter_map(|word| ContentCoding::named(word));
    let coding = codings.next();
    if codings.next().is_some() {
        return Err("the response has several content codings".to_owned());
    }
    let chunks = chunks.map_err(std::io::Error::other);
    let Some(coding) = coding else { return Ok(chunks.boxed()) };
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let undecoded = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&undecoded);
    let chunks = chunks.and_then(move |chunk| {
        let count =
            counted.fetch_add(chunk.len() as u64, Ordering::Relaxed).saturating_add(chunk.len() as u64);
        let is_empty = count > MAX_EMPTY_CODED_BYTES.saturating_add(chunk.len() as u64);
        std::future::ready(if is_empty {
            Err(std::io::Error::other("its data decodes to nothing"))
        } else {
            Ok(chunk)
        })
    });
    let decoder = coding.decoder(StreamReader::new(chunks.boxed()));
    let decoded = ReaderStream::with_capacity(decoder, DECODED_CHUNK);
    Ok(decoded.inspect_ok(move |_| undecoded.store(0, Ordering::Relaxed)).boxed())
}

/// Whether a body has a content coding other than `identity`.
pub(super) fn has_content_coding(headers: &HeaderMap) -> bool {
    let plain = |value: &str| value.split(',').all(|one| matches!(one.trim(), "" | "identity"));
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|value| !value.to_str().is_ok_and(|value| plain(&value.to_ascii_lowercase())))
}

/// The error for a response body that cannot be searched for secrets.
pub(super) fn unsearchable_coding() -> NetError {
    NetError::Transport(
        "the response has a content coding that was not requested; a call that uses a secret accepts only bodies \
         that can be searched for it"
            .to_owned(),
    )
}

/// Reads a whole body, decoded and with the secrets of the call redacted. `asked` is the guest's maximum. Removes the
/// headers that describe the encoded body. Returns whether the body was truncated.
pub(super) async fn collect(
    network: &CallNetwork,
    headers: &mut HeaderMap,
    mut body: ResponseBody,
    asked: Option<u64>,
) -> Result<(Vec<u8>, bool), NetError> {
    let (left, limit) = network.bytes_left();
    let max = asked.unwrap_or(u64::MAX).min(left);
    let coding = if body.is_end_stream() { None } else { content_coding(headers) };
    if coding.is_none()
        && !body.is_end_stream()
        && has_content_coding(headers)
        && network.placeholders.has_any()
    {
        return Err(unsearchable_coding());
    }
    // A secret can lie across the cut, so the read continues by the longest possible value.
    let ahead = max.saturating_add(network.placeholders.longest_match() as u64);
    let expected =
        if coding.is_none() { body.size_hint().lower().min(max).min(MAX_PREALLOCATION) } else { 0 };
    let read = match coding {
        None => read_plain(&mut body, ahead, expected).await,
        // Boxed: most bodies need no decoder.
        Some(coding) => Box::pin(read_decoded(body, coding, ahead, left)).await,
    };
    let (bytes, more) = read.map_err(|error| body_error(network, &error, limit))?;
    if coding.is_some() {
        headers.remove(CONTENT_ENCODING);
        headers.remove(CONTENT_LENGTH);
    }
    let more = more || bytes.len() as u64 > max;
    if more && max == left && asked != Some(max) {
        return Err(NetError::Denied(network.limit_error(limit)));
    }
    network.count_bytes(bytes.len().min(usize::try_from(max).unwrap_or(usize::MAX)))?;
    Ok((secret_injection::scrub_prefix(network, bytes, max), more))
}

/// Reads at most `max` bytes without decoding. Returns whether there are more.
async fn read_plain(body: &mut ResponseBody, max: u64, expected: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame.map_err(std::io::Error::other)?.into_data() else { continue };
        let room = usize::try_from(max - bytes.len() as u64).unwrap_or(usize::MAX);
        let fits = part.get(..room);
        bytes.extend_from_slice(fits.unwrap_or(&part));
        if fits.is_some_and(|fits| fits.len() < part.len()) {
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}

/// [`read_plain`] with decoding. Reads at most `left` encoded bytes.
async fn read_decoded(
    body: ResponseBody,
    coding: ContentCoding,
    max: u64,
    left: u64,
) -> std::io::Result<(Vec<u8>, bool)> {
    // Encoded bytes count, too: a stream of empty blocks never ends.
    let mut raw = 0_u64;
    let stream = BodyDataStream::new(body).map_err(std::io::Error::other).and_then(move |part| {
        raw = raw.saturating_add(part.len() as u64);
        std::future::ready(if raw > left { Err(BYTE_LIMIT_REACHED.into()) } else { Ok(part) })
    });
    let mut reader = coding.decoder(StreamReader::new(stream));
    let mut bytes = Vec::new();
    (&mut reader).take(max).read_to_end(&mut bytes).await?;
    let more = bytes.len() as u64 == max && reader.read(&mut [0]).await? > 0;
    Ok((bytes, more))
}

/// The error kind when a response has more encoded bytes than the call may read.
const BYTE_LIMIT_REACHED: std::io::ErrorKind = std::io::ErrorKind::QuotaExceeded;

fn body_error(network: &CallNetwork, error: &std::io::Error, limit: Limit) -> NetError {
    match error.get_ref() {
        None if error.kind() == BYTE_LIMIT_REACHED => NetError::Denied(network.limit_error(limit)),
        Some(inner) if inner.is::<hyper::Error>() => {
            NetError::Transport(format!("the response ended early: {}", error_text(network, inner)))
        }
        _ => NetError::Transport(format!("the response cannot be decoded: {error}")),
    }
}

/// The root cause of an error, redacted: a peer can choose the text (the debug data of an HTTP/2 GOAWAY).
pub(super) fn error_text(network: &CallNetwork, error: &(dyn std::error::Error + 'static)) -> String {
    toolbay_policy::excerpt::one_line(
        &secret_injection::scrub_text(network, dispatch::root_cause(error)),
        300,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_compression::tokio::write::{GzipEncoder, ZlibEncoder};
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    fn headers(coding: &str) -> HeaderMap {
        let coding = [(CONTENT_ENCODING, coding.parse().unwrap()), (CONTENT_LENGTH, "7".parse().unwrap())];
        coding.into_iter().collect()
    }

    async fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzipEncoder::new(Vec::new());
        encoder.write_all(text).await.unwrap();
        encoder.shutdown().await.unwrap();
        encoder.into_inner()
    }

    async fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new());
        encoder.write_all(text).await.unwrap();
        encoder.shutdown().await.unwrap();
        encoder.into_inner()
    }

    fn decode(
        coding: &str,
        body: &[u8],
        step: usize,
    ) -> Result<BoxStream<'static, std::io::Result<Bytes>>, String> {
        let chunks: Vec<std::io::Result<Bytes>> =
            body.chunks(step).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        decode_stream(&mut headers(coding), futures_util::stream::iter(chunks))
    }

    async fn read(coding: &str, body: &[u8], step: usize) -> Result<Vec<u8>, String> {
        let chunks: Result<Vec<Bytes>, _> = decode(coding, body, step)?.try_collect().await;
        chunks.map(|chunks| chunks.concat()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_body_in_a_coding_that_was_not_requested_is_decoded() {
        let (text, gzipped, deflated) = (b"hello", gzip(b"hello").await, zlib(b"hello").await);
        for (coding, body) in [
            ("gzip", &gzipped[..]),
            ("X-Gzip", &gzipped),
            ("identity, gzip", &gzipped),
            ("deflate", &deflated),
            ("UTF-8,deflate", &deflated),
            ("utf-8", text),
            ("identity", text),
            ("iso-8859-1", text),
            ("", text),
        ] {
            assert_eq!(read(coding, body, 3).await.as_deref(), Ok(&text[..]), "{coding}");
        }
        for (coding, body) in
            [("zstd", &text[..]), ("gzip, deflate", text), ("gzip", text), ("gzip", &gzipped[..12])]
        {
            assert!(read(coding, body, 3).await.is_err(), "{coding}");
        }
        let noise: Vec<u8> = (0..1_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        assert!(read("gzip", &gzip(&noise).await, 1 << 20).await.unwrap() == noise);
    }

    #[tokio::test]
    async fn an_encoded_event_arrives_when_it_is_sent() {
        let (mut server, client) = tokio::io::duplex(1 << 16);
        let mut events = decode_stream(&mut headers("gzip"), ReaderStream::new(client)).unwrap();
        let mut encoder = GzipEncoder::new(Vec::new());
        for n in 0..3 {
            let event = format!("data: {n}\n\n");
            encoder.write_all(event.as_bytes()).await.unwrap();
            encoder.flush().await.unwrap();
            server.write_all(&std::mem::take(encoder.get_mut())).await.unwrap();
            let arrived = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
            assert_eq!(arrived.unwrap().unwrap().unwrap(), event.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_bomb_is_decoded_only_as_far_as_it_is_read() {
        let bomb = gzip(&vec![0; 8 << 20]).await;
        let mut chunks = decode("gzip", &bomb, usize::MAX).unwrap();
        assert!(chunks.next().await.unwrap().unwrap().len() <= DECODED_CHUNK);
        // The head of a member, and empty blocks without end.
        let head = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
        let empty = std::iter::repeat_with(|| [0, 0, 0, 0xff, 0xff].repeat(1000));
        let endless =
            std::iter::once(head).chain(empty).map(|chunk| Ok::<_, std::io::Error>(Bytes::from(chunk)));
        let mut chunks = decode_stream(&mut headers("gzip"), futures_util::stream::iter(endless)).unwrap();
        assert!(chunks.next().await.unwrap().unwrap_err().to_string().contains("decodes to nothing"));
    }
}
