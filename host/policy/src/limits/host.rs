//! Bounds of the whole host (`[host]`).

use std::time::Duration;

use super::table::{LimitRow, LimitTable, LimitFlag, limit_table};
use crate::quantity::unit::{ANY, DAY};

/// Least memory for guests that can be set: one instance of the larger interpreters runs in it.
pub const MIN_GUEST_MEMORY: u64 = 32 << 20;
/// Least memory for results that can be set: four times the default result.
pub const MIN_RESULT_MEMORY: u64 = 1 << 20;
/// Least outbox that can be set: one default result.
pub const MIN_OUTBOX: u64 = 256 << 10;

limit_table! {
    /// Bounds of the whole host.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HostLimits {}
    patch HostLimitsPatch; keys [];

    /// Calls that run at once, 1 to 1000; also sizes the instance pool, at least 2 GiB of address space each.
    ///
    /// With the default `memory` of 64 MiB they take 4 GiB together.
    parallel_calls: u32 as Count = 64, 1..=1000, "the call waits";

    /// Calls that wait.
    ///
    /// A batch of 10 000 fits.
    queued_calls: u32 as Count = 16_384, ANY, "`busy`, for the plugin that has most of them";

    /// How long a call waits.
    queue_timeout: Duration as Time = Duration::from_secs(30), 0..=DAY, "`busy`";

    /// [Memory of all guests together](#memory-of-the-host): of calls that run and of idle instances.
    guest_memory: Option<u64> as Bytes = None => "half of the memory, 2 GiB at most", MIN_GUEST_MEMORY..=u64::MAX,
        "idle instances go; the call waits, then `busy`";

    /// [Results of all calls that are not delivered yet](#memory-of-the-host).
    result_memory: Option<u64> as Bytes = None => "an eighth of the memory, 128 MiB at most",
        MIN_RESULT_MEMORY..=u64::MAX, "the call waits for calls that run, then `busy`";

    /// Results that one MCP client has not read; half of `result_memory` at most.
    ///
    /// Two of the largest results at once, a thousand of the usual ones.
    outbox_bytes: u64 as Bytes = 32 << 20, MIN_OUTBOX..=u64::MAX, "its next call waits, then `busy`";

    /// Requests and raw connections of all calls that are open at once; a plugin, MCP server or service has a quarter of
    /// them at most, and a quarter is kept for first connections.
    http_connections: u32 as Count = 256, ANY, "it waits, then the interface's error";

    /// Programs of all calls that run at once.
    processes: u32 as Count = 32, ANY, "the interface's error";

    /// Wall time that compiling a component takes.
    ///
    /// SpiderMonkey's 12 MB take sixteen CPU seconds.
    compile_timeout: Duration as Time = Duration::from_secs(120), 1..=DAY, "the plugin is not loaded";

    /// [Compiled code that is kept in memory](#code-in-memory).
    ///
    /// Twenty-five times CPython with its libraries, more than a thousand small plugins in Rust.
    code_bytes: u64 as Bytes = 1 << 30, ANY, "the code that has not been called for longest is dropped";

    /// Instances that [wait for another call](../how-to/operators.md#instances-that-answer-more-than-one-call); 0: none.
    ///
    /// With the default limits they keep at most half a gigabyte together.
    idle_instances: u32 as Count = 16, 0..=1000, "the one that has waited longest is dropped";

    /// How long they wait.
    instance_idle_timeout: Duration as Time = Duration::from_secs(60), 0..=DAY, "it is dropped";

    /// Faults of a tool in a row; 0: any number.
    breaker_faults: u32 as Count = 10, ANY, "`suspended`", Reloadable;

    /// How long the tool is then not called; twice as long each time after, up to 64 times.
    breaker_pause: Duration as Time = Duration::from_secs(5), 0..=DAY, "`suspended`", Reloadable;

    /// What is [kept of results](results.md#what-is-kept), of all sessions; in memory if there is no state directory.
    ///
    /// Sixteen of the largest results.
    saved_output_bytes: u64 as Bytes = 256 << 20, ANY, "the oldest are removed";

    /// The same, of one session.
    ///
    /// Four of the largest results.
    saved_output_bytes_per_session: u64 as Bytes = 64 << 20, ANY, "its oldest are removed";

    /// How long it is kept; at most a day.
    saved_output_age: Duration as Time = Duration::from_secs(24 * 3600), 0..=DAY, "it is removed";
}

/// Into how many shares the connections of a host are divided: as many plugins as can hold them all only together.
const CONNECTION_DIVISOR: u32 = 4;

impl HostLimits {
    /// Calls that may call others, on each step into one another, that are under way at once: a quarter of the places,
    /// beside which they are, since they wait for such.
    #[must_use]
    pub fn max_nested_callers(&self) -> u32 {
        self.parallel_calls.div_ceil(4)
    }

    /// Connections that one plugin, MCP server or service may have open at once, whatever its calls are: a quarter of
    /// the host's, and one at least.
    #[must_use]
    pub fn connections_per_source(&self) -> u32 {
        self.http_connections.div_ceil(CONNECTION_DIVISOR).max(1)
    }

    /// The keys in which another host's bounds differ, without those that a running host takes over with the policy.
    #[must_use]
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let both = self.rows().zip(other.values());
        let differ = both.filter(|((entry, own), other)| own != other && !entry.has(LimitFlag::Reloadable));
        differ.map(|((entry, _), _)| entry.key).collect()
    }

    /// The rows for people.
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
