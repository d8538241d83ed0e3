//! Limits on messages of a peer, client or server.

use std::time::Duration;

/// Bytes of one message of a server: a line of its stdout, an event or a body. Large enough for the largest result of a
/// plugin call in base64.
pub(crate) const MAX_MESSAGE_BYTES: usize = 24 << 20;
/// Messages in one batch. Only revisions before 2025-06-18 have batches.
pub(crate) const MAX_BATCH_MESSAGES: usize = 100;
/// Longest text of a server before redaction, in characters. Cutting text earlier could leave the beginning of a
/// secret, which redaction would miss.
pub(crate) const MAX_UNREDACTED_CHARS: usize = 16_000;
/// Longest name of a client in an error, such as a method, in characters.
pub(crate) const MAX_SHOWN_NAME: usize = 160;
/// Longest id of a client's request and longest progress token, in bytes: responses and notifications repeat them.
pub(crate) const MAX_CLIENT_ID: usize = 1024;
/// Upper limit of the `retry` delay that a server requests before its stream is resumed.
pub(crate) const MAX_RESUME_DELAY: Duration = Duration::from_secs(30);
