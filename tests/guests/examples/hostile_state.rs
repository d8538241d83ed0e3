//! Counts its calls in a global, which must never survive: each result must be `1`.

use std::sync::atomic::{AtomicU64, Ordering};

use guest::{text, tool};

static CALLS: AtomicU64 = AtomicU64::new(0);

guest::tools!(tool("count", |_| text((CALLS.fetch_add(1, Ordering::SeqCst) + 1).to_string())));
