//! The limits of a call (`[limits]`, `[plugins.ID.limits]`, `limits` of a tool).

use std::sync::Arc;
use std::time::Duration;

use super::table::{LimitEntry, LimitRow, LimitTable, LimitFlag, limit_table};
use super::{LimitHit, LimitOrigin};
use crate::name::{PluginId, ToolName};
use crate::quantity::unit::{ANY, DAY, POSITIVE};

/// Largest linear memory that can be allowed: the size of a slot in the instance pool.
pub const MAX_MEMORY_BYTES: u64 = 1 << 30;

/// Bytes of a result beside its text, unless the policy says otherwise: three times the text that a model gets of a turn.
pub const DEFAULT_RESULT_BYTES: u64 = 256 << 10;

limit_table! {
    /// The bounds of one guest entry: a call, a reduction, a metadata query.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CallLimits {
        /// Limits that `[plugins.ID.limits]` would not raise, and what would.
        pub origins: Vec<(&'static str, LimitOrigin)>,
        /// The table that sets them, for tools that belong to no plugin: `openapi.pets`.
        pub table: Option<Arc<str>>,
    }
    patch CallLimitsPatch; keys [Limit];

    /// Guest work of a call; about 10 to the 10th make a second of CPU. `"none"`: it is
    /// [not counted](#work-that-is-not-counted).
    ///
    /// Two seconds of CPU: a grep over tens of megabytes fits, a loop is noticed at once.
    [Fuel] fuel: Option<u64> as Fuel = Some(20_000_000_000), POSITIVE, "`out_of_fuel`";

    /// Wall time of a call, waiting host calls included; at most a day.
    ///
    /// Below the 60 s after which most MCP clients give up.
    [Timeout] timeout: Duration as Time = Duration::from_secs(30), 1..=DAY, "`deadline`", AppliesToServices;

    /// All linear memories of a call together; at most `1GiB`.
    ///
    /// CPython starts with 13 MiB, SpiderMonkey with 9.
    [Memory] memory: u64 as Bytes = 64 << 20, 0..=MAX_MEMORY_BYTES,
        "growth is refused; `out_of_memory` if the guest dies of it";

    /// All tables of a call together.
    ///
    /// SpiderMonkey has 7 688 elements, CPython 5 670.
    [TableElements] table_elements: u64 as Count = 65_536, ANY, "as `memory`";

    /// Core instances in a component; at most 64, which fit in a slot of the instance pool.
    ///
    /// CPython needs 14, QuickJS 9.
    [Instances] instances: usize as Count = 64, 0..=64, "`out_of_memory`";

    /// Linear memories; at most 8.
    [Memories] memories: usize as Count = 8, 0..=8, "`out_of_memory`";

    /// Tables; at most 32.
    [Tables] tables: usize as Count = 32, 0..=32, "`out_of_memory`";

    /// Open streams, files, pollables; and forty times as many handles that a guest makes for itself.
    ///
    /// A process may often open 1024 files; one call must not take them all.
    [Handles] handles: usize as Count = 256, ANY, "`out_of_memory`";

    /// What crosses from guest to host at once, the result included; a 32nd of it in calls of a foreign function whose
    /// result has flags in it.
    ///
    /// Far above what a model can read; low enough that 64 calls at once stay within a gigabyte.
    [HostCallBytes] host_call_bytes: u64 as Bytes = 16 << 20, ANY, "`output_too_large`", AppliesToServices;

    /// Arguments of a call.
    [ArgsBytes] args_bytes: u64 as Bytes = 4 << 20, ANY, "`input_invalid`, nothing runs", AppliesToServices;

    /// What is kept of stdout and of stderr.
    [StdioBytes] stdio_bytes: u64 as Bytes = 64 << 10, ANY, "the rest is dropped and counted";

    /// Log lines of a call.
    [LogLines] log_lines: u32 as Count = 1000, ANY, "the rest is dropped and counted";

    /// Log lines of a call a second; a second's worth may come at once.
    [LogRate] log_rate: u32 as Count = 200, ANY, "the same";

    /// Progress events of a call.
    [ProgressEvents] progress_events: u32 as Count = 1000, ANY, "the rest is dropped";

    /// Progress events of a call a second; a second's worth may come at once.
    ///
    /// What a person can read, so that a terminal or a chat is not flooded.
    [ProgressRate] progress_rate: u32 as Count = 20, ANY, "the same";

    /// Requests and raw connections of a call, redirects included.
    ///
    /// A crawl over a site's pages fits; a scan of a network does not.
    [HttpRequests] http_requests: u32 as Count = 64, ANY, "the interface's error", AppliesToServices;

    /// Requests and raw connections of a call that are open at once.
    [HttpConnections] http_connections: u32 as Count = 8, ANY, "the interface's error";

    /// Bytes of all requests and responses of a call, after decoding.
    [HttpBytes] http_bytes: u64 as Bytes = 64 << 20, ANY, "the interface's error", AppliesToServices;

    /// Programs that a call may start.
    [Processes] processes: u32 as Count = 16, ANY, "the interface's error";

    /// Stdin, stdout and stderr of a program, each.
    [ProcessBytes] process_bytes: u64 as Bytes = 1 << 20, ANY, "the interface's error";

    /// One value in the key-value store.
    [KvValueBytes] kv_value_bytes: u64 as Bytes = 1 << 20, ANY, "the interface's error";

    /// All keys and values of a plugin.
    [KvBytes] kv_bytes: u64 as Bytes = 16 << 20, ANY, "the interface's error";

    /// Keys of a plugin.
    [KvKeys] kv_keys: u64 as Count = 10_000, ANY, "the interface's error";

    /// Bytes that a call may write to files.
    [FileBytes] file_bytes: u64 as Bytes = 256 << 20, ANY, "the interface's error";

    /// Files and folders that a call may make.
    [FileEntries] file_entries: u32 as Count = 1000, ANY, "the interface's error";

    /// Attachments that a call may make.
    [Attachments] attachments: u32 as Count = 16, ANY, "the interface's error";

    /// All attachments that a call makes.
    [AttachmentBytes] attachment_bytes: u64 as Bytes = 32 << 20, ANY, "the interface's error";

    /// Calls of other tools to which a call leads, directly or through the tools that it calls.
    ///
    /// Five times the twenty calls that a program stands for; a program in a loop is noticed.
    [Invocations] invocations: u32 as Count = 100, ANY, "the interface's error";

    /// Of the calls that a call makes together, how many run at once.
    [InvocationsAtOnce] invocations_at_once: u32 as Count = 8, POSITIVE, "the others wait";

    /// Calls of a plugin that run at once; not for a single tool.
    ///
    /// A quarter of the places: four plugins whose calls all wait still leave some to a fifth.
    [Concurrency] concurrency: u32 as Count = 16, POSITIVE, "the call waits, then `busy`", AppliesToServices, PerPlugin;

    /// Characters of a result's text and of the texts of its blocks, names and addresses included; not of `structured`.
    [ResultChars] result_chars: Option<u64> as Count = None => "none", ANY,
        "it is cut, and says so; a block whose names do not fit is left out", AppliesToServices;

    /// Bytes of a result beside its texts: `structured`, the data of all content blocks (pictures and the like, before
    /// base64) and `meta` together; not of what one tool tells another.
    [ResultBytes] result_bytes: u64 as Bytes = DEFAULT_RESULT_BYTES, ANY, "`output_too_large`", AppliesToServices;
}

impl CallLimitsPatch {
    /// Writes what a tool's own section says over `limits`.
    #[must_use]
    pub fn apply_to_tool(&self, limits: CallLimits, tool: &ToolName) -> CallLimits {
        let mut limits = self.apply(limits);
        limits.origins.extend(CallLimits::keys_of(self).into_iter().map(|key| (key, LimitOrigin::Tool(tool.clone()))));
        limits
    }

    /// Refuses values outside of their ranges.
    ///
    /// # Errors
    /// Names the key and the range.
    pub fn check(&self) -> Result<(), String> {
        self.apply(CallLimits::default()).check_ranges()
    }

    /// Checks the table of a single tool in a section of a plugin or a service, `plugins.ID`.
    ///
    /// # Errors
    /// As [`LimitsPatch::check`]; and a limit that counts for a whole plugin.
    pub(crate) fn check_tool(&self, section: &str) -> Result<(), String> {
        match self.find(|entry| entry.has(LimitFlag::PerPlugin)) {
            Some(key) => Err(format!("`{key}` is for a whole plugin: write it in [{section}.limits]")),
            None => self.check(),
        }
    }

    /// Refuses keys without effect on a tool that runs no guest code.
    ///
    /// # Errors
    /// Names the key, and those that have an effect.
    pub(crate) fn check_service(&self) -> Result<(), String> {
        let Some(key) = self.find(|entry| !entry.has(LimitFlag::AppliesToServices)) else { return Ok(()) };
        let known: Vec<String> =
            CallLimits::ENTRIES.iter().filter(|e| e.has(LimitFlag::AppliesToServices)).map(|e| format!("`{}`", e.key)).collect();
        Err(format!(
            "`{key}` bounds the code of a plugin, and a service runs none; there are {}",
            known.join(", ")
        ))
    }

    /// The first key that it sets of those that `wanted` chooses.
    fn find(&self, wanted: impl Fn(&LimitEntry) -> bool) -> Option<&'static str> {
        let set = CallLimits::keys_of(self);
        CallLimits::ENTRIES.iter().find(|entry| set.contains(&entry.key) && wanted(entry)).map(|entry| entry.key)
    }
}

impl CallLimits {
    /// Describes one limit as the reason of a fault.
    #[must_use]
    pub fn hit(&self, limit: Limit, plugin: &PluginId) -> LimitHit {
        let name = limit.name();
        let value = self.rows().find(|(entry, _)| entry.key == name).map(|(_, value)| value);
        let table = self.table.as_deref().map_or_else(|| format!("plugins.{plugin}"), str::to_owned);
        let setting = match self.origins.iter().rev().find(|(of, _)| *of == name) {
            None => format!("[{table}.limits] {name} = …"),
            Some((_, LimitOrigin::Tool(tool))) => format!("[{table}.tools.{tool}.limits] {name} = …"),
            Some((_, LimitOrigin::Author)) => format!("nothing: the author of the tool asked for this `{name}`"),
            Some((_, LimitOrigin::Host)) => {
                format!("nothing: the host fixes this `{name}` for entries that are no calls")
            }
        };
        LimitHit { name, value: value.unwrap_or_default(), setting }
    }

    /// Lowers the time-out to what a tool's author asks for.
    pub fn lower_timeout(&mut self, asked: Duration) {
        if asked < self.timeout {
            self.timeout = asked;
            self.origins.push((Limit::Timeout.name(), LimitOrigin::Author));
        }
    }

    /// Lowers fuel and time-out to what the host gives an entry that is no call. Without fuel the time-out alone bounds it.
    pub fn cap_fuel_and_timeout(&mut self, fuel: u64, timeout: Duration) {
        if self.fuel.is_some_and(|own| fuel < own) {
            self.fuel = Some(fuel);
            self.origins.push((Limit::Fuel.name(), LimitOrigin::Host));
        }
        if timeout < self.timeout {
            self.timeout = timeout;
            self.origins.push((Limit::Timeout.name(), LimitOrigin::Host));
        }
    }
}

/// A `limits` table with its name in the policy.
pub(crate) type Layer<'a> = (&'a CallLimitsPatch, String);

/// The rows of a tool's limits. `layers` are the tables that were applied, the last of which wins; `asked_chars` is
/// the longest result that the tool's author wants.
#[must_use]
pub(crate) fn limit_rows(limits: &CallLimits, layers: &[Layer<'_>], asked_chars: Option<u64>) -> Vec<LimitRow> {
    let chars = limits.result_chars.into_iter().chain(asked_chars).min();
    let by_author = |key: &str| match key {
        "timeout" => limits.origins.contains(&(Limit::Timeout.name(), LimitOrigin::Author)),
        "result_chars" => chars != limits.result_chars,
        _ => false,
    };
    let row = |(entry, value): (&LimitEntry, String)| {
        let key = entry.key;
        let sets = |patch: &CallLimitsPatch| CallLimits::keys_of(patch).contains(&key);
        let table = layers.iter().rev().find(|(patch, _)| sets(patch)).map(|(_, table)| table);
        // A narrower table wins, so a line goes where the last one stands, and else to the plugin's.
        let last_but_all = layers.iter().skip(1).rev().find(|(patch, _)| sets(patch)).or(layers.get(1));
        let (set, raise) = if by_author(key) {
            ("the tool's author".to_owned(), "nothing: the author asked for this".to_owned())
        } else {
            let raise = last_but_all.map_or_else(String::new, |(_, table)| format!("{table} {key} = …"));
            (table.map_or_else(|| "default".to_owned(), |table| format!("{table} {key}")), raise)
        };
        LimitRow { key, value, set, raise }
    };
    CallLimits { result_chars: chars, ..limits.clone() }
        .rows()
        .map(|(entry, value)| row((entry, value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_the_table_that_set_it() {
        let patch = |text: &str| toml::from_str::<CallLimitsPatch>(text).unwrap();
        let (all, own, tool) = (patch("fuel = 5\nhandles = 9"), patch("fuel = 6"), patch("memory = '1MiB'"));
        let layers = [(&all, "[limits]".to_owned()), (&own, "[p]".to_owned()), (&tool, "[p.t]".to_owned())];
        let mut limits = tool.apply(own.apply(all.apply(CallLimits::default())));
        limits.lower_timeout(Duration::from_secs(1));
        let rows = limit_rows(&limits, &layers, Some(10));
        let row = |key: &str| rows.iter().find(|row| row.key == key).unwrap();
        for (key, value, set, raise) in [
            ("fuel", "6", "[p] fuel", "[p] fuel = …"),
            ("handles", "9", "[limits] handles", "[p] handles = …"),
            ("memory", "1MiB", "[p.t] memory", "[p.t] memory = …"),
            ("tables", "32", "default", "[p] tables = …"),
            ("timeout", "1s", "the tool's author", "nothing: the author asked for this"),
            ("result_chars", "10", "the tool's author", "nothing: the author asked for this"),
        ] {
            let row = row(key);
            assert_eq!(
                (row.value.as_str(), row.set.as_str(), row.raise.as_str()),
                (value, set, raise),
                "{key}"
            );
        }
    }
}
