//! Files of the host: the audit, saved output and consents. Only this user can read or write them.

pub(crate) mod audit;
pub(crate) mod consent;
pub(crate) mod held_updates;
pub(crate) mod output_store;
pub(crate) mod stop_order;

use std::time::SystemTime;

use toolbay_core::audit::timestamp;

/// The current time in the format of consents and audit records.
#[must_use]
pub fn timestamp_now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    timestamp::rfc3339(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
