//! Records of the audit as rows of a table. Their texts come from guests and clients, so they are escaped.

use std::collections::BTreeMap;
use std::time::Duration;

use anstyle::Style;
use serde_json::{Value, json};
use toolbay_policy::text::one_line;

use super::{UNFINISHED, text};
use crate::args::StatsGroup;
use crate::output::{self, Cell, DIM, FAILURE, NAME, SUCCESS, TextTable, count_noun, format};

/// Longest text that is shown, in characters.
const MAX: usize = 200;
/// Widths of the columns, which rows that come later keep.
const WIDTHS: [usize; 5] = [8, 12, 20, 7, 8];

/// Whether something was refused.
pub(super) fn has_refusal(record: &Value) -> bool {
    let filled = |key: &str| match record.get(key) {
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        _ => false,
    };
    let is_refusal = matches!(text(record, "kind"), "refused" | "request");
    is_refusal || refusals(record).next().is_some() || filled("refused") || filled("held")
}

fn is_refused(one: &Value) -> bool {
    one.get("allowed") == Some(&Value::Bool(false))
}

fn refused_uses(record: &Value) -> impl Iterator<Item = &Value> {
    let uses = record.get("uses").and_then(Value::as_array).into_iter().flatten();
    uses.filter(|one| is_refused(one))
}

/// How often a call was refused something: once by a gate, and for each use.
fn count_refusals(record: &Value) -> u64 {
    let by_gate = !text(record, "refusal").is_empty() || record.get("permission").is_some_and(is_refused);
    u64::from(by_gate) + refused_uses(record).count() as u64
}

fn refusals(record: &Value) -> impl Iterator<Item = String> {
    let uses = refused_uses(record).map(|one| format!("{} {}", text(one, "key"), text(one, "what")));
    let by_rules = record.get("permission").filter(|one| is_refused(one)).map(|decision| {
        let action = text(decision, "action");
        let is_of_profile = decision.get("of_profile").and_then(Value::as_bool).unwrap_or_default();
        let profile = Some(text(record, "profile")).filter(|name| is_of_profile && !name.is_empty());
        let table = profile.map(|name| format!(" of [profile.{name}]")).unwrap_or_default();
        match decision.get("rule").and_then(Value::as_u64) {
            Some(place) => format!("permission: rule {place}{table} says {action}"),
            None => format!("permission: {action}{}", table.replacen(" of ", " by ", 1)),
        }
    });
    let of_call = Some(text(record, "refusal").to_owned()).filter(|reason| !reason.is_empty());
    of_call.into_iter().chain(uses).chain(by_rules).map(|refusal| one_line(&refusal, MAX))
}

/// An empty table of records.
pub(super) fn table() -> TextTable {
    TextTable::new(["TIME", "OUTCOME", "TOOL", "TOOK", "CLIENT", "DETAIL"]).with_numbers_in(&[3])
}

/// Prints one record below those that are already there.
pub(super) fn print_row(record: &Value) -> std::io::Result<()> {
    let mut table = TextTable::new(["", "", "", "", "", ""]).with_numbers_in(&[3]).with_min_widths(&WIDTHS);
    table.push(row(record));
    table.print()
}

/// What a row says besides its time.
struct RecordRow {
    outcome: String,
    style: Style,
    /// The tool, the plugin or the path.
    subject: String,
    took: Option<Duration>,
    client: String,
    details: Vec<String>,
}

/// One record as a row.
pub(super) fn row(record: &Value) -> [Cell; 6] {
    let row = match text(record, "kind") {
        "call" => call(record),
        "grant" => grant(record),
        "start" => start(record),
        "request" => request(record),
        "refused" => refused(record),
        "action" => action(record),
        "gap" => {
            let lost = usize::try_from(number(record, "/lost")).unwrap_or(usize::MAX);
            let detail = format!("{} lost before this one", count_noun(lost, "record", "records"));
            failed("gap", String::new(), String::new(), vec![detail])
        }
        other => RecordRow { style: DIM, ..failed(other, String::new(), String::new(), Vec::new()) },
    };
    [
        Cell::styled(DIM, time(text(record, "time"))),
        Cell::styled(row.style, row.outcome),
        Cell::styled(NAME, row.subject),
        row.took.map_or_else(String::new, format::time).into(),
        Cell::styled(DIM, row.client),
        row.details.join(", ").into(),
    ]
}

/// The time of a record: whole in a pipe; on a terminal without the fractions, and without the day if it is today's.
fn time(text: &str) -> String {
    let text = one_line(text, 27);
    if !output::stdout_is_terminal() {
        return text;
    }
    let today = super::now();
    let same = text.split('T').next() == today.split('T').next();
    let seconds = text.split(['.', 'Z']).next().unwrap_or_default();
    if same { seconds.split('T').nth(1).unwrap_or_default().to_owned() } else { seconds.replace('T', " ") }
}

fn failed(outcome: &str, subject: String, client: String, details: Vec<String>) -> RecordRow {
    RecordRow { outcome: one_line(outcome, MAX), style: FAILURE, subject, took: None, client, details }
}

fn number(record: &Value, pointer: &str) -> u64 {
    record.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// The time that a call waited, in microseconds. Audits of older versions have the wait for a place only.
fn waited(record: &Value) -> u64 {
    record.get("waited_us").and_then(Value::as_u64).unwrap_or_else(|| number(record, "/usage/queued_us"))
}

/// Who called: the agent or token, else the program, else the platform.
fn client(record: &Value) -> String {
    let keys = ["agent_id", "client_name", "platform"].map(|key| text(record, key));
    one_line(keys.into_iter().find(|text| !text.is_empty()).unwrap_or_default(), MAX)
}

fn action(record: &Value) -> RecordRow {
    let shown = |key: &str| one_line(text(record, key), MAX);
    let details = [shown("subject"), shown("reason")].into_iter().filter(|text| !text.is_empty()).collect();
    RecordRow { style: DIM, ..failed(text(record, "action"), String::new(), shown("by"), details) }
}

fn call(record: &Value) -> RecordRow {
    let outcome = text(record, "outcome");
    let mut details = Vec::new();
    if let Some(limit) = record.pointer("/limit/name").and_then(Value::as_str) {
        details.push(format!("limit {}", one_line(limit, MAX)));
    }
    details.extend(refusals(record).map(|refusal| format!("refused {refusal}")));
    details.extend(session_and_profile(record));
    RecordRow {
        style: if outcome == "ok" { SUCCESS } else { FAILURE },
        took: Some(Duration::from_micros(number(record, "/duration_us"))),
        ..failed(outcome, one_line(text(record, "tool"), MAX), client(record), details)
    }
}

fn session_and_profile(record: &Value) -> impl Iterator<Item = String> {
    let parts = [("session", "session_id"), ("profile", "profile")];
    let present = parts.into_iter().filter(|(_, key)| !text(record, key).is_empty());
    present.map(|(name, key)| format!("{name} {}", one_line(text(record, key), MAX)))
}

/// A call that began and has no record.
fn start(record: &Value) -> RecordRow {
    let details = std::iter::once("began, and has no record".to_owned()).chain(session_and_profile(record));
    failed(UNFINISHED, one_line(text(record, "tool"), MAX), client(record), details.collect())
}

/// A request over HTTP that was refused.
fn request(record: &Value) -> RecordRow {
    let [reason, client, method, path, host] =
        ["reason", "client", "method", "path", "host"].map(|key| one_line(text(record, key), MAX));
    let mut details = vec![format!("status {}", number(record, "/status"))];
    let token = one_line(text(record, "token"), MAX);
    if !token.is_empty() {
        details.push(token);
    }
    if !host.is_empty() {
        details.push(format!("host {host}"));
    }
    failed(&reason, format!("{method} {path}"), client, details)
}

/// Refusals that were counted.
fn refused(record: &Value) -> RecordRow {
    let [what, reason, client, last] =
        ["what", "reason", "client", "last"].map(|key| one_line(text(record, key), MAX));
    let client = if client.is_empty() { "several".to_owned() } else { client };
    let count = usize::try_from(number(record, "/count")).unwrap_or(usize::MAX);
    let calls = count_noun(count, &what, &format!("{what}s"));
    let within = format!("{calls} within {} s", number(record, "/seconds"));
    match one_line(text(record, "outcome"), MAX) {
        // Requests have a reason only.
        outcome if outcome.is_empty() => failed(&reason, last, client, vec![within]),
        outcome => failed(&outcome, last, client, vec![format!("refused {reason}"), within]),
    }
}

/// A decision about a plugin, or its load.
fn grant(record: &Value) -> RecordRow {
    let [event, plugin, version, by] =
        ["event", "plugin", "version", "by"].map(|key| one_line(text(record, key), MAX));
    let mut details = Vec::new();
    if !text(record, "digest").is_empty() {
        details.push(format!("sha256 {}", one_line(&format::short_digest(text(record, "digest")), MAX)));
    }
    let origin = [("from", "/origin/reference"), ("signer", "/origin/signer")];
    let origin = origin.map(|(name, at)| (name, record.pointer(at).and_then(Value::as_str)));
    details.extend(
        origin.into_iter().filter_map(|(name, text)| Some(format!("{name} {}", one_line(text?, MAX)))),
    );
    if !by.is_empty() {
        details.push(format!("by {by}"));
    }
    details.extend(granted(record).into_iter().map(|line| format!("granted {line}")));
    details.extend(lists(record.get("refused")).into_iter().map(|line| format!("refused {line}")));
    let held = record.get("held").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    details.extend(held.map(|line| format!("held for {}", one_line(line, MAX))));
    let style = if has_refusal(record) { FAILURE } else { Style::new() };
    RecordRow {
        style,
        ..failed(&event, format!("{plugin} {version}").trim().to_owned(), String::new(), details)
    }
}

/// What is granted, as `tool: list line`.
fn granted(record: &Value) -> Vec<String> {
    let tools = record.pointer("/granted/tools").and_then(Value::as_object).into_iter().flatten();
    let of_tool = |(tool, keys): (&String, &Value)| {
        let lines = lists(Some(keys));
        lines.into_iter().map(|line| one_line(&format!("{tool}: {line}"), MAX)).collect::<Vec<_>>()
    };
    tools.flat_map(of_tool).collect()
}

/// The lines of a map of lists, as `list line`.
fn lists(map: Option<&Value>) -> Vec<String> {
    let lists = map.and_then(Value::as_object).into_iter().flatten();
    let of_list = |(name, lines): (&String, &Value)| {
        let lines = lines.as_array().into_iter().flatten().filter_map(Value::as_str);
        lines.map(|line| one_line(&format!("{name} {line}"), MAX)).collect::<Vec<_>>()
    };
    lists.flat_map(of_list).collect()
}

/// Calls, counted by tool or client.
pub(super) struct CallStats {
    by: StatsGroup,
    groups: BTreeMap<String, ToolCallStats>,
}

#[derive(Default)]
struct ToolCallStats {
    outcomes: BTreeMap<String, u64>,
    refusals: u64,
    durations: Vec<u64>,
    fuel: u64,
    /// The calls whose fuel was counted.
    metered: u64,
}

impl CallStats {
    pub(super) fn new(by: StatsGroup) -> Self {
        Self { by, groups: BTreeMap::new() }
    }

    /// Adds clients that may have made no call.
    pub(super) fn add_unused(&mut self, names: Vec<String>) {
        for name in names {
            self.groups.entry(name).or_default();
        }
    }

    pub(super) fn add(&mut self, record: &Value) {
        if text(record, "kind") != "call" {
            return;
        }
        let name = match self.by {
            StatsGroup::Tool => one_line(text(record, "tool"), MAX),
            StatsGroup::Client => client(record),
        };
        let tool = self.groups.entry(name).or_default();
        *tool.outcomes.entry(one_line(text(record, "outcome"), MAX)).or_default() += 1;
        tool.refusals += count_refusals(record);
        // A person who thinks, and a queue, make no tool slow.
        tool.durations.push(number(record, "/duration_us").saturating_sub(waited(record)));
        if let Some(fuel) = record.pointer("/usage/fuel").and_then(Value::as_u64) {
            tool.fuel = tool.fuel.saturating_add(fuel);
            tool.metered += 1;
        }
    }

    pub(super) fn show(mut self, json: bool) -> std::io::Result<()> {
        self.groups.values_mut().for_each(|stats| stats.durations.sort_unstable());
        let (group, title) = match self.by {
            StatsGroup::Tool => ("tool", "TOOL"),
            StatsGroup::Client => ("client", "CLIENT"),
        };
        if json {
            let all: Vec<_> = self.groups.iter().map(|(name, stats)| stats.json(group, name)).collect();
            return output::print_json(&all).map(drop);
        }
        let header = [title, "CALLS", "MEDIAN", "95 %", "FUEL A CALL", "OUTCOMES"];
        let mut table = TextTable::new(header).with_numbers_in(&[1, 2, 3, 4]);
        for (tool, stats) in &self.groups {
            let mut outcomes: Vec<String> =
                stats.outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
            if stats.refusals > 0 {
                outcomes.push(format!("refusals {}", stats.refusals));
            }
            let time = |percent| format::time(Duration::from_micros(stats.percentile(percent)));
            table.push([
                Cell::styled(NAME, tool),
                format::grouped(stats.durations.len() as u64).into(),
                time(50).into(),
                time(95).into(),
                stats.fuel_per_call().map_or_else(|| "-".to_owned(), format::grouped).into(),
                outcomes.join(", ").into(),
            ]);
        }
        table.print()
    }
}

impl ToolCallStats {
    fn percentile(&self, percent: usize) -> u64 {
        let index = (self.durations.len() * percent).div_ceil(100).saturating_sub(1);
        self.durations.get(index).copied().unwrap_or(0)
    }

    fn fuel_per_call(&self) -> Option<u64> {
        self.fuel.checked_div(self.metered)
    }

    fn json(&self, group: &str, name: &str) -> Value {
        json!({
            group: name,
            "calls": self.durations.len(),
            "median_us": self.percentile(50),
            "p95_us": self.percentile(95),
            "fuel": self.fuel_per_call(),
            "outcomes": self.outcomes,
            "refusals": self.refusals,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_table_of_its_rule() {
        for (permission, expected) in [
            (json!({"action": "deny", "rule": 1, "allowed": false}), "permission: rule 1 says deny"),
            (
                json!({"action": "deny", "rule": 1, "of_profile": true, "allowed": false}),
                "permission: rule 1 of [profile.few] says deny",
            ),
            (
                json!({"action": "ask", "of_profile": true, "allowed": false}),
                "permission: ask by [profile.few]",
            ),
        ] {
            let record = json!({"kind": "call", "profile": "few", "permission": permission});
            assert_eq!(refusals(&record).collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn calls_are_counted_by_client_without_their_waits_and_unused_tokens_are_there() {
        let mut stats = CallStats::new(StatsGroup::Client);
        for (client, outcome, refusal) in
            [("token:ci", "ok", ""), ("token:ci", "not_available", "rule"), ("oauth:alice", "ok", "")]
        {
            stats.add(&json!({"kind": "call", "tool": "p__t", "agent_id": client, "outcome": outcome,
                "refusal": refusal, "permission": {"allowed": refusal.is_empty()},
                "duration_us": 61_000_000, "waited_us": 60_000_000}));
        }
        stats.add_unused(vec!["token:ci".to_owned(), "token:old".to_owned()]);
        let shown: Vec<Value> = stats.groups.iter().map(|(name, one)| one.json("client", name)).collect();
        let facts = |one: &Value| (one["client"].clone(), one["calls"].clone(), one["refusals"].clone());
        assert_eq!(
            shown.iter().map(facts).collect::<Vec<_>>(),
            [
                (json!("oauth:alice"), json!(1), json!(0)),
                (json!("token:ci"), json!(2), json!(1)),
                (json!("token:old"), json!(0), json!(0)),
            ]
        );
        assert_eq!(shown[0]["median_us"], 1_000_000, "a person thought for a minute");
    }
}
