//! Every number that bounds a call, with its default and the reason for it.
//!
//! The operator sets them in `[limits]` for all plugins and in `[plugins.ID.limits]` for one; a tool's author may
//! only ask for less. All are on by default.

mod fuel;
mod hit;
mod host;
mod read;
pub mod table;

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;

pub use hit::LimitHit;
pub use host::{HostLimits, MIN_GUEST_MEMORY, MIN_OUTBOX, MIN_RESULT_MEMORY};
pub(crate) use read::{read_age, read_bytes, read_bytes_option, read_duration};

use self::fuel::Fuel;
use self::read::read_duration_option;
use crate::name::{PluginId, ToolName};
use crate::quantity;

/// The bounds of one guest entry: a call, a reduction, a metadata query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Units of guest work; about 10 to the 10th make a second of CPU. Deterministic for the same input. `None`: it is not
    /// counted, which costs less, and the time-out bounds it.
    pub fuel: Option<u64>,
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
    /// Log lines a second.
    pub log_rate: u32,
    /// Progress events passed on.
    pub progress_events: u32,
    /// Progress events a second.
    pub progress_rate: u32,
    /// HTTP requests and raw connections of one call, redirects included.
    pub http_requests: u32,
    /// Requests and raw connections of one call that are open at once.
    pub http_connections: u32,
    /// Bytes of all requests and responses of one call together, after decoding.
    pub http_bytes: u64,
    /// Programs that one call may start.
    pub processes: u32,
    /// Bytes of one program's stdin, stdout and stderr, each.
    pub process_bytes: u64,
    /// Bytes of one value in the key-value store.
    pub kv_value_bytes: u64,
    /// Bytes of all keys and values of a plugin together.
    pub kv_bytes: u64,
    /// Keys of a plugin.
    pub kv_keys: u64,
    /// Bytes that one call may write to files.
    pub file_bytes: u64,
    /// Files and folders that one call may make.
    pub file_entries: u32,
    /// Attachments that one call may make.
    pub attachments: u32,
    /// Bytes of all attachments that one call makes.
    pub attachment_bytes: u64,
    /// Calls of other tools to which one call may lead, those included that they make themselves.
    pub invocations: u32,
    /// Of the calls that it makes together, those that run at once.
    pub invocations_at_once: u32,
    /// Calls of one plugin that run at once.
    pub concurrency: u32,
    /// Characters of `value` a result may have; `None`: the turn's budget alone decides.
    pub result_chars: Option<u64>,
    /// Bytes of a result beside its text: `structured`, all content blocks and `meta` together. Not for what a tool tells
    /// another tool.
    pub result_bytes: u64,
    /// Limits that `[plugins.ID.limits]` would not raise, and what would.
    pub origins: Vec<(Limit, Origin)>,
    /// The table that sets them, for what is no plugin: `openapi.pets`.
    pub table: Option<Arc<str>>,
}

/// The keys that say something of a tool that runs no guest code.
pub(crate) const SERVICE_KEYS: [&str; 8] = [
    "timeout",
    "host_call_bytes",
    "args_bytes",
    "http_requests",
    "http_bytes",
    "concurrency",
    "result_chars",
    "result_bytes",
];

/// Bytes of a result beside its text, unless the policy says otherwise: three times the text that a model gets of a turn.
pub const DEFAULT_RESULT_BYTES: u64 = 256 << 10;

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
            fuel: Some(20_000_000_000),
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
            log_rate: 200,
            progress_events: 1000,
            // What a person can read; a terminal or a chat is not to be flooded.
            progress_rate: 20,
            // A crawl over a site's pages fits; a scan of a network does not.
            http_requests: 64,
            http_connections: 8,
            http_bytes: 64 << 20,
            processes: 16,
            process_bytes: 1 << 20,
            kv_value_bytes: 1 << 20,
            kv_bytes: 16 << 20,
            kv_keys: 10_000,
            file_bytes: 256 << 20,
            file_entries: 1000,
            attachments: 16,
            attachment_bytes: 32 << 20,
            // Five times the twenty calls that a program stands for; a program in a loop is noticed.
            invocations: 100,
            invocations_at_once: 8,
            // A quarter of the places: four plugins whose calls all wait still leave some to a fifth.
            concurrency: 16,
            result_chars: None,
            result_bytes: DEFAULT_RESULT_BYTES,
            origins: Vec::new(),
            table: None,
        }
    }
}

/// A `limits` table of the policy: what is absent stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsPatch {
    fuel: Option<Fuel>,
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
    log_rate: Option<u32>,
    progress_events: Option<u32>,
    progress_rate: Option<u32>,
    http_requests: Option<u32>,
    http_connections: Option<u32>,
    #[serde(deserialize_with = "read_bytes_option")]
    http_bytes: Option<u64>,
    processes: Option<u32>,
    #[serde(deserialize_with = "read_bytes_option")]
    process_bytes: Option<u64>,
    #[serde(deserialize_with = "read_bytes_option")]
    kv_value_bytes: Option<u64>,
    #[serde(deserialize_with = "read_bytes_option")]
    kv_bytes: Option<u64>,
    kv_keys: Option<u64>,
    #[serde(deserialize_with = "read_bytes_option")]
    file_bytes: Option<u64>,
    file_entries: Option<u32>,
    attachments: Option<u32>,
    #[serde(deserialize_with = "read_bytes_option")]
    attachment_bytes: Option<u64>,
    invocations: Option<u32>,
    invocations_at_once: Option<u32>,
    concurrency: Option<u32>,
    result_chars: Option<u64>,
    #[serde(deserialize_with = "read_bytes_option")]
    result_bytes: Option<u64>,
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
        take!(timeout => timeout, memory => memory_bytes, table_elements => table_elements,
              instances => instances, memories => memories, tables => tables, handles => handles,
              host_call_bytes => host_call_bytes, args_bytes => args_bytes, stdio_bytes => stdio_bytes,
              log_lines => log_lines, log_rate => log_rate, progress_events => progress_events,
              progress_rate => progress_rate, http_requests => http_requests,
              http_connections => http_connections, http_bytes => http_bytes, processes => processes,
              process_bytes => process_bytes, kv_value_bytes => kv_value_bytes, kv_bytes => kv_bytes,
              kv_keys => kv_keys, file_bytes => file_bytes, file_entries => file_entries,
              attachments => attachments, attachment_bytes => attachment_bytes, invocations => invocations,
              invocations_at_once => invocations_at_once, concurrency => concurrency, result_bytes => result_bytes);
        if let Some(fuel) = self.fuel {
            limits.fuel = fuel.units();
        }
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
            (self.http_requests.is_some(), Limit::HttpRequests),
            (self.http_connections.is_some(), Limit::HttpConnections),
            (self.http_bytes.is_some(), Limit::HttpBytes),
            (self.processes.is_some(), Limit::Processes),
            (self.process_bytes.is_some(), Limit::ProcessBytes),
            (self.kv_value_bytes.is_some(), Limit::KvValueBytes),
            (self.kv_bytes.is_some(), Limit::KvBytes),
            (self.kv_keys.is_some(), Limit::KvKeys),
            (self.file_bytes.is_some(), Limit::FileBytes),
            (self.file_entries.is_some(), Limit::FileEntries),
            (self.attachments.is_some(), Limit::Attachments),
            (self.attachment_bytes.is_some(), Limit::AttachmentBytes),
            (self.invocations.is_some(), Limit::Invocations),
            (self.result_bytes.is_some(), Limit::ResultBytes),
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
        if self.fuel == Some(Fuel::Units(0)) {
            return Err("`fuel` of zero would end every call; `\"none\"` counts no work".to_owned());
        }
        if self.invocations_at_once == Some(0) {
            return Err("`invocations_at_once` of zero would let no call run: `invocations = 0` allows none"
                .to_owned());
        }
        if self.concurrency == Some(0) {
            return Err("`concurrency` of zero would let no call run".to_owned());
        }
        Ok(())
    }

    /// Says what in a tool's table can not be had.
    ///
    /// # Errors
    /// As [`LimitsPatch::check`]; and what counts for a whole plugin can not be set for one of its tools.
    pub fn check_tool(&self) -> Result<(), String> {
        if self.concurrency.is_some() {
            return Err("`concurrency` is for a whole plugin: write it in [plugins.ID.limits]".to_owned());
        }
        self.check()
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
    /// `http_requests`
    HttpRequests,
    /// `http_connections`
    HttpConnections,
    /// `http_bytes`
    HttpBytes,
    /// `processes`
    Processes,
    /// `process_bytes`
    ProcessBytes,
    /// `kv_value_bytes`
    KvValueBytes,
    /// `kv_bytes`
    KvBytes,
    /// `kv_keys`
    KvKeys,
    /// `file_bytes`
    FileBytes,
    /// `file_entries`
    FileEntries,
    /// `attachments`
    Attachments,
    /// `attachment_bytes`
    AttachmentBytes,
    /// `invocations`
    Invocations,
    /// `concurrency`
    Concurrency,
    /// `result_bytes`
    ResultBytes,
}

impl Limits {
    /// Describes one limit as the reason of a fault.
    #[must_use]
    pub fn hit(&self, limit: Limit, plugin: &PluginId) -> LimitHit {
        let (name, value) = match limit {
            Limit::Fuel => ("fuel", fuel::shown(self.fuel)),
            Limit::Timeout => ("timeout", quantity::show_duration(self.timeout)),
            Limit::Memory => ("memory", quantity::show_bytes(self.memory_bytes)),
            Limit::TableElements => ("table_elements", self.table_elements.to_string()),
            Limit::Instances => ("instances", self.instances.to_string()),
            Limit::Memories => ("memories", self.memories.to_string()),
            Limit::Tables => ("tables", self.tables.to_string()),
            Limit::Handles => ("handles", self.handles.to_string()),
            Limit::HostCallBytes => ("host_call_bytes", quantity::show_bytes(self.host_call_bytes)),
            Limit::ArgsBytes => ("args_bytes", quantity::show_bytes(self.args_bytes)),
            Limit::HttpRequests => ("http_requests", self.http_requests.to_string()),
            Limit::HttpConnections => ("http_connections", self.http_connections.to_string()),
            Limit::HttpBytes => ("http_bytes", quantity::show_bytes(self.http_bytes)),
            Limit::Processes => ("processes", self.processes.to_string()),
            Limit::ProcessBytes => ("process_bytes", quantity::show_bytes(self.process_bytes)),
            Limit::KvValueBytes => ("kv_value_bytes", quantity::show_bytes(self.kv_value_bytes)),
            Limit::KvBytes => ("kv_bytes", quantity::show_bytes(self.kv_bytes)),
            Limit::KvKeys => ("kv_keys", self.kv_keys.to_string()),
            Limit::FileBytes => ("file_bytes", quantity::show_bytes(self.file_bytes)),
            Limit::FileEntries => ("file_entries", self.file_entries.to_string()),
            Limit::Attachments => ("attachments", self.attachments.to_string()),
            Limit::AttachmentBytes => ("attachment_bytes", quantity::show_bytes(self.attachment_bytes)),
            Limit::Invocations => ("invocations", self.invocations.to_string()),
            Limit::Concurrency => ("concurrency", self.concurrency.to_string()),
            Limit::ResultBytes => ("result_bytes", quantity::show_bytes(self.result_bytes)),
        };
        let table = self.table.as_deref().map_or_else(|| format!("plugins.{plugin}"), str::to_owned);
        let setting = match self.origins.iter().rev().find(|(of, _)| *of == limit) {
            None => format!("[{table}.limits] {name} = …"),
            Some((_, Origin::Tool(tool))) => format!("[{table}.tools.{tool}.limits] {name} = …"),
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

    /// Lowers fuel and time-out to what the host gives an entry that is no call. Without fuel the time-out alone bounds it.
    pub fn seal(&mut self, fuel: u64, timeout: Duration) {
        if self.fuel.is_some_and(|own| fuel < own) {
            self.fuel = Some(fuel);
            self.origins.push((Limit::Fuel, Origin::Host));
        }
        if timeout < self.timeout {
            self.timeout = timeout;
            self.origins.push((Limit::Timeout, Origin::Host));
        }
    }
}

/// What one guest entry used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Fuel consumed; `None`: a guest ran whose work is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
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

impl Default for Usage {
    /// Nothing ran.
    fn default() -> Self {
        Self { fuel: Some(0), wall_us: 0, queued_us: 0, peak_memory_bytes: 0, args_bytes: 0, result_bytes: 0 }
    }
}
