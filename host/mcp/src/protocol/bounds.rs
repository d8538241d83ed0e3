//! Bounds on messages of the other side, whoever it is.

use std::time::Duration;

/// Bytes of one message of a server: a line of its stdout, an event, a body. Room for what one call of a plugin may give
/// back, in base64.
pub(crate) const MAX_MESSAGE: usize = 24 << 20;
/// Messages that a batch may hold; revisions before 2025-06-18 know such.
pub(crate) const MAX_BATCH: usize = 100;
/// Longest text of a server before values of secrets are taken out of it, in characters: what is cut earlier could be the
/// beginning of a secret.
pub(crate) const MAX_HEARD: usize = 16_000;
/// The longest that a server may make us wait before its stream is fetched again.
pub(crate) const MAX_RESUME_PAUSE: Duration = Duration::from_secs(30);
