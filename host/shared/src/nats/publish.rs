//! Messages to streams, and why one was not stored.

use std::error::Error;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{HeaderMap, header};
use bytes::Bytes;

use super::describe;
use crate::protocol::Revision;

/// The reason why a message was not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PublishFailure {
    /// Its subject has another last message than expected, or one that is being stored. It was not stored.
    #[error("another message was stored meanwhile")]
    LostRace,
    /// The stream is full. It was not stored.
    #[error("the stream is full")]
    Full,
    /// NATS does not take messages of this size. It was not stored.
    #[error("the message is larger than `max_payload` of NATS")]
    TooLarge,
    /// There was no answer, or one that does not say whether it was stored.
    #[error("{0}")]
    Unanswered(String),
}

/// Stores a message, and returns its position in the stream. With `expected`, only if this is the position of the last
/// message with the subject; zero: there is none.
pub(crate) async fn publish(
    context: &Context,
    subject: String,
    mut headers: HeaderMap,
    payload: Bytes,
    expected: Option<u64>,
) -> Result<Revision, PublishFailure> {
    if let Some(expected) = expected {
        headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
    }
    let stored = match context.publish_with_headers(subject, headers, payload).await {
        Ok(acknowledged) => acknowledged.await,
        Err(error) => Err(error),
    };
    stored.map(|stored| Revision(stored.sequence)).map_err(|error| PublishFailure::from(&error))
}

impl From<&PublishError> for PublishFailure {
    fn from(error: &PublishError) -> Self {
        let text = describe(error);
        match (error.kind(), error_code(error)) {
            (PublishErrorKind::MaxPayloadExceeded, _) => Self::TooLarge,
            // In a cluster, a concurrent write is refused before it is stored (10163 and 10164), and not after (10071).
            (
                _,
                Some(
                    ErrorCode::STREAM_WRONG_LAST_SEQUENCE
                    | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
                    | ErrorCode::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY,
                ),
            ) => Self::LostRace,
            // NATS has one error code for all that a stream refuses.
            _ if text.contains("maximum bytes exceeded") || text.contains("maximum messages exceeded") => {
                Self::Full
            }
            _ => Self::Unanswered(text),
        }
    }
}

/// The code that JetStream gave, in an error or in what caused it.
pub(super) fn error_code(error: &(dyn Error + 'static)) -> Option<ErrorCode> {
    std::iter::successors(Some(error), |error| (*error).source())
        .find_map(|error| error.downcast_ref::<jetstream::Error>())
        .map(jetstream::Error::error_code)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failure(code: u64) -> PublishFailure {
        let error = json!({"code": 400, "err_code": code, "description": "wrong last sequence"});
        let error: jetstream::Error = serde_json::from_value(error).unwrap();
        PublishFailure::from(&PublishError::with_source(PublishErrorKind::Other, error))
    }

    #[test]
    fn a_race_that_a_cluster_decides_is_lost_like_any_other() {
        for code in [10071, 10163, 10164] {
            assert_eq!(failure(code), PublishFailure::LostRace, "{code}");
        }
        assert!(matches!(failure(10008), PublishFailure::Unanswered(_)));
    }
}
