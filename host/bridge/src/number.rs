//! Numbers that name hosts, views, sessions, requests and questions: each is used once in a process.

use std::sync::atomic::{AtomicU64, Ordering};

static LAST: AtomicU64 = AtomicU64::new(0);

/// The next number, from 1.
pub(crate) fn next() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
