//! All limits as rows for people: value, where it was set, who may raise it.

use serde::Serialize;

use super::fuel::shown;
use super::{HostLimits, Limit, Limits, LimitsPatch, Origin, SERVICE_KEYS};
use crate::quantity::{show_bytes, show_duration};

/// One number that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitRow {
    /// The key under which the policy sets it.
    pub key: &'static str,
    /// Its value, as a policy would write it.
    pub value: String,
    /// Where it was set: a table of the policy, `default`, or the tool's author.
    pub set: String,
    /// The policy line that raises it, or why none does.
    pub raise: String,
}

/// A `limits` table with its name in the policy.
pub type Layer<'a> = (&'a LimitsPatch, String);

/// Key, value, and whether a table sets it: one row for each field, in the order of the documentation.
macro_rules! rows {
    ($limits:ident; $($key:ident = $value:expr;)*) => {
        [$( (stringify!($key), $value, (|patch: &LimitsPatch| patch.$key.is_some()) as fn(&LimitsPatch) -> bool), )*]
    };
}

/// The rows of a tool's limits. `layers` are the tables that were applied, the last of which wins; `asked_chars` is
/// the longest result that the tool's author wants.
#[must_use]
pub fn of_call(limits: &Limits, layers: &[Layer<'_>], asked_chars: Option<u64>) -> Vec<LimitRow> {
    let l = limits;
    let chars = l.result_chars.into_iter().chain(asked_chars).min();
    let by_author = |key: &str| match key {
        "timeout" => l.origins.contains(&(Limit::Timeout, Origin::Author)),
        "result_chars" => asked_chars.is_some() && chars == asked_chars && l.result_chars != asked_chars,
        _ => false,
    };
    let all = fields(l, chars);
    let row = |(key, value, sets): (&'static str, String, fn(&LimitsPatch) -> bool)| {
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
    all.into_iter().map(row).collect()
}

/// A key with its value, and whether a table sets it.
type Field = (&'static str, String, fn(&LimitsPatch) -> bool);

fn fields(l: &Limits, chars: Option<u64>) -> Vec<Field> {
    rows! { l;
        fuel = shown(l.fuel);
        timeout = show_duration(l.timeout);
        memory = show_bytes(l.memory_bytes);
        table_elements = l.table_elements.to_string();
        instances = l.instances.to_string();
        memories = l.memories.to_string();
        tables = l.tables.to_string();
        handles = l.handles.to_string();
        host_call_bytes = show_bytes(l.host_call_bytes);
        args_bytes = show_bytes(l.args_bytes);
        stdio_bytes = show_bytes(l.stdio_bytes);
        log_lines = l.log_lines.to_string();
        log_rate = l.log_rate.to_string();
        progress_events = l.progress_events.to_string();
        progress_rate = l.progress_rate.to_string();
        http_requests = l.http_requests.to_string();
        http_connections = l.http_connections.to_string();
        http_bytes = show_bytes(l.http_bytes);
        processes = l.processes.to_string();
        process_bytes = show_bytes(l.process_bytes);
        kv_value_bytes = show_bytes(l.kv_value_bytes);
        kv_bytes = show_bytes(l.kv_bytes);
        kv_keys = l.kv_keys.to_string();
        file_bytes = show_bytes(l.file_bytes);
        file_entries = l.file_entries.to_string();
        attachments = l.attachments.to_string();
        attachment_bytes = show_bytes(l.attachment_bytes);
        invocations = l.invocations.to_string();
        invocations_at_once = l.invocations_at_once.to_string();
        concurrency = l.concurrency.to_string();
        result_chars = chars.map_or_else(|| "none".to_owned(), |chars| chars.to_string());
        result_bytes = show_bytes(l.result_bytes);
    }
    .to_vec()
}

/// Refuses keys that mean nothing for a tool that runs no guest code.
///
/// # Errors
/// Names the key, and those that there are.
pub(crate) fn check_service(patch: &LimitsPatch) -> Result<(), String> {
    let set = fields(&Limits::default(), None)
        .into_iter()
        .find(|(key, _, sets)| sets(patch) && !SERVICE_KEYS.contains(key));
    match set {
        Some((key, ..)) => Err(format!(
            "`{key}` bounds the code of a plugin, and a service runs none; there are {}",
            SERVICE_KEYS.map(|key| format!("`{key}`")).join(", ")
        )),
        None => Ok(()),
    }
}

/// The rows of the host's bounds.
#[must_use]
pub fn of_host(host: &HostLimits) -> Vec<LimitRow> {
    let show = |l: &HostLimits| {
        [
            ("parallel_calls", l.parallel_calls.to_string()),
            ("queued_calls", l.queued_calls.to_string()),
            ("queue_timeout", show_duration(l.queue_timeout)),
            ("guest_memory", l.guest_memory.map_or_else(|| "auto".to_owned(), show_bytes)),
            ("result_memory", l.result_memory.map_or_else(|| "auto".to_owned(), show_bytes)),
            ("outbox_bytes", show_bytes(l.outbox_bytes)),
            ("http_connections", l.http_connections.to_string()),
            ("processes", l.processes.to_string()),
            ("compile_timeout", show_duration(l.compile_timeout)),
            ("code_bytes", show_bytes(l.code_bytes)),
            ("warm_instances", l.warm_instances.to_string()),
            ("warm_idle", show_duration(l.warm_idle)),
            ("breaker_faults", l.breaker_faults.to_string()),
            ("breaker_pause", show_duration(l.breaker_pause)),
            ("spool_bytes", show_bytes(l.spool_bytes)),
            ("spool_session_bytes", show_bytes(l.spool_session_bytes)),
            ("spool_age", show_duration(l.spool_age)),
        ]
    };
    let row = |((key, value), (_, default)): ((&'static str, String), (_, String))| LimitRow {
        key,
        set: if value == default { "default".to_owned() } else { format!("[host] {key}") },
        value,
        raise: format!("[host] {key} = …"),
    };
    show(host).into_iter().zip(show(&HostLimits::default())).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn keys_of<T: for<'de> serde::Deserialize<'de>>() -> Vec<String> {
        let error = toml::from_str::<T>("none_such = 1").err().unwrap().to_string();
        let (_, list) = error.split_once("expected one of").unwrap();
        list.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
    }

    #[test]
    fn every_limit_has_a_row() {
        let rows = of_call(&Limits::default(), &[], None);
        assert_eq!(rows.iter().map(|row| row.key).collect::<Vec<_>>(), keys_of::<LimitsPatch>());
        let rows = of_host(&HostLimits::default());
        assert_eq!(rows.iter().map(|row| row.key).collect::<Vec<_>>(), keys_of::<HostLimits>());
    }

    #[test]
    fn a_row_names_the_table_that_set_it() {
        let patch = |text: &str| toml::from_str::<LimitsPatch>(text).unwrap();
        let (all, own, tool) = (patch("fuel = 5\nhandles = 9"), patch("fuel = 6"), patch("memory = '1MiB'"));
        let layers = [(&all, "[limits]".to_owned()), (&own, "[p]".to_owned()), (&tool, "[p.t]".to_owned())];
        let mut limits = tool.apply(own.apply(all.apply(Limits::default())));
        limits.ask_timeout(Duration::from_secs(1));
        let rows = of_call(&limits, &layers, Some(10));
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
