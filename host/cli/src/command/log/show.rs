//! Records of the audit for people. All text in them is of others, and escaped.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;
use toolbay_policy::text::one_line;

use super::{UNFINISHED, text};
use crate::output::{self, DIM, GOOD, NAME, WRONG};

/// Longest text that is shown, in characters.
const MAX: usize = 200;
/// Longest line of a hint, in characters: a list of the policy, which is pasted whole.
const MAX_HINT_LINE: usize = 8192;

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

fn refusals(record: &Value) -> impl Iterator<Item = String> {
    let uses = record.get("uses").and_then(Value::as_array).into_iter().flatten();
    let refused = |one: &&Value| one.get("allowed") == Some(&Value::Bool(false));
    let uses = uses.filter(refused).map(|one| format!("{} {}", text(one, "key"), text(one, "what")));
    let by_rules = record.get("permission").filter(refused).map(|decision| {
        let action = text(decision, "action");
        match decision.get("rule").and_then(Value::as_u64) {
            Some(place) => format!("permission: rule {place} says {action}"),
            None => format!("permission: {action}"),
        }
    });
    uses.chain(by_rules).map(|refusal| one_line(&refusal, MAX))
}

/// One record, on one line.
pub(super) fn record(record: &Value) -> std::io::Result<()> {
    let mut out = output::out();
    let time = one_line(text(record, "time"), 27);
    write!(out, "{DIM}{time}{DIM:#}  ")?;
    match text(record, "kind") {
        "call" => call(&mut out, record),
        "grant" => grant(&mut out, record),
        "start" => start(&mut out, record),
        "request" => request(&mut out, record),
        "refused" => refused(&mut out, record),
        "gap" => {
            let lost = record.get("lost").and_then(Value::as_u64).unwrap_or(0);
            writeln!(out, "{WRONG}{lost} records were lost before this one{WRONG:#}")
        }
        other => writeln!(out, "{DIM}{}{DIM:#}", one_line(other, MAX)),
    }
}

fn call(out: &mut impl Write, record: &Value) -> std::io::Result<()> {
    let outcome = text(record, "outcome");
    let style = if outcome == "ok" { GOOD } else { WRONG };
    let (tool, outcome) = (one_line(text(record, "tool"), MAX), one_line(outcome, MAX));
    let number = |pointer: &str| record.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    write!(out, "{style}{outcome:16}{style:#} {NAME}{tool}{NAME:#}  {}", duration(number("/duration_us")))?;
    let memory = number("/usage/peak_memory_bytes") >> 20;
    // Absent where no guest ran, or its work is not counted.
    let fuel = record.pointer("/usage/fuel").and_then(Value::as_u64);
    let fuel = fuel.map_or_else(|| "no fuel".to_owned(), |fuel| format!("fuel {fuel}"));
    write!(out, "  {DIM}{fuel}, {memory} MiB{DIM:#}")?;
    for (name, key) in [("session", "session_id"), ("profile", "profile")] {
        if !text(record, key).is_empty() {
            write!(out, "  {DIM}{name} {}{DIM:#}", one_line(text(record, key), MAX))?;
        }
    }
    if let Some(limit) = record.pointer("/limit/name").and_then(Value::as_str) {
        write!(out, "  {WRONG}limit {}{WRONG:#}", one_line(limit, MAX))?;
    }
    for refusal in refusals(record) {
        write!(out, "  {WRONG}refused {refusal}{WRONG:#}")?;
    }
    writeln!(out)?;
    for hint in record.get("hints").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    {
        for line in hint.lines() {
            writeln!(out, "    {DIM}{}{DIM:#}", one_line(line, MAX_HINT_LINE))?;
        }
    }
    Ok(())
}

/// A call that began and has no record.
fn start(out: &mut impl Write, record: &Value) -> std::io::Result<()> {
    let tool = one_line(text(record, "tool"), MAX);
    write!(
        out,
        "{WRONG}{UNFINISHED:16}{WRONG:#} {NAME}{tool}{NAME:#}  {DIM}began, and has no record{DIM:#}"
    )?;
    if !text(record, "session_id").is_empty() {
        write!(out, "  {DIM}session {}{DIM:#}", one_line(text(record, "session_id"), MAX))?;
    }
    writeln!(out)
}

/// A request over HTTP that was refused.
fn request(out: &mut impl Write, record: &Value) -> std::io::Result<()> {
    let [reason, client, method, path] =
        ["reason", "client", "method", "path"].map(|key| one_line(text(record, key), MAX));
    let status = record.get("status").and_then(Value::as_u64).unwrap_or(0);
    write!(out, "{WRONG}{reason:16}{WRONG:#} {client}  {status}  {method} {path}")?;
    if !text(record, "host").is_empty() {
        write!(out, "  {DIM}host {}{DIM:#}", one_line(text(record, "host"), MAX))?;
    }
    writeln!(out)
}

/// Refusals that were counted.
fn refused(out: &mut impl Write, record: &Value) -> std::io::Result<()> {
    let number = |key: &str| record.get(key).and_then(Value::as_u64).unwrap_or(0);
    let [what, reason, client, last] =
        ["what", "reason", "client", "last"].map(|key| one_line(text(record, key), MAX));
    let client = if client.is_empty() { "several clients".to_owned() } else { client };
    let (count, seconds) = (number("count"), number("seconds"));
    writeln!(
        out,
        "{WRONG}{reason:16}{WRONG:#} {count} {what}s of {client} within {seconds} s, the last for {NAME}{last}{NAME:#}"
    )
}

fn grant(out: &mut impl Write, record: &Value) -> std::io::Result<()> {
    let (event, plugin) = (one_line(text(record, "event"), MAX), one_line(text(record, "plugin"), MAX));
    let digest: String = text(record, "digest").chars().take(12).collect();
    write!(out, "{event:16} {NAME}{plugin}{NAME:#}  {DIM}{}{DIM:#}", one_line(&digest, MAX))?;
    if !text(record, "by").is_empty() {
        write!(out, "  by {}", one_line(text(record, "by"), MAX))?;
    }
    for line in granted(record) {
        write!(out, "  {GOOD}{line}{GOOD:#}")?;
    }
    for line in lists(record.get("refused")) {
        write!(out, "  {WRONG}refused {line}{WRONG:#}")?;
    }
    for line in record.get("held").and_then(Value::as_array).into_iter().flatten() {
        write!(out, "  {WRONG}held for {}{WRONG:#}", one_line(line.as_str().unwrap_or_default(), MAX))?;
    }
    writeln!(out)
}

/// `tool: list line` of what is granted.
fn granted(record: &Value) -> Vec<String> {
    let tools = record.pointer("/granted/tools").and_then(Value::as_object).into_iter().flatten();
    let of_tool = |(tool, keys): (&String, &Value)| {
        let lines = lists(Some(keys));
        lines.into_iter().map(|line| one_line(&format!("{tool}: {line}"), MAX)).collect::<Vec<_>>()
    };
    tools.flat_map(of_tool).collect()
}

/// `name line` of a map of lists.
fn lists(map: Option<&Value>) -> Vec<String> {
    let lists = map.and_then(Value::as_object).into_iter().flatten();
    let of_list = |(name, lines): (&String, &Value)| {
        let lines = lines.as_array().into_iter().flatten().filter_map(Value::as_str);
        lines.map(|line| one_line(&format!("{name} {line}"), MAX)).collect::<Vec<_>>()
    };
    lists.flat_map(of_list).collect()
}

fn duration(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} µs"),
        1000..1_000_000 => format!("{}.{} ms", micros / 1000, micros % 1000 / 100),
        _ => format!("{}.{:02} s", micros / 1_000_000, micros % 1_000_000 / 10_000),
    }
}

/// Calls, counted.
#[derive(Default)]
pub(super) struct Stats(BTreeMap<String, OfTool>);

#[derive(Default)]
struct OfTool {
    outcomes: BTreeMap<String, u64>,
    refusals: u64,
    durations: Vec<u64>,
    fuel: u64,
    /// The calls whose fuel was counted.
    metered: u64,
}

impl Stats {
    pub(super) fn add(&mut self, record: &Value) {
        if text(record, "kind") != "call" {
            return;
        }
        let number = |pointer: &str| record.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let tool = self.0.entry(one_line(text(record, "tool"), MAX)).or_default();
        *tool.outcomes.entry(one_line(text(record, "outcome"), MAX)).or_default() += 1;
        tool.refusals += refusals(record).count() as u64;
        tool.durations.push(number("/duration_us"));
        if let Some(fuel) = record.pointer("/usage/fuel").and_then(Value::as_u64) {
            tool.fuel = tool.fuel.saturating_add(fuel);
            tool.metered += 1;
        }
    }

    pub(super) fn show(mut self) -> std::io::Result<()> {
        let mut out = output::out();
        let width = self.0.keys().map(|tool| tool.chars().count()).max().unwrap_or(0).max(4);
        writeln!(
            out,
            "{DIM}{:width$}  {:>7}  {:>9}  {:>9}  {:>14}  outcomes{DIM:#}",
            "tool", "calls", "median", "95 %", "fuel a call"
        )?;
        for (tool, stats) in &mut self.0 {
            stats.durations.sort_unstable();
            let calls = stats.durations.len();
            let at = |percent: usize| {
                let place = (calls * percent).div_ceil(100).saturating_sub(1);
                duration(stats.durations.get(place).copied().unwrap_or(0))
            };
            let fuel = stats.fuel.checked_div(stats.metered);
            let fuel = fuel.map_or_else(|| "-".to_owned(), |fuel| fuel.to_string());
            write!(
                out,
                "{NAME}{tool:width$}{NAME:#}  {calls:>7}  {:>9}  {:>9}  {fuel:>14} ",
                at(50),
                at(95)
            )?;
            for (outcome, count) in &stats.outcomes {
                write!(out, " {outcome} {count}")?;
            }
            if stats.refusals > 0 {
                write!(out, " {WRONG}refusals {}{WRONG:#}", stats.refusals)?;
            }
            writeln!(out)?;
        }
        out.flush()
    }
}
