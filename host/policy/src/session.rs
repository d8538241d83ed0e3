//! What one session may use up (`[session]`).

use crate::limits::table::limit_table;
use crate::quantity::unit::{ANY, POSITIVE};

/// Most bytes of results that a session may be told to keep.
const MAX_CACHE_BYTES: u64 = 1 << 30;

limit_table! {
    /// What one session may use up. What is absent is not bounded. The policy has such limits for all sessions; a session
    /// may have its own beside them, and the stricter holds.
    #[derive(Debug, Clone, PartialEq)]
    pub struct SessionLimits {}
    patch SessionLimitsPatch; keys [];

    /// Calls in all.
    max_calls: Option<u64> as Count = None => "unbounded", POSITIVE, "";

    /// Calls of one tool with the same arguments.
    max_identical_calls: Option<u64> as Count = None => "unbounded", POSITIVE, "";

    /// Calls of one turn.
    max_calls_per_turn: Option<u64> as Count = None => "unbounded", POSITIVE, "";

    /// Calls of one tool with the same arguments in one turn.
    max_identical_calls_per_turn: Option<u64> as Count = None => "unbounded", POSITIVE, "";

    /// US dollars that tools say they cost; once so much is spent, no further call begins.
    max_cost_usd: Option<f64> as Dollars = None => "unbounded", ANY, "";

    /// Results that are kept for tools with a `cache`.
    ///
    /// A conversation comes back to a few dozen files; a result has some kilobytes.
    cache_entries: usize as Count = 256, ANY, "";

    /// Bytes of them; at most `1GiB`.
    cache_bytes: u64 as Bytes = 4 << 20, 0..=MAX_CACHE_BYTES, "";
}
