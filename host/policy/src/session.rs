//! Limits of one session (`[session]`).

use crate::limits::table::limit_table;
use crate::quantity::unit::{ANY, POSITIVE};

/// Largest `cache_bytes` that a policy can set.
const MAX_CACHE_BYTES: u64 = 1 << 30;

limit_table! {
    /// Limits of one session. An absent limit does not apply. The policy sets limits for all sessions. A session can
    /// have additional limits of its own; the stricter one applies.
    #[derive(Debug, Clone, PartialEq)]
    pub struct SessionLimits {}
    patch SessionLimitsPatch; keys [];

    /// Total calls.
    max_calls: Option<u64> as Count = None => "unbounded", POSITIVE, "";

    /// Calls of one tool with the same arguments.
    max_identical_calls: Option<u64> as Count = None => "unbounded", POSITIVE, "";

    /// Calls in one turn.
    max_calls_per_turn: Option<u64> as Count = None => "unbounded", POSITIVE, "";

    /// Calls of one tool with the same arguments in one turn.
    max_identical_calls_per_turn: Option<u64> as Count = None => "unbounded", POSITIVE, "";

    /// Total cost in US dollars, as reported by tools. Once it is reached, no further call starts.
    max_cost_usd: Option<f64> as Dollars = None => "unbounded", ANY, "";

    /// Results kept for tools with a `cache`.
    ///
    /// A conversation returns to a few dozen files. A typical result has a few kilobytes.
    cache_entries: usize as Count = 256, ANY, "";

    /// Size of the kept results; at most `1GiB`.
    cache_bytes: u64 as Bytes = 4 << 20, 0..=MAX_CACHE_BYTES, "";
}
