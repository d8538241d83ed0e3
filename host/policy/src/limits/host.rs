//! Limits of the whole host (`[host]`).

use std::time::Duration;

use super::table::{LimitFlag, LimitRow, LimitTable, limit_table};
use crate::quantity::unit::{ANY, DAY};

/// Smallest `guest_memory`: one instance of CPython or SpiderMonkey fits.
pub const MIN_GUEST_MEMORY: u64 = 32 << 20;
/// Smallest `result_memory`: four times the default result.
pub const MIN_RESULT_MEMORY: u64 = 1 << 20;
/// Smallest `outbox_bytes`: one default result.
pub const MIN_OUTBOX: u64 = 256 << 10;

limit_table! {
    /// Limits of the whole host.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HostLimits {}
    patch HostLimitsPatch; keys [];

    /// Calls that run in parallel, 1 to 1000. It also sizes the instance pool, which reserves 48 GiB of address
    /// space per call.
    ///
    /// With the default `memory` of 64 MiB, they use at most 4 GiB.
    parallel_calls: u32 as Count = 64, 1..=1000, "the call waits";

    /// Calls in the queue.
    ///
    /// A batch of 10 000 calls fits.
    queued_calls: u32 as Count = 16_384, ANY, "`busy`, for the plugin with most queued calls";

    /// Time that a call waits in the queue.
    queue_timeout: Duration as Time = Duration::from_secs(30), 0..=DAY, "`busy`";

    /// [Memory of all guests](#memory-of-the-host), running calls and idle instances included.
    guest_memory: Option<u64> as Bytes = None => "half of the memory, 2 GiB at most", MIN_GUEST_MEMORY..=u64::MAX,
        "idle instances are dropped; the call waits, then `busy`";

    /// [Memory of all results that are not yet delivered](#memory-of-the-host).
    result_memory: Option<u64> as Bytes = None => "an eighth of the memory, 128 MiB at most",
        MIN_RESULT_MEMORY..=u64::MAX, "the call waits for running calls, then `busy`";

    /// Size of the results that one MCP client has not read yet; at most half of `result_memory`.
    ///
    /// Two of the largest results, or a thousand typical ones.
    outbox_bytes: u64 as Bytes = 32 << 20, MIN_OUTBOX..=u64::MAX, "its next call waits, then `busy`";

    /// Open requests and raw connections of all calls. A plugin, MCP server or service gets at most a quarter of
    /// them. Another quarter is reserved for first connections.
    http_connections: u32 as Count = 256, ANY, "the connection waits, then the interface's error";

    /// Programs of all calls that run in parallel.
    processes: u32 as Count = 32, ANY, "the interface's error";

    /// Wall time to compile a component.
    ///
    /// SpiderMonkey's 12 MB take sixteen CPU seconds.
    compile_timeout: Duration as Time = Duration::from_secs(120), 1..=DAY, "the plugin is not loaded";

    /// Size of the [compiled code in memory](#code-in-memory).
    ///
    /// Twenty-five times CPython with its libraries, or more than a thousand small Rust plugins.
    code_bytes: u64 as Bytes = 1 << 30, ANY, "the least recently called code is dropped";

    /// [Idle instances](../how-to/operators.md#instances-that-answer-more-than-one-call) that are kept for further
    /// calls; 0 keeps none.
    ///
    /// With the default limits they use at most half a gigabyte.
    idle_instances: u32 as Count = 16, 0..=1000, "the longest idle instance is dropped";

    /// Time after which an idle instance is dropped.
    instance_idle_timeout: Duration as Time = Duration::from_secs(60), 0..=DAY, "the instance is dropped";

    /// Consecutive faults of a tool; 0 disables the limit.
    breaker_faults: u32 as Count = 10, ANY, "`suspended`", Reloadable;

    /// Time for which the tool is then suspended; doubles each time, up to 64 times this value.
    breaker_pause: Duration as Time = Duration::from_secs(5), 0..=DAY, "`suspended`", Reloadable;

    /// Size of the [saved output](results.md#what-is-saved) of all sessions. Without a state directory it is kept in
    /// memory.
    ///
    /// Sixteen of the largest results.
    saved_output_bytes: u64 as Bytes = 256 << 20, ANY, "the oldest output is removed";

    /// Size of the saved output of one session.
    ///
    /// Four of the largest results.
    saved_output_bytes_per_session: u64 as Bytes = 64 << 20, ANY, "the session's oldest output is removed";

    /// Time for which saved output is kept; at most a day.
    saved_output_age: Duration as Time = Duration::from_secs(24 * 3600), 0..=DAY, "the output is removed";
}

/// The host's connections are divided by this number. One plugin can hold at most this fraction.
const CONNECTION_DIVISOR: u32 = 4;

impl HostLimits {
    /// Largest number of nested callers per nesting level: calls that wait for calls of other tools. They get a
    /// quarter of `parallel_calls`, in addition to it, because they only wait.
    #[must_use]
    pub fn max_nested_callers(&self) -> u32 {
        self.parallel_calls.div_ceil(4)
    }

    /// Connections that one plugin, MCP server or service may have open: a quarter of the host's, at least one.
    #[must_use]
    pub fn connections_per_source(&self) -> u32 {
        self.http_connections.div_ceil(CONNECTION_DIVISOR).max(1)
    }

    /// The keys whose values differ from `other`, without those that a running host can reload.
    #[must_use]
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let both = self.rows().zip(other.values());
        let differ = both.filter(|((entry, own), other)| own != other && !entry.has(LimitFlag::Reloadable));
        differ.map(|((entry, _), _)| entry.key).collect()
    }

    /// The rows for `toolbay explain`.
    #[must_use]
    pub(crate) fn limit_rows(&self) -> Vec<LimitRow> {
        let defaults = Self::default().values();
        let row = |((entry, value), default): ((&super::table::LimitEntry, String), String)| LimitRow {
            key: entry.key,
            set: if value == default { "default".to_owned() } else { format!("[host] {}", entry.key) },
            raise: format!("[host] {} = …", entry.key),
            value,
        };
        self.rows().zip(defaults).map(row).collect()
    }
}
