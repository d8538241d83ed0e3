//! The limits of a call (`[limits]`, `[plugins.ID.limits]`, `limits` of a tool).

use std::sync::Arc;
use std::time::Duration;

use super::table::{LimitEntry, LimitFlag, LimitRow, LimitTable, limit_table};
use super::{LimitHit, LimitOrigin, LimitSetting};
use crate::name::{PluginId, ToolName};
use crate::name_list::list_all_names;
use crate::problem::PolicyProblem;
use crate::quantity::unit::{ANY, DAY, POSITIVE};

/// Largest linear memory that a policy can allow: the size of a slot in the instance pool.
pub const MAX_MEMORY_BYTES: u64 = 1 << 30;

/// Default size limit of a result besides its text, in bytes: three times the text budget of a turn.
pub const DEFAULT_RESULT_BYTES: u64 = 256 << 10;

limit_table! {
    /// The limits of one guest entry: a call, a reduction or a metadata query.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CallLimits {
        /// Limits that were set outside `[plugins.ID.limits]`, with the place that set them.
        pub origins: Vec<(&'static str, LimitOrigin)>,
        /// The policy table of a tool that belongs to no plugin: `openapi.pets`.
        pub table: Option<Arc<str>>,
    }
    patch CallLimitsPatch; keys [Limit];

    /// CPU work of a call in fuel units; about 10 billion units are one second of CPU. `"none"` turns [fuel counting
    /// off](#work-that-is-not-counted).
    ///
    /// Two seconds of CPU. A grep over tens of megabytes fits, and an infinite loop is stopped soon.
    [Fuel] fuel: Option<u64> as Fuel = Some(20_000_000_000), POSITIVE, "`out_of_fuel`";

    /// Wall time of a call, including time in host calls; at most a day.
    ///
    /// Below the 60 s after which most MCP clients give up.
    [Timeout] timeout: Duration as Time = Duration::from_secs(30), 1..=DAY, "`deadline`", AppliesToServices;

    /// Total size of the linear memories of a call; at most `1GiB`.
    ///
    /// CPython starts with 13 MiB, SpiderMonkey with 9.
    [Memory] memory: u64 as Bytes = 64 << 20, 0..=MAX_MEMORY_BYTES,
        "growth fails; `out_of_memory` if the guest then traps";

    /// Total elements in the tables of a call.
    ///
    /// SpiderMonkey has 7 688 elements, CPython 5 670.
    [TableElements] table_elements: u64 as Count = 65_536, ANY, "as `memory`";

    /// Core instances in a component; at most 64, which fit in a slot of the instance pool.
    ///
    /// CPython needs 14, QuickJS 9.
    [Instances] instances: usize as Count = 64, 0..=64, "`out_of_memory`";

    /// Linear memories of a call; at most 8.
    [Memories] memories: usize as Count = 8, 0..=8, "`out_of_memory`";

    /// Tables of a call; at most 32.
    [Tables] tables: usize as Count = 32, 0..=32, "`out_of_memory`";

    /// Open streams, files and pollables of a call; for handles to resources that the guest defines, forty times this
    /// number.
    ///
    /// A process can often open 1024 files. One call must not use up all of them.
    [Handles] handles: usize as Count = 256, ANY, "`out_of_memory`";

    /// Size of the data that crosses from guest to host in one transition, results included. Calls of a plain
    /// component's function whose result contains flags get 1/32 of it.
    ///
    /// Far above the amount that a model can read. 64 concurrent calls stay within a gigabyte.
    [HostCallBytes] host_call_bytes: u64 as Bytes = 16 << 20, ANY, "`output_too_large`", AppliesToServices;

    /// Size of the arguments of a call.
    [ArgsBytes] args_bytes: u64 as Bytes = 4 << 20, ANY, "`input_invalid`; the tool does not run", AppliesToServices;

    /// Size of the captured stdout and of the captured stderr, each.
    [StdioBytes] stdio_bytes: u64 as Bytes = 64 << 10, ANY, "the rest is dropped and counted";

    /// Log lines of a call.
    [LogLines] log_lines: u32 as Count = 1000, ANY, "the rest is dropped and counted";

    /// Log lines of a call per second; a burst may have one second's worth.
    [LogRate] log_rate: u32 as Count = 200, ANY, "as above";

    /// Progress events of a call.
    [ProgressEvents] progress_events: u32 as Count = 1000, ANY, "the rest is dropped";

    /// Progress events of a call per second; a burst may have one second's worth.
    ///
    /// As many as a person can read, so that a terminal or chat is not flooded.
    [ProgressRate] progress_rate: u32 as Count = 20, ANY, "as above";

    /// Requests and raw connections of a call, redirects included.
    ///
    /// A crawl of a website's pages fits. A network scan does not.
    [HttpRequests] http_requests: u32 as Count = 64, ANY, "the interface's error", AppliesToServices;

    /// Requests and raw connections of a call that are open at the same time.
    [HttpConnections] http_connections: u32 as Count = 8, ANY, "the interface's error";

    /// Total size of the requests and responses of a call, after decoding.
    [HttpBytes] http_bytes: u64 as Bytes = 64 << 20, ANY, "the interface's error", AppliesToServices;

    /// Programs that a call may start.
    [Processes] processes: u32 as Count = 16, ANY, "the interface's error";

    /// Size of stdin, stdout and stderr of a program, each.
    [ProcessBytes] process_bytes: u64 as Bytes = 1 << 20, ANY, "the interface's error";

    /// Size of one value in the key-value store.
    [KvValueBytes] kv_value_bytes: u64 as Bytes = 1 << 20, ANY, "the interface's error";

    /// Total size of the keys and values of a plugin.
    [KvBytes] kv_bytes: u64 as Bytes = 16 << 20, ANY, "the interface's error";

    /// Keys of a plugin in the key-value store.
    [KvKeys] kv_keys: u64 as Count = 10_000, ANY, "the interface's error";

    /// Bytes that a call may write to files.
    [FileBytes] file_bytes: u64 as Bytes = 256 << 20, ANY, "the interface's error";

    /// Files and folders that a call may create.
    [FileEntries] file_entries: u32 as Count = 1000, ANY, "the interface's error";

    /// Attachments that a call may create.
    [Attachments] attachments: u32 as Count = 16, ANY, "the interface's error";

    /// Total size of the attachments that a call creates.
    [AttachmentBytes] attachment_bytes: u64 as Bytes = 32 << 20, ANY, "the interface's error";

    /// Nested calls that a call causes, directly or through the tools that it calls.
    ///
    /// Five times the twenty calls of a typical program. A program in an infinite loop is stopped.
    [Invocations] invocations: u32 as Count = 100, ANY, "the interface's error";

    /// Nested calls of one batch that run in parallel.
    [InvocationsAtOnce] invocations_at_once: u32 as Count = 8, POSITIVE, "the others wait";

    /// Calls of a plugin that run in parallel; cannot be set for a single tool.
    ///
    /// A quarter of `parallel_calls`. Four plugins whose calls all wait still leave permits to a fifth.
    [Concurrency] concurrency: u32 as Count = 16, POSITIVE, "the call waits, then `busy`", AppliesToServices, PerPlugin;

    /// Characters in the text of a result and in the texts of its blocks, names and addresses included, without
    /// `structured`.
    [ResultChars] result_chars: Option<u64> as Count = None => "none", ANY,
        "the text is cut with a note; a block whose names do not fit is dropped", AppliesToServices;

    /// Size of a result besides its texts: `structured`, `meta` and the data of all content blocks (such as images,
    /// before base64) together. It does not apply to results of nested calls.
    [ResultBytes] result_bytes: u64 as Bytes = DEFAULT_RESULT_BYTES, ANY, "[in another form](results.md#what-does-not-fit)", AppliesToServices;
}

impl CallLimitsPatch {
    /// Applies a tool's own section to `limits`.
    #[must_use]
    pub fn apply_to_tool(&self, limits: CallLimits, tool: &ToolName) -> CallLimits {
        let mut limits = self.apply(limits);
        limits
            .origins
            .extend(CallLimits::keys_of(self).into_iter().map(|key| (key, LimitOrigin::Tool(tool.clone()))));
        limits
    }

    /// Checks that all values are in their ranges.
    ///
    /// # Errors
    /// Names the key and the range.
    pub fn check(&self) -> Result<(), PolicyProblem> {
        self.apply(CallLimits::default()).check_ranges()
    }

    /// Checks the `limits` table of a single tool. `section` is the section of its plugin or service: `plugins.ID`.
    ///
    /// # Errors
    /// As [`CallLimitsPatch::check`], and if a limit applies to a whole plugin.
    pub(crate) fn check_tool(&self, section: &str) -> Result<(), PolicyProblem> {
        match self.find(|entry| entry.has(LimitFlag::PerPlugin)) {
            Some(key) => {
                let message = format!("`{key}` applies to a whole plugin: set it in [{section}.limits]");
                Err(PolicyProblem::at_keys([key], message))
            }
            None => self.check(),
        }
    }

    /// Refuses keys that have no effect on a tool without guest code.
    ///
    /// # Errors
    /// Names the key and the keys that have an effect.
    pub(crate) fn check_service(&self) -> Result<(), PolicyProblem> {
        let Some(key) = self.find(|entry| !entry.has(LimitFlag::AppliesToServices)) else { return Ok(()) };
        let known = CallLimits::ENTRIES.iter().filter(|e| e.has(LimitFlag::AppliesToServices)).map(|e| e.key);
        let known = list_all_names(known);
        let message = format!("`{key}` limits plugin code, and a service runs none; use one of {known}");
        Err(PolicyProblem::at_keys([key], message))
    }

    /// Returns the first set key whose entry matches `wanted`.
    fn find(&self, wanted: impl Fn(&LimitEntry) -> bool) -> Option<&'static str> {
        let set = CallLimits::keys_of(self);
        CallLimits::ENTRIES
            .iter()
            .find(|entry| set.contains(&entry.key) && wanted(entry))
            .map(|entry| entry.key)
    }
}

impl CallLimits {
    /// Describes a limit as the cause of a fault.
    #[must_use]
    pub fn hit(&self, limit: Limit, plugin: &PluginId) -> LimitHit {
        let name = limit.name();
        let value = self.rows().find(|(entry, _)| entry.key == name).map(|(_, value)| value);
        let table = self.table.as_deref().map_or_else(|| format!("plugins.{plugin}"), str::to_owned);
        let setting = match self.origins.iter().rev().find(|(of, _)| *of == name) {
            None => LimitSetting::key(format_args!("{table}.limits"), name),
            Some((_, LimitOrigin::Tool(tool))) => {
                LimitSetting::key(format_args!("{table}.tools.{tool}.limits"), name)
            }
            Some((_, LimitOrigin::Author)) => {
                LimitSetting::Nothing(format!("the tool's author set this `{name}`"))
            }
            Some((_, LimitOrigin::Host)) => {
                LimitSetting::Nothing(format!("the host sets this `{name}` for entries that are not calls"))
            }
        };
        LimitHit { name, value: value.unwrap_or_default(), setting }
    }

    /// Lowers the timeout to the value that the tool's author asks for.
    pub fn lower_timeout(&mut self, asked: Duration) {
        if asked < self.timeout {
            self.timeout = asked;
            self.origins.push((Limit::Timeout.name(), LimitOrigin::Author));
        }
    }

    /// Caps fuel and timeout for an entry that is not a call. If fuel is not counted, only the timeout applies.
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

/// Returns the rows of a tool's limits. `layers` are the applied tables, widest first; the last one wins.
/// `asked_chars` is the longest result that the tool's author asks for.
#[must_use]
pub(crate) fn limit_rows(
    limits: &CallLimits,
    layers: &[Layer<'_>],
    asked_chars: Option<u64>,
) -> Vec<LimitRow> {
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
        // The narrowest table wins. The proposed line goes where the key is set, else to the plugin's table.
        let narrowest = layers.iter().skip(1).rev().find(|(patch, _)| sets(patch)).or(layers.get(1));
        let (set, raise) = if by_author(key) {
            ("the tool's author".to_owned(), "nothing: the tool's author set this".to_owned())
        } else {
            let raise = narrowest.map_or_else(String::new, |(_, table)| format!("{table} {key} = …"));
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
            ("timeout", "1s", "the tool's author", "nothing: the tool's author set this"),
            ("result_chars", "10", "the tool's author", "nothing: the tool's author set this"),
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
