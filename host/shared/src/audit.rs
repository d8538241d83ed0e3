//! The audit of all replicas in one stream: each line with the name of its replica and its number there.
//!
//! A replica writes its audit to its own file first and forwards the lines later. The numbers of a name have no gaps: a
//! reader sees whether a line is missing. Lines of different replicas are in the order of the stream, which is no order of
//! their times.
//!
//! NATS stores one message for each id, so a line that was sent twice is stored once. The id has a random part for each
//! process: a name may be used again, by a process with another state directory or while the first one is frozen, and no
//! line of one may pass for a line of the other. The first line of a batch is stored only behind the last line that the
//! process knows, so that it notices the other one and continues with the next free number.

use std::io;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::{HeaderMap, header};
use bytes::Bytes;
use futures_util::StreamExt as _;

use crate::clock::random_name;
use crate::nats::{Connection, ConnectionError, PublishFailure, ReadError, decode, encode, publish};
use crate::protocol::Revision;

/// The header with the number of a line.
const SEQUENCE: &str = "Toolbay-Sequence";

/// The stream of audit lines, for one replica. Clones share the connection.
#[derive(Debug, Clone)]
pub struct AuditStream {
    stream: Stream,
    context: Context,
    subject: String,
    replica: String,
    /// Random for each process.
    nonce: String,
}

/// The end of the lines of a replica: behind it the next one is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditTail {
    /// The number of the last line; zero if there is none.
    pub number: u64,
    /// The position of the last line in the stream; zero if there is none.
    pub position: u64,
}

/// The last line of a replica that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastLine {
    /// The end of the lines.
    pub tail: AuditTail,
    /// The line.
    pub line: String,
}

/// How much of a batch is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedLines {
    /// The number of lines that are stored: all those before the first that is not.
    pub count: usize,
    /// The end of the lines.
    pub tail: AuditTail,
}

impl AuditStream {
    /// Opens the stream for the lines of this replica.
    ///
    /// # Errors
    /// The stream does not exist, or NATS refuses it.
    pub async fn open(connection: &Connection, replica: &str) -> Result<Self, ConnectionError> {
        let (stream, context, subject) = connection.audit().await?;
        let replica = encode(replica);
        let subject = format!("{subject}.{replica}");
        Ok(Self { stream, context, subject, replica, nonce: random_name() })
    }

    /// The last line of this replica that is stored; `None` if there is none.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn last(&self) -> Result<Option<LastLine>, ReadError> {
        let message = match self.stream.get_last_raw_message_by_subject(&self.subject).await {
            Ok(message) => message,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(None),
            Err(error) => return Err(ReadError::unavailable(error)),
        };
        let number = message.headers.get(SEQUENCE).and_then(|number| number.as_str().parse().ok());
        let number = number.ok_or_else(|| {
            ReadError::Unavailable(format!("`{}` has a line without a number", self.subject))
        })?;
        let tail = AuditTail { number, position: message.sequence };
        Ok(Some(LastLine { tail, line: String::from_utf8_lossy(&message.payload).into_owned() }))
    }

    /// Stores lines behind the last one of this replica. If that is another one than `tail` says, nothing is stored.
    pub async fn append(&self, tail: AuditTail, lines: &[String]) -> AppendedLines {
        let mut appended = AppendedLines { count: 0, tail };
        if let Err(failure) = self.append_all(lines, &mut appended).await {
            tracing::debug!(%failure, "an audit line was not forwarded");
        }
        appended
    }

    /// Stores lines, and counts them up to the first that is not stored.
    async fn append_all(&self, lines: &[String], appended: &mut AppendedLines) -> Result<(), PublishFailure> {
        let Some((first, rest)) = lines.split_first() else { return Ok(()) };
        let Revision(position) = self.send_first(appended.tail, first).await?;
        appended.count_stored(position);
        let (mut sent, mut result) = (Vec::with_capacity(rest.len()), Ok(()));
        for (number, line) in (appended.tail.number + 1..).zip(rest) {
            let (subject, headers) = (self.subject.clone(), self.headers(number));
            match self.context.publish_with_headers(subject, headers, line.clone().into()).await {
                Ok(acknowledged) => sent.push(acknowledged),
                Err(error) => {
                    result = Err(PublishFailure::from(&error));
                    break;
                }
            }
        }
        for acknowledged in sent {
            let stored = acknowledged.await.map_err(|error| PublishFailure::from(&error))?;
            appended.count_stored(stored.sequence);
        }
        result
    }

    async fn send_first(&self, tail: AuditTail, line: &str) -> Result<Revision, PublishFailure> {
        let (subject, headers) = (self.subject.clone(), self.headers(tail.number + 1));
        let payload = Bytes::copy_from_slice(line.as_bytes());
        publish(&self.context, subject, headers, payload, Some(tail.position)).await
    }

    fn headers(&self, number: u64) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_MESSAGE_ID, format!("{}:{}:{number}", self.replica, self.nonce));
        headers.insert(SEQUENCE, number.to_string());
        headers
    }
}

impl AppendedLines {
    fn count_stored(&mut self, position: u64) {
        self.count += 1;
        self.tail = AuditTail { number: self.tail.number + 1, position };
    }
}

impl AuditTail {
    /// The end of the lines of a store that has none, with the number of the last line.
    #[must_use]
    pub fn without_lines(number: u64) -> Self {
        Self { number, position: 0 }
    }
}

/// A line that a replica forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedLine {
    /// The name of the replica.
    pub replica: String,
    /// The number of the line there, from 1.
    pub sequence: u64,
    /// The line, without a line break.
    pub line: String,
}

/// The reason why the forwarded audit cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditReadError {
    /// The stream cannot be opened.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The store does not answer.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The receiver of the lines failed.
    #[error(transparent)]
    Receiver(#[from] io::Error),
}

/// Passes the lines that all replicas have forwarded so far to `take`.
///
/// # Errors
/// The stream cannot be read, or `take` fails.
pub async fn read_forwarded(
    connection: &Connection,
    mut take: impl FnMut(ForwardedLine) -> io::Result<()>,
) -> Result<(), AuditReadError> {
    let (stream, _, subject) = connection.audit().await?;
    if stream.cached_info().state.messages == 0 {
        return Ok(());
    }
    let consumer = stream.create_consumer(OrderedConfig::default()).await;
    let messages = consumer.map_err(ReadError::unavailable)?.messages().await;
    let mut messages = messages.map_err(ReadError::unavailable)?;
    while let Some(message) = messages.next().await {
        let message = message.map_err(ReadError::unavailable)?;
        let pending = message.info().map_err(ReadError::unavailable)?.pending;
        let number = message.headers.as_ref().and_then(|headers| headers.get(SEQUENCE));
        let replica =
            message.subject.strip_prefix(&subject).and_then(|rest| decode(rest.trim_start_matches('.')));
        if let (Some(replica), Some(number)) = (replica, number)
            && let Ok(sequence) = number.as_str().parse()
        {
            let line = String::from_utf8_lossy(&message.payload).into_owned();
            take(ForwardedLine { replica, sequence, line })?;
        }
        if pending == 0 {
            break;
        }
    }
    Ok(())
}
