//! The audit of all servers in one stream: each line with the name of its server and its number there.
//!
//! A server writes its audit to its own file first and forwards the lines later. The name and the number are the id of the
//! message, so a line that was sent twice is stored once. The numbers of a server have no gaps: a reader sees whether a line
//! is missing. Lines of different servers are in the order of the stream, which is no order of their times.

use std::io;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::{HeaderMap, header};
use futures_util::StreamExt as _;

use crate::nats::{Connection, ConnectionError, ReadError, decode, encode};

/// The header with the number of a line.
const SEQUENCE: &str = "Toolbay-Sequence";

/// The stream of audit lines, for one server. Clones share the connection.
#[derive(Debug, Clone)]
pub struct AuditStream {
    stream: Stream,
    context: Context,
    subject: String,
    server: String,
}

impl AuditStream {
    /// Opens the stream for the lines of this server.
    ///
    /// # Errors
    /// There is none, or NATS refuses it.
    pub async fn open(connection: &Connection, server: &str) -> Result<Self, ConnectionError> {
        let (stream, context, subject) = connection.audit().await?;
        let server = encode(server);
        Ok(Self { stream, context, subject: format!("{subject}.{server}"), server })
    }

    /// The number of the last line of this server that is stored; 0 if there is none.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn last_number(&self) -> Result<u64, ReadError> {
        match self.stream.get_last_raw_message_by_subject(&self.subject).await {
            Ok(message) => {
                let number = message.headers.get(SEQUENCE).and_then(|number| number.as_str().parse().ok());
                number.ok_or_else(|| {
                    ReadError::Unavailable(format!("`{}` has a line without a number", self.subject))
                })
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(0),
            Err(error) => Err(ReadError::Unavailable(error.to_string())),
        }
    }

    /// Stores lines; the first one has this number. Returns how many are stored: all those before the first that is not.
    pub async fn append(&self, first: u64, lines: &[String]) -> usize {
        let mut sent = Vec::with_capacity(lines.len());
        for (number, line) in (first..).zip(lines) {
            let mut headers = HeaderMap::new();
            headers.insert(header::NATS_MESSAGE_ID, format!("{}:{number}", self.server));
            headers.insert(SEQUENCE, number.to_string());
            let subject = self.subject.clone();
            match self.context.publish_with_headers(subject, headers, line.clone().into()).await {
                Ok(acknowledged) => sent.push(acknowledged),
                Err(error) => {
                    tracing::debug!(%error, "an audit line was not forwarded");
                    break;
                }
            }
        }
        let mut stored = 0;
        for acknowledged in sent {
            if let Err(error) = acknowledged.await {
                tracing::debug!(%error, "an audit line was not forwarded");
                break;
            }
            stored += 1;
        }
        stored
    }
}

/// A line that a server forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedLine {
    /// The name of the server.
    pub server: String,
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

/// Passes the lines that all servers have forwarded so far to `take`.
///
/// # Errors
/// The stream cannot be read, or `take` fails.
pub async fn read_forwarded(
    connection: &Connection,
    mut take: impl FnMut(ForwardedLine) -> io::Result<()>,
) -> Result<(), AuditReadError> {
    let unavailable = |error: &dyn std::error::Error| ReadError::Unavailable(error.to_string());
    let (stream, _, subject) = connection.audit().await?;
    if stream.cached_info().state.messages == 0 {
        return Ok(());
    }
    let consumer = stream.create_consumer(OrderedConfig::default()).await;
    let messages = consumer.map_err(|error| unavailable(&error))?.messages().await;
    let mut messages = messages.map_err(|error| unavailable(&error))?;
    while let Some(message) = messages.next().await {
        let message = message.map_err(|error| unavailable(&error))?;
        let pending = message.info().map_err(|error| ReadError::Unavailable(error.to_string()))?.pending;
        let number = message.headers.as_ref().and_then(|headers| headers.get(SEQUENCE));
        let server =
            message.subject.strip_prefix(&subject).and_then(|rest| decode(rest.trim_start_matches('.')));
        if let (Some(server), Some(number)) = (server, number)
            && let Ok(sequence) = number.as_str().parse()
        {
            let line = String::from_utf8_lossy(&message.payload).into_owned();
            take(ForwardedLine { server, sequence, line })?;
        }
        if pending == 0 {
            break;
        }
    }
    Ok(())
}
