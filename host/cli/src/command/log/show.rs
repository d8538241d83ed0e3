//! Records of the audit as rows of a table. Their texts come from guests and clients, so they are escaped.

use std::collections::BTreeMap;
use std::time::Duration;

use anstyle::Style;
use serde_json::{Value, json};
use toolbay_core::audit::read::{AuditLine, CallRecord, ReadEvent};
use toolbay_core::audit::{ActionRecord, CallStart, GrantRecord, RefusalCountRecord, RequestRecord};
use toolbay_policy::consent::GrantLines;
use toolbay_policy::excerpt::one_line;

use super::UNFINISHED;
use crate::args::StatsGroup;
use crate::output::{self, Cell, DIM, FAILURE, NAME, SUCCESS, TextTable, count_noun, format};

/// Longest text that is shown, in characters.
const MAX: usize = 200;
/// Widths of the columns, which rows that come later keep.
const WIDTHS: [usize; 5] = [8, 12, 20, 7, 8];

/// Whether something was refused.
pub(super) fn has_refusal(event: &ReadEvent) -> bool {
    match event {
        ReadEvent::Call(call) => refusals(call).next().is_some(),
        ReadEvent::Refused(_) | ReadEvent::Request(_) => true,
        ReadEvent::Grant(grant) => !grant.refused.is_empty() || !grant.held.is_empty(),
        ReadEvent::Start(_) | ReadEvent::Action(_) | ReadEvent::Gap { .. } | ReadEvent::Unknown(_) => false,
    }
}

/// How often a call was refused something: once by a gate, and for each use.
fn count_refusals(call: &CallRecord) -> u64 {
    let by_gate = call.refusal.is_some() || call.permission.is_some_and(|decision| !decision.allowed);
    u64::from(by_gate) + call.uses.iter().filter(|one| !one.allowed).count() as u64
}

fn refusals(call: &CallRecord) -> impl Iterator<Item = String> {
    let uses = call.uses.iter().filter(|one| !one.allowed).map(|one| format!("{} {}", one.key, one.what));
    let by_rules = call.permission.filter(|decision| !decision.allowed).map(|decision| {
        let action = decision.action.as_str();
        let profile = call.profile.as_ref().filter(|_| decision.of_profile);
        match (decision.rule, profile) {
            (Some(rule), Some(name)) => format!("permission: rule {rule} of [profile.{name}] says {action}"),
            (Some(rule), None) => format!("permission: rule {rule} says {action}"),
            (None, Some(name)) => format!("permission: {action} by [profile.{name}]"),
            (None, None) => format!("permission: {action}"),
        }
    });
    call.refusal.iter().cloned().chain(uses).chain(by_rules).map(|refusal| one_line(&refusal, MAX))
}

/// An empty table of records.
pub(super) fn table() -> TextTable {
    TextTable::new(["TIME", "OUTCOME", "TOOL", "TOOK", "CLIENT", "DETAIL"]).with_numbers_in(&[3])
}

/// Prints one record below those that are already there.
pub(super) fn print_row(line: &AuditLine) -> std::io::Result<()> {
    let mut table = TextTable::new(["", "", "", "", "", ""]).with_numbers_in(&[3]).with_min_widths(&WIDTHS);
    table.push(row(line));
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
pub(super) fn row(line: &AuditLine) -> [Cell; 6] {
    let row = match &line.event {
        ReadEvent::Call(record) => call(record),
        ReadEvent::Grant(record) => grant(record),
        ReadEvent::Start(record) => start(record),
        ReadEvent::Request(record) => request(record),
        ReadEvent::Refused(record) => refused(record),
        ReadEvent::Action(record) => action(record),
        ReadEvent::Gap { lost } => {
            let detail = format!("{} lost before this one", count_noun(*lost, "record", "records"));
            failed("gap", "", String::new(), vec![detail])
        }
        ReadEvent::Unknown(record) => {
            let kind = record.get("kind").and_then(Value::as_str).unwrap_or_default();
            RecordRow { style: DIM, ..failed(kind, "", String::new(), Vec::new()) }
        }
    };
    [
        Cell::styled(DIM, time(&line.time)),
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
    let today = format::now();
    let same = text.split('T').next() == today.split('T').next();
    let seconds = text.split(['.', 'Z']).next().unwrap_or_default();
    if same { seconds.split('T').nth(1).unwrap_or_default().to_owned() } else { seconds.replace('T', " ") }
}

fn failed(outcome: &str, subject: &str, client: String, details: Vec<String>) -> RecordRow {
    let (outcome, subject) = (one_line(outcome, MAX), one_line(subject, MAX));
    RecordRow { outcome, style: FAILURE, subject, took: None, client, details }
}

/// Who called: the agent or token, else the program, else the platform.
fn client(call: &CallRecord) -> String {
    let named = call.agent_id.as_ref().or(call.client_name.as_ref()).or(call.platform.as_ref());
    shown(named)
}

fn shown(text: Option<&String>) -> String {
    text.map(|text| one_line(text, MAX)).unwrap_or_default()
}

/// Details that are there, each with its name.
fn named<'t>(parts: impl IntoIterator<Item = (&'t str, Option<&'t str>)>) -> impl Iterator<Item = String> {
    parts.into_iter().filter_map(|(name, text)| Some(format!("{name} {}", one_line(text?, MAX))))
}

fn action(record: &ActionRecord<String>) -> RecordRow {
    let details = [&record.subject, &record.reason].into_iter().flatten();
    let details = details.map(|text| one_line(text, MAX)).collect();
    RecordRow { style: DIM, ..failed(&record.action, "", one_line(&record.by, MAX), details) }
}

fn call(record: &CallRecord) -> RecordRow {
    let limit = record.limit.as_ref().map(|limit| limit.name.as_str());
    let mut details: Vec<String> = named([("limit", limit)]).collect();
    details.extend(refusals(record).map(|refusal| format!("refused {refusal}")));
    let context = [("session", record.session_id.as_deref()), ("profile", record.profile.as_deref())];
    details.extend(named(context));
    RecordRow {
        style: if record.outcome == "ok" { SUCCESS } else { FAILURE },
        took: Some(Duration::from_micros(record.duration_us)),
        ..failed(&record.outcome, &record.tool, client(record), details)
    }
}

/// A call that began and has no record.
fn start(record: &CallStart) -> RecordRow {
    let context = [("session", record.session_id.as_deref()), ("profile", record.profile.as_deref())];
    let details = std::iter::once("began, and has no record".to_owned()).chain(named(context));
    failed(UNFINISHED, &record.tool, shown(record.agent_id.as_ref()), details.collect())
}

/// A request over HTTP that was refused.
fn request(record: &RequestRecord<String>) -> RecordRow {
    let RequestRecord { client, token, reason, status, method, path, host } = record;
    let mut details = vec![format!("status {status}")];
    details.extend(token.as_ref().map(|token| one_line(token, MAX)));
    details.extend(named([("host", host.as_deref())]));
    failed(reason, &format!("{method} {path}"), one_line(client, MAX), details)
}

/// Refusals that were counted.
fn refused(record: &RefusalCountRecord<String>) -> RecordRow {
    let RefusalCountRecord { what, client, outcome, reason, last, count, seconds } = record;
    let client = client.as_ref().map_or_else(|| "several".to_owned(), |client| one_line(client, MAX));
    let what = one_line(what, MAX);
    let within = format!("{} within {seconds} s", count_noun(*count, &what, &format!("{what}s")));
    match outcome {
        // Requests have a reason only.
        None => failed(reason, last, client, vec![within]),
        Some(outcome) => {
            failed(outcome, last, client, vec![format!("refused {}", one_line(reason, MAX)), within])
        }
    }
}

/// A decision about a plugin, or its load.
fn grant(record: &GrantRecord<String>) -> RecordRow {
    let digest = record.digest.as_deref().map(format::short_digest);
    let origin = record.origin.as_deref();
    let parts = [
        ("sha256", digest.as_deref()),
        ("from", origin.map(|origin| origin.reference.as_str())),
        ("signer", origin.map(|origin| origin.signer.as_str())),
        ("by", record.by.as_deref()),
    ];
    let mut details: Vec<String> = named(parts).collect();
    let granted = record.granted.tools.iter();
    let granted = granted.flat_map(|(tool, lists)| lines(lists).map(move |line| format!("{tool}: {line}")));
    details.extend(granted.map(|line| format!("granted {}", one_line(&line, MAX))));
    details.extend(lines(&record.refused).map(|line| format!("refused {}", one_line(&line, MAX))));
    details.extend(record.held.iter().map(|line| format!("held for {}", one_line(line, MAX))));
    let is_refused = !record.refused.is_empty() || !record.held.is_empty();
    let style = if is_refused { FAILURE } else { Style::new() };
    let subject = format!("{} {}", record.plugin, record.version.as_deref().unwrap_or_default());
    RecordRow { style, ..failed(&record.event, subject.trim(), String::new(), details) }
}

/// The lines of lists, as `list line`.
fn lines(lists: &GrantLines) -> impl Iterator<Item = String> {
    lists.iter().flat_map(|(name, lines)| lines.iter().map(move |line| format!("{name} {line}")))
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

    pub(super) fn add(&mut self, call: &CallRecord) {
        let name = match self.by {
            StatsGroup::Tool => one_line(&call.tool, MAX),
            StatsGroup::Client => client(call),
        };
        let tool = self.groups.entry(name).or_default();
        *tool.outcomes.entry(one_line(&call.outcome, MAX)).or_default() += 1;
        tool.refusals += count_refusals(call);
        tool.durations.push(call.working_us());
        if let Some(fuel) = call.usage.fuel {
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
            let time =
                |percent| format::time(Duration::from_micros(format::percentile(&stats.durations, percent)));
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
    fn fuel_per_call(&self) -> Option<u64> {
        self.fuel.checked_div(self.metered)
    }

    fn json(&self, group: &str, name: &str) -> Value {
        json!({
            group: name,
            "calls": self.durations.len(),
            "median_us": format::percentile(&self.durations, 50),
            "p95_us": format::percentile(&self.durations, 95),
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
            let record = json!({"profile": "few", "permission": permission});
            let call: CallRecord = serde_json::from_value(record).unwrap();
            assert_eq!(refusals(&call).collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn calls_are_counted_by_client_without_their_waits_and_unused_tokens_are_there() {
        let mut stats = CallStats::new(StatsGroup::Client);
        for (client, outcome, refusal) in [
            ("token:ci", "ok", None),
            ("token:ci", "not_available", Some("rule")),
            ("oauth:alice", "ok", None),
        ] {
            let record = json!({"tool": "p__t", "agent_id": client, "outcome": outcome, "refusal": refusal,
                "permission": {"action": "ask", "allowed": refusal.is_none()},
                "duration_us": 61_000_000, "waited_us": 60_000_000});
            stats.add(&serde_json::from_value(record).unwrap());
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
