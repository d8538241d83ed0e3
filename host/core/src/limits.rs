//! Every number that bounds a call, with its default and the reason for it.
//!
//! The operator sets them in `[limits]` for all plugins and in `[plugins.ID.limits]` for one; a tool's author may
//! only ask for less. All are on by default.

use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;

use crate::fault::LimitHit;
use crate::name::{PluginId, ToolName};
use crate::quantity;

/// The bounds of one guest entry: a call, a reduction, a metadata query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Units of guest work; about 10 to the 10th make a second of CPU. Deterministic for the same input.
    pub fuel: u64,
    /// Wall time from the first instruction on, waiting host calls included.
    pub timeout: Duration,
    /// Bytes of all linear memories together.
    pub memory_bytes: u64,
    /// Elements of all tables together.
    pub table_elements: u64,
    /// Core instances.
    pub instances: usize,
    /// Linear memories.
    pub memories: usize,
    /// Tables.
    pub tables: usize,
    /// Open handles (streams, files, pollables).
    pub handles: usize,
    /// Bytes that may cross from the guest to the host in one crossing, the result included.
    pub host_call_bytes: u64,
    /// Bytes of the arguments.
    pub args_bytes: u64,
    /// Bytes kept of stdout and stderr, each.
    pub stdio_bytes: u64,
    /// Log lines kept.
    pub log_lines: u32,
    /// Progress events passed on.
    pub progress_events: u32,
    /// Characters of `value` a result may have; `None`: the turn's budget alone decides.
    pub result_chars: Option<u64>,
    /// Limits that `[plugins.ID.limits]` would not raise, and what would.
    pub origins: Vec<(Limit, Origin)>,
}

/// Where a limit was set, if not in a table for the whole plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In the policy's section for this tool.
    Tool(ToolName),
    /// By the tool's author, who may ask for less than the operator allows.
    Author,
    /// By the host, for entries that are no calls.
    Host,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Two seconds of CPU: a grep over tens of megabytes fits, a loop is noticed at once.
            fuel: 20_000_000_000,
            // Below the 60 s after which most MCP clients give up by themselves.
            timeout: Duration::from_secs(30),
            // CPython starts with 13 MiB, SpiderMonkey with 9.
            memory_bytes: 64 << 20,
            // SpiderMonkey has 7 688, CPython 5 670.
            table_elements: 65_536,
            // CPython needs 14 core instances, QuickJS 9.
            instances: 64,
            memories: 8,
            tables: 32,
            // A process often may open 1024 files; no one call is to take them all.
            handles: 256,
            // Far above what a model can read; low enough that 64 calls at once stay within a gigabyte.
            host_call_bytes: 16 << 20,
            args_bytes: 4 << 20,
            stdio_bytes: 64 << 10,
            log_lines: 1000,
            progress_events: 1000,
            result_chars: None,
            origins: Vec::new(),
        }
    }
}

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
}

impl Default for HostLimits {
    fn default() -> Self {
        // 64 places: with the default 64 MiB, all full they take 4 GiB. The queue holds a batch of 10 000.
        Self { parallel_calls: 64, queued_calls: 16_384, queue_timeout: Duration::from_secs(30) }
    }
}

/// A `limits` table of the policy: what is absent stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsPatch {
    fuel: Option<u64>,
    #[serde(deserialize_with = "read_duration_option")]
    timeout: Option<Duration>,
    #[serde(deserialize_with = "read_bytes_option")]
    memory: Option<u64>,
    table_elements: Option<u64>,
    instances: Option<usize>,
    memories: Option<usize>,
    tables: Option<usize>,
    handles: Option<usize>,
    #[serde(deserialize_with = "read_bytes_option")]
    host_call_bytes: Option<u64>,
    #[serde(deserialize_with = "read_bytes_option")]
    args_bytes: Option<u64>,
    #[serde(deserialize_with = "read_bytes_option")]
    stdio_bytes: Option<u64>,
    log_lines: Option<u32>,
    progress_events: Option<u32>,
    result_chars: Option<u64>,
}

/// Largest linear memory that can be allowed: the size of a slot in the instance pool.
pub const MAX_MEMORY_BYTES: u64 = 1 << 30;

/// Longest time-out: later points in time are none for the system.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

impl LimitsPatch {
    /// Writes what the table holds over `limits`.
    #[must_use]
    pub fn apply(&self, mut limits: Limits) -> Limits {
        macro_rules! take {
            ($($from:ident => $to:ident),*) => { $( if let Some(v) = self.$from { limits.$to = v; } )* };
        }
        take!(fuel => fuel, timeout => timeout, memory => memory_bytes, table_elements => table_elements,
              instances => instances, memories => memories, tables => tables, handles => handles,
              host_call_bytes => host_call_bytes, args_bytes => args_bytes, stdio_bytes => stdio_bytes,
              log_lines => log_lines, progress_events => progress_events);
        if self.result_chars.is_some() {
            limits.result_chars = self.result_chars;
        }
        limits
    }

    /// Writes what a tool's own section holds over `limits`.
    #[must_use]
    pub fn apply_to_tool(&self, limits: Limits, tool: &ToolName) -> Limits {
        let mut limits = self.apply(limits);
        let set = [
            (self.fuel.is_some(), Limit::Fuel),
            (self.timeout.is_some(), Limit::Timeout),
            (self.memory.is_some(), Limit::Memory),
            (self.table_elements.is_some(), Limit::TableElements),
            (self.instances.is_some(), Limit::Instances),
            (self.memories.is_some(), Limit::Memories),
            (self.tables.is_some(), Limit::Tables),
            (self.handles.is_some(), Limit::Handles),
            (self.host_call_bytes.is_some(), Limit::HostCallBytes),
            (self.args_bytes.is_some(), Limit::ArgsBytes),
        ];
        for (_, limit) in set.into_iter().filter(|(set, _)| *set) {
            limits.origins.push((limit, Origin::Tool(tool.clone())));
        }
        limits
    }

    /// Says what in the table can not be had.
    ///
    /// # Errors
    /// A zero that would stop every call, or a memory above [`MAX_MEMORY_BYTES`].
    pub fn check(&self) -> Result<(), String> {
        if self.memory.is_some_and(|m| m > MAX_MEMORY_BYTES) {
            return Err(format!("`memory` can be at most {}", quantity::show_bytes(MAX_MEMORY_BYTES)));
        }
        if self.timeout.is_some_and(|t| t.is_zero()) {
            return Err("`timeout` of zero would end every call: write for instance `30s`".to_owned());
        }
        if self.timeout.is_some_and(|t| t > MAX_TIMEOUT) {
            return Err(format!("`timeout` can be at most {}", quantity::show_duration(MAX_TIMEOUT)));
        }
        for (key, value, most) in
            [("instances", self.instances, 64), ("memories", self.memories, 8), ("tables", self.tables, 32)]
        {
            if value.is_some_and(|value| value > most) {
                return Err(format!(
                    "`{key}` can be at most {most}: so many fit in a place of the instance pool"
                ));
            }
        }
        if self.fuel == Some(0) {
            return Err("`fuel` of zero would end every call".to_owned());
        }
        Ok(())
    }
}

/// The limits by the key under which the policy sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `fuel`
    Fuel,
    /// `timeout`
    Timeout,
    /// `memory`
    Memory,
    /// `table_elements`
    TableElements,
    /// `instances`
    Instances,
    /// `memories`
    Memories,
    /// `tables`
    Tables,
    /// `handles`
    Handles,
    /// `host_call_bytes`
    HostCallBytes,
    /// `args_bytes`
    ArgsBytes,
}

impl Limits {
    /// Describes one limit as the reason of a fault.
    #[must_use]
    pub fn hit(&self, limit: Limit, plugin: &PluginId) -> LimitHit {
        let (name, value) = match limit {
            Limit::Fuel => ("fuel", self.fuel.to_string()),
            Limit::Timeout => ("timeout", quantity::show_duration(self.timeout)),
            Limit::Memory => ("memory", quantity::show_bytes(self.memory_bytes)),
            Limit::TableElements => ("table_elements", self.table_elements.to_string()),
            Limit::Instances => ("instances", self.instances.to_string()),
            Limit::Memories => ("memories", self.memories.to_string()),
            Limit::Tables => ("tables", self.tables.to_string()),
            Limit::Handles => ("handles", self.handles.to_string()),
            Limit::HostCallBytes => ("host_call_bytes", quantity::show_bytes(self.host_call_bytes)),
            Limit::ArgsBytes => ("args_bytes", quantity::show_bytes(self.args_bytes)),
        };
        let setting = match self.origins.iter().rev().find(|(of, _)| *of == limit) {
            None => format!("[plugins.{plugin}.limits] {name} = …"),
            Some((_, Origin::Tool(tool))) => format!("[plugins.{plugin}.tools.{tool}.limits] {name} = …"),
            Some((_, Origin::Author)) => format!("nothing: the author of the tool asked for this `{name}`"),
            Some((_, Origin::Host)) => {
                format!("nothing: the host fixes this `{name}` for entries that are no calls")
            }
        };
        LimitHit { name, value, setting }
    }

    /// Lowers the time-out to what a tool's author asks for.
    pub fn ask_timeout(&mut self, asked: Duration) {
        if asked < self.timeout {
            self.timeout = asked;
            self.origins.push((Limit::Timeout, Origin::Author));
        }
    }

    /// Lowers fuel and time-out to what the host gives an entry that is no call.
    pub fn seal(&mut self, fuel: u64, timeout: Duration) {
        if fuel < self.fuel {
            self.fuel = fuel;
            self.origins.push((Limit::Fuel, Origin::Host));
        }
        if timeout < self.timeout {
            self.timeout = timeout;
            self.origins.push((Limit::Timeout, Origin::Host));
        }
    }
}

/// What one guest entry used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Fuel consumed.
    pub fuel: u64,
    /// Wall time in microseconds, without waiting for a place.
    pub wall_us: u64,
    /// Time spent waiting for a place, in microseconds.
    pub queued_us: u64,
    /// Largest sum of linear memories, in bytes.
    pub peak_memory_bytes: u64,
    /// Bytes of the arguments.
    pub args_bytes: u64,
    /// Bytes of the result as the guest returned it.
    pub result_bytes: u64,
}

fn read_duration<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(input)?;
    quantity::duration(&text).map_err(serde::de::Error::custom)
}

fn read_duration_option<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    read_duration(input).map(Some)
}

fn read_bytes_option<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(u64),
        Text(String),
    }
    match Size::deserialize(input)? {
        Size::Number(n) => Ok(Some(n)),
        Size::Text(text) => quantity::bytes(&text).map(Some).map_err(serde::de::Error::custom),
    }
}
