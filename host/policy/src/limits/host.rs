//! Bounds of the whole host (`[host]`).

use std::time::Duration;

use serde::Deserialize;

use super::{MAX_TIMEOUT, read_bytes, read_bytes_option, read_duration};
use crate::quantity;

/// Bounds of the whole host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostLimits {
    /// Guests that run at once; also sizes the instance pool.
    pub parallel_calls: u32,
    /// Calls that may wait for a place; one more is answered `busy`.
    pub queued_calls: u32,
    /// How long a call may wait for a place before it is answered `busy`.
    #[serde(deserialize_with = "read_duration")]
    pub queue_timeout: Duration,
    /// Bytes of memory of all guests together: linear memories and tables of calls that run and of instances that wait.
    /// `None`: half of what the machine has, 2 GiB at most.
    #[serde(deserialize_with = "read_bytes_option")]
    pub guest_memory: Option<u64>,
    /// Bytes of all results that are not delivered yet. `None`: an eighth of what the machine has, 128 MiB at most.
    #[serde(deserialize_with = "read_bytes_option")]
    pub result_memory: Option<u64>,
    /// Bytes of results that one client has not read; its next call waits. A result that is larger goes alone.
    #[serde(deserialize_with = "read_bytes")]
    pub outbox_bytes: u64,
    /// HTTP and raw connections of all calls that are open at once; of one plugin, server or service a share of them,
    /// [`HostLimits::connections_of_one`].
    pub http_connections: u32,
    /// Programs of all calls that run at once.
    pub processes: u32,
    /// Wall time that compiling one component may take.
    #[serde(deserialize_with = "read_duration")]
    pub compile_timeout: Duration,
    /// Bytes of compiled code that are kept in memory; what was not called for longest is mapped from the cache again.
    #[serde(deserialize_with = "read_bytes")]
    pub code_bytes: u64,
    /// Instances that wait for another call, of plugins with `reuse`; 0: none does.
    pub warm_instances: u32,
    /// How long they wait.
    #[serde(deserialize_with = "read_duration")]
    pub warm_idle: Duration,
    /// Faults of a plugin in a row after which its calls are refused for a while; 0: never.
    pub breaker_faults: u32,
    /// How long calls are refused the first time; twice as long each time after, up to 64 times.
    #[serde(deserialize_with = "read_duration")]
    pub breaker_pause: Duration,
    /// Bytes of all texts that are kept for `read_output`.
    #[serde(deserialize_with = "read_bytes")]
    pub spool_bytes: u64,
    /// The same, of one session.
    #[serde(deserialize_with = "read_bytes")]
    pub spool_session_bytes: u64,
    /// How long such a text is kept.
    #[serde(deserialize_with = "read_duration")]
    pub spool_age: Duration,
}

impl Default for HostLimits {
    fn default() -> Self {
        // 64 places: with the default 64 MiB, all full they take 4 GiB. The queue holds a batch of 10 000.
        Self {
            parallel_calls: 64,
            queued_calls: 16_384,
            queue_timeout: Duration::from_secs(30),
            guest_memory: None,
            result_memory: None,
            // Two of the largest results at once, a thousand of the usual ones.
            outbox_bytes: 32 << 20,
            http_connections: 256,
            processes: 32,
            // SpiderMonkey's 12 MB take sixteen CPU seconds.
            compile_timeout: Duration::from_secs(120),
            // Twenty-five of CPython with its libraries, more than a thousand small ones of Rust.
            code_bytes: 1 << 30,
            // Half of its memory is the most that one keeps: half a gigabyte in all, with the default limit.
            warm_instances: 16,
            warm_idle: Duration::from_secs(60),
            breaker_faults: 10,
            breaker_pause: Duration::from_secs(5),
            // Four of the largest results a session, sixteen in all.
            spool_bytes: 256 << 20,
            spool_session_bytes: 64 << 20,
            spool_age: Duration::from_secs(24 * 3600),
        }
    }
}

/// Least memory for guests that can be set: one instance of the larger interpreters runs in it.
pub const MIN_GUEST_MEMORY: u64 = 32 << 20;
/// Least memory for results that can be set: four times the default result.
pub const MIN_RESULT_MEMORY: u64 = 1 << 20;
/// Least outbox that can be set: one default result.
pub const MIN_OUTBOX: u64 = 256 << 10;

/// Into how many shares the connections of a host are divided: as many plugins as can hold them all only together.
const CONNECTION_SHARES: u32 = 4;

impl HostLimits {
    /// Calls that may call others, on each step into one another, that are under way at once: a quarter of the places,
    /// beside which they are, since they wait for such.
    #[must_use]
    pub fn callers(&self) -> u32 {
        self.parallel_calls.div_ceil(4)
    }

    /// Connections that one plugin, MCP server or service may have open at once, whatever its calls are: a quarter of
    /// the host's, and one at least.
    #[must_use]
    pub fn connections_of_one(&self) -> u32 {
        self.http_connections.div_ceil(CONNECTION_SHARES).max(1)
    }

    /// The keys in which another host's bounds differ that are settled when a host is made. The breaker's are not:
    /// they are read again with the policy.
    #[must_use]
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        // Taken apart, so that a key that is new can not be left out.
        let Self {
            parallel_calls,
            queued_calls,
            queue_timeout,
            guest_memory,
            result_memory,
            outbox_bytes,
            http_connections,
            processes,
            compile_timeout,
            code_bytes,
            warm_instances,
            warm_idle,
            breaker_faults: _,
            breaker_pause: _,
            spool_bytes,
            spool_session_bytes,
            spool_age,
        } = self;
        let differ = [
            ("parallel_calls", *parallel_calls != other.parallel_calls),
            ("queued_calls", *queued_calls != other.queued_calls),
            ("queue_timeout", *queue_timeout != other.queue_timeout),
            ("guest_memory", *guest_memory != other.guest_memory),
            ("result_memory", *result_memory != other.result_memory),
            ("outbox_bytes", *outbox_bytes != other.outbox_bytes),
            ("http_connections", *http_connections != other.http_connections),
            ("processes", *processes != other.processes),
            ("compile_timeout", *compile_timeout != other.compile_timeout),
            ("code_bytes", *code_bytes != other.code_bytes),
            ("warm_instances", *warm_instances != other.warm_instances),
            ("warm_idle", *warm_idle != other.warm_idle),
            ("spool_bytes", *spool_bytes != other.spool_bytes),
            ("spool_session_bytes", *spool_session_bytes != other.spool_session_bytes),
            ("spool_age", *spool_age != other.spool_age),
        ];
        differ.into_iter().filter(|(_, differ)| *differ).map(|(key, _)| key).collect()
    }

    /// Checks the values.
    ///
    /// # Errors
    /// No place at all, or more than the instance pool can hold; no time to compile, or a time without end.
    pub fn check(&self) -> Result<(), String> {
        if self.parallel_calls == 0 || self.parallel_calls > 1000 {
            return Err("`parallel_calls` is from 1 to 1000".to_owned());
        }
        let budgets = [
            ("guest_memory", self.guest_memory, MIN_GUEST_MEMORY),
            ("result_memory", self.result_memory, MIN_RESULT_MEMORY),
            ("outbox_bytes", Some(self.outbox_bytes), MIN_OUTBOX),
        ];
        for (key, bytes, least) in budgets {
            if bytes.is_some_and(|bytes| bytes < least) {
                return Err(format!("`{key}` is at least {}", quantity::show_bytes(least)));
            }
        }
        if self.warm_instances > 1000 {
            return Err("`warm_instances` can be at most 1000".to_owned());
        }
        for (name, duration) in [
            ("queue_timeout", self.queue_timeout),
            ("compile_timeout", self.compile_timeout),
            ("breaker_pause", self.breaker_pause),
            ("warm_idle", self.warm_idle),
            ("spool_age", self.spool_age),
        ] {
            if duration > MAX_TIMEOUT {
                return Err(format!("`{name}` can be at most {}", quantity::show_duration(MAX_TIMEOUT)));
            }
        }
        if self.compile_timeout.is_zero() {
            return Err("`compile_timeout` of zero would let nothing be compiled".to_owned());
        }
        Ok(())
    }
}
