//! `toolbay log`: reads the audit.

mod show;
mod unfinished;

use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use toolbay::{AuditReader, FileAudit, PluginId};
use toolbay_core::audit::read::{AuditLine, ReadEvent};
use toolbay_core::audit::timestamp;
use toolbay_core::tool::ToolSource;
use toolbay_policy::hint::Hint;
use toolbay_policy::quantity::parse_duration;

use crate::args::{LogArgs, StatsGroup};
use crate::output::{CommandError, CommandStatus, Printer, count_noun, format};
use crate::setup::{self, SetupArgs};
use show::CallStats;
use unfinished::UnfinishedCalls;

/// How often a followed file is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &SetupArgs, options: &LogArgs) -> Result<CommandStatus> {
    let path = setup::audit_file(args)?;
    let mut filter = RecordFilter::new(options, args.profile.as_deref())?;
    if FileAudit::files(&path).is_empty() && !options.follow {
        args.printer.note(&format!("there is no audit yet (`{}`)", path.display()));
        filter.require_names()?;
        return Ok(CommandStatus::Success);
    }
    let mut tail = AuditReader::new(path);
    let mut broken = 0;
    let mut kept: VecDeque<(u64, String, AuditLine)> = VecDeque::new();
    let (mut unfinished, mut number) = (UnfinishedCalls::default(), 0);
    let mut stats = CallStats::new(options.by);
    let most = options.limit.unwrap_or(usize::MAX);
    // The numbers of a server have no gaps, so that a reader sees that none is missing.
    let keeps_starts = args.printer.is_json()
        && args.shared.shared.is_some()
        && !options.failed
        && options.outcome.is_none();
    tail.read(&mut |line| {
        number += 1;
        let Ok(record) = AuditLine::parse(line) else {
            broken += 1;
            return Ok(());
        };
        let wanted = filter.matches(&record);
        // A filter may match the start line of a call and not its record.
        unfinished.end(&record.event);
        match &record.event {
            _ if !wanted => {}
            ReadEvent::Start(start) if !keeps_starts => {
                unfinished.begin(start.start_id, (number, line.to_owned(), record));
            }
            ReadEvent::Call(call) if options.stats => stats.add(call),
            _ if options.stats => {}
            _ => {
                kept.push_back((number, line.to_owned(), record));
                if kept.len() > most {
                    kept.pop_front();
                }
            }
        }
        Ok(())
    })?;
    if options.stats {
        if options.by == StatsGroup::Client {
            stats.add_unused(token_names(args)?);
        }
        stats.show(args.printer.is_json())?;
    } else {
        let shown = unfinished.join(kept, most);
        let mut table = show::table();
        for (_, line, record) in &shown {
            if args.printer.is_json() { print(true, line, record)? } else { table.push(show::row(record)) }
        }
        table.print()?;
    }
    if options.follow {
        follow(args.printer, &mut tail, &mut filter)?;
    } else {
        filter.require_names()?;
    }
    if tail.has_partial_line() {
        broken += 1;
    }
    if broken > 0 {
        let lines = count_noun(broken, "line", "lines");
        args.printer.warning(&format!(
            "{lines} of the audit cannot be read and {} left out",
            if broken == 1 { "is" } else { "are" }
        ));
    }
    Ok(CommandStatus::Success)
}

fn print(is_json: bool, line: &str, record: &AuditLine) -> std::io::Result<()> {
    if is_json {
        // The file already has escaped text.
        writeln!(std::io::stdout().lock(), "{line}")
    } else {
        show::print_row(record)
    }
}

/// Shows new records until the reader closes the pipe.
fn follow(printer: Printer, tail: &mut AuditReader, filter: &mut RecordFilter<'_>) -> std::io::Result<()> {
    loop {
        std::io::stdout().flush()?;
        std::thread::sleep(POLL_INTERVAL);
        tail.read(&mut |line| match AuditLine::parse(line) {
            // The record of the call follows.
            Ok(AuditLine { event: ReadEvent::Start(_), .. }) => Ok(()),
            Ok(record) if filter.matches(&record) => print(printer.is_json(), line, &record),
            Ok(_) => Ok(()),
            Err(_) => {
                printer.warning("a line of the audit cannot be read and is left out");
                Ok(())
            }
        })?;
    }
}

/// Most names that an option keeps for suggestions.
const MAX_OTHERS: usize = 10_000;

/// The outcome of a call that has a start line and no record.
const UNFINISHED: &str = "unfinished";

/// New calls in the audit.
pub(crate) struct LiveCalls {
    tail: AuditReader,
}

impl LiveCalls {
    /// Starts at the end of the audit.
    pub(crate) fn new(args: &SetupArgs) -> Result<Self> {
        let mut tail = AuditReader::new(setup::audit_file(args)?);
        tail.read(&mut |_| Ok(()))?;
        Ok(Self { tail })
    }

    /// Shows the calls since the last time.
    pub(crate) fn show(&mut self) -> Result<()> {
        self.tail.read(&mut |line| match AuditLine::parse(line) {
            Ok(record @ AuditLine { event: ReadEvent::Call(_), .. }) => show::print_row(&record),
            Ok(_) | Err(_) => Ok(()),
        })?;
        Ok(())
    }
}

/// Most hints of one tool.
const MAX_HINTS: usize = 5;

/// What would allow what a tool was refused lately, the last first, as the audit has it. An audit that cannot be read
/// has none.
pub(crate) fn recent_hints(args: &SetupArgs, tool: &str) -> Vec<Hint> {
    let mut found: Vec<Hint> = Vec::new();
    let Ok(file) = setup::audit_file(args) else { return found };
    let mut take = |line: &str| {
        // Few records have hints, and searching a line is much faster than parsing it.
        if line.contains("\"hints\"")
            && let Ok(AuditLine { event: ReadEvent::Call(call), .. }) = AuditLine::parse(line)
            && *call.tool == *tool
        {
            for hint in call.hints {
                found.retain(|known| *known != hint);
                found.insert(0, hint);
            }
            found.truncate(MAX_HINTS);
        }
        Ok(())
    };
    if AuditReader::new(file).read(&mut take).is_err() {
        found.clear();
    }
    found
}

/// The records that a command shows.
struct RecordFilter<'a> {
    options: &'a LogArgs,
    since: Option<String>,
    until: Option<String>,
    names: Vec<WantedName>,
}

/// A name that records must have.
struct WantedName {
    option: &'static str,
    name: String,
    /// Whether a record has had it.
    is_seen: bool,
    /// Other names of records, for suggestions.
    others: BTreeSet<String>,
}

impl<'a> RecordFilter<'a> {
    fn new(options: &'a LogArgs, profile: Option<&str>) -> Result<Self> {
        let read = |option: &str, text: &String| {
            parse_time(text, format::micros_now()).with_context(|| {
                format!(
                    "{option} `{text}`: write a time back, `10m`, `12h` or `90d`, or `2026-02-03T04:05:06Z`"
                )
            })
        };
        let since = options.since.as_ref().map(|text| read("--since", text)).transpose()?;
        let until = options.until.as_ref().map(|text| read("--until", text)).transpose()?;
        let names = [
            ("tool", options.tool.as_deref()),
            ("plugin", options.plugin.as_deref()),
            ("session", options.session.as_deref()),
            ("outcome", options.outcome.as_deref()),
            ("client", options.client.as_deref()),
            ("profile", profile),
        ];
        let wanted = |(option, name): (&'static str, Option<&str>)| {
            Some(WantedName { option, name: name?.to_owned(), is_seen: false, others: BTreeSet::new() })
        };
        Ok(Self { options, since, until, names: names.into_iter().filter_map(wanted).collect() })
    }

    /// Refuses a name that no record has: most likely it is mistyped, and nothing is shown for it.
    fn require_names(&self) -> Result<()> {
        let Some(unseen) = self.names.iter().find(|wanted| !wanted.is_seen) else { return Ok(()) };
        let what = format!("record with the {}", unseen.option);
        let known = unseen.others.iter().map(String::as_str);
        Err(CommandError::unknown("unknown_name", &what, &unseen.name, known).into())
    }

    fn matches(&mut self, line: &AuditLine) -> bool {
        let (options, names) = (self.options, names_in(&line.event));
        let mut has_names = true;
        // All are compared, so that each remembers the other names.
        for wanted in &mut self.names {
            has_names &= wanted.is_among(&names);
        }
        has_names
            && (!options.failed || names.iter().any(|(option, name)| *option == "outcome" && *name != "ok"))
            && (!options.refused || show::has_refusal(&line.event))
            && self.since.as_ref().is_none_or(|since| line.time >= *since)
            && self.until.as_ref().is_none_or(|until| line.time <= *until)
    }
}

impl WantedName {
    fn is_among(&mut self, names: &[(&str, &str)]) -> bool {
        let mut is_there = false;
        for (_, name) in names.iter().filter(|(option, name)| *option == self.option && !name.is_empty()) {
            if *name == self.name {
                is_there = true;
            } else if self.others.len() < MAX_OTHERS {
                self.others.insert((*name).to_owned());
            }
        }
        self.is_seen |= is_there;
        is_there
    }
}

/// The names in a record, each with the option that selects records by it.
fn names_in<'r>(event: &'r ReadEvent) -> Vec<(&'static str, &'r str)> {
    let mut names = Vec::new();
    let mut add = |option: &'static str, name: Option<&'r str>| {
        let Some(name) = name else { return };
        match option {
            "client" => names.extend(client_names(name).map(|name| (option, name))),
            _ => names.push((option, name)),
        }
    };
    let plugin = |source: &'r ToolSource| source.plugin().map(PluginId::as_str);
    match event {
        ReadEvent::Call(call) => {
            add("tool", Some(&call.tool));
            add("session", call.session_id.as_deref());
            add("outcome", Some(&call.outcome));
            add("plugin", call.source.as_deref().and_then(plugin));
            add("profile", call.profile.as_deref());
            for client in [&call.agent_id, &call.client_name, &call.platform] {
                add("client", client.as_deref());
            }
        }
        ReadEvent::Start(start) => {
            add("tool", Some(&start.tool));
            add("session", start.session_id.as_deref());
            add("outcome", Some(UNFINISHED));
            add("plugin", start.source.as_deref().and_then(plugin));
            add("profile", start.profile.as_deref());
            add("client", start.agent_id.as_deref());
        }
        ReadEvent::Refused(count) => {
            let client = count.client.as_deref();
            add("client", client);
            if count.what == "call" {
                add("tool", Some(&count.last));
                add("session", client);
                add("outcome", Some(count.outcome.as_ref().unwrap_or(&count.reason)));
            }
        }
        ReadEvent::Request(request) => {
            add("client", Some(&request.client));
            add("client", request.token.as_deref());
        }
        ReadEvent::Grant(grant) => add("plugin", Some(&grant.plugin)),
        ReadEvent::Unknown(record) => {
            let text = |key: &str| record.get(key).and_then(Value::as_str);
            add("plugin", record.pointer("/source/id").and_then(Value::as_str).or_else(|| text("plugin")));
            add("profile", text("profile"));
            for client in ["agent_id", "client_name", "client"] {
                add("client", text(client));
            }
        }
        ReadEvent::Action(_) | ReadEvent::Gap { .. } => {}
    }
    names
}

/// The names of a client: `token:ci` is also `ci`, and `inspector 1.2` is also `inspector`.
fn client_names(name: &str) -> [&str; 3] {
    let bare = name.split_once(':').map_or(name, |(_, bare)| bare);
    let program = name.split_once(' ').map_or(name, |(program, _)| program);
    [name, bare, program]
}

/// The tokens that the policy's `[serve]` accepts, as the audit names them. None if there is no such file.
fn token_names(args: &SetupArgs) -> Result<Vec<String>> {
    let policy = setup::policy(args)?;
    match &policy.serve().tokens {
        Some(file) => toolbay_mcp::token_names(file).map_err(anyhow::Error::msg),
        None => Ok(Vec::new()),
    }
}

/// Parses the time of an option into a time as records write it.
fn parse_time(text: &str, now: u64) -> Option<String> {
    if let Some(micros) = timestamp::parse(text) {
        return Some(timestamp::rfc3339(micros));
    }
    let back = u64::try_from(parse_duration(text).ok()?.as_micros()).unwrap_or(u64::MAX);
    Some(timestamp::rfc3339(now.saturating_sub(back)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_parsed() {
        let now = 1_000_000_000_000_000;
        for (text, expect) in [
            ("0s", Some(now)),
            ("10m", Some(now - 600_000_000)),
            ("2h", Some(now - 7_200_000_000)),
            ("1d", Some(now - 86_400_000_000)),
            ("999999d", Some(0)),
            ("1970-01-01T00:00:01Z", Some(1_000_000)),
        ] {
            assert_eq!(parse_time(text, now), expect.map(timestamp::rfc3339), "{text}");
        }
        for text in ["", "m", "10", "-1m", "10é", "18446744073709551615d", "yesterday"] {
            assert_eq!(parse_time(text, now), None, "{text}");
        }
    }

    fn read(record: &Value) -> AuditLine {
        AuditLine::parse(&record.to_string()).unwrap()
    }

    #[test]
    fn a_filter_matches_its_records() {
        let call = read(
            &json!({"kind": "call", "time": "2026-01-01T00:00:00.000000Z", "tool": "p__t", "session_id": "s",
            "source": {"kind": "plugin", "id": "p", "digest": "ab"}, "agent_id": "token:ci", "client_name": "inspector 1.2",
            "profile": "few", "outcome": "ok", "uses": [{"key": "net", "what": "x", "allowed": false}]}),
        );
        let grant = read(
            &json!({"kind": "grant", "time": "2026-01-02T00:00:00.000000Z", "plugin": "p", "event": "loaded",
            "refused": {}, "held": []}),
        );
        let some = |text: &str| Some(text.to_owned());
        let base = LogArgs::default;
        for (options, of_call, of_grant) in [
            (base(), true, true),
            (LogArgs { tool: some("p__t"), ..base() }, true, false),
            (LogArgs { tool: some("p__u"), ..base() }, false, false),
            (LogArgs { plugin: some("p"), ..base() }, true, true),
            (LogArgs { plugin: some("q"), ..base() }, false, false),
            (LogArgs { session: some("s"), ..base() }, true, false),
            (LogArgs { outcome: some("trap"), ..base() }, false, false),
            (LogArgs { failed: true, ..base() }, false, false),
            (LogArgs { refused: true, ..base() }, true, false),
            (LogArgs { since: some("2026-01-01T12:00:00Z"), ..base() }, false, true),
            (LogArgs { until: some("2026-01-01T12:00:00Z"), ..base() }, true, false),
            (LogArgs { client: some("token:ci"), ..base() }, true, false),
            (LogArgs { client: some("ci"), ..base() }, true, false),
            (LogArgs { client: some("inspector"), ..base() }, true, false),
            (LogArgs { client: some("other"), ..base() }, false, false),
        ] {
            let mut filter = RecordFilter::new(&options, None).unwrap();
            assert_eq!((filter.matches(&call), filter.matches(&grant)), (of_call, of_grant), "{options:?}");
        }
        for (options, profile, known) in [
            (LogArgs { client: some("ci"), ..base() }, None, true),
            // Every name is compared, also if another one differs.
            (LogArgs { client: some("ci"), plugin: some("q"), ..base() }, Some("few"), false),
            (LogArgs { client: some("nosuch"), ..base() }, None, false),
            (base(), Some("few"), true),
            (base(), Some("nosuch"), false),
        ] {
            let mut filter = RecordFilter::new(&options, profile).unwrap();
            filter.matches(&call);
            let unseen = filter.names.iter().filter(|wanted| !wanted.is_seen).count();
            assert_eq!((filter.require_names().is_ok(), unseen), (known, usize::from(!known)), "{options:?}");
        }
        for (profile, of_call) in [("few", true), ("many", false)] {
            let options = base();
            let mut filter = RecordFilter::new(&options, Some(profile)).unwrap();
            assert_eq!((filter.matches(&call), filter.matches(&grant)), (of_call, false), "{profile}");
        }
        let start = read(&json!({"kind": "start", "start_id": "0-1", "tool": "p__t", "session_id": "s",
            "source": {"kind": "builtin"}}));
        let count = read(
            &json!({"kind": "refused", "what": "call", "last": "p__t", "client": "s", "reason": "trap"}),
        );
        let request =
            read(&json!({"kind": "request", "reason": "host", "client": "192.0.2.1", "token": "token:ci"}));
        for (client, wanted) in [("192.0.2.1", true), ("ci", true), ("192.0.2.2", false)] {
            let options = LogArgs { client: some(client), ..base() };
            assert_eq!(RecordFilter::new(&options, None).unwrap().matches(&request), wanted, "{client}");
        }
        for (options, of_start, of_count, of_request) in [
            (base(), true, true, true),
            (LogArgs { tool: some("p__t"), session: some("s"), ..base() }, true, true, false),
            (LogArgs { outcome: some("trap"), ..base() }, false, true, false),
            (LogArgs { outcome: some("unfinished"), ..base() }, true, false, false),
            (LogArgs { failed: true, ..base() }, true, true, false),
            (LogArgs { refused: true, ..base() }, false, true, true),
        ] {
            let mut filter = RecordFilter::new(&options, None).unwrap();
            let wants = [&start, &count, &request].map(|record| filter.matches(record));
            assert_eq!(wants, [of_start, of_count, of_request], "{options:?}");
        }
    }

    #[test]
    fn a_filter_matches_records_of_an_unknown_kind_by_what_they_name() {
        let some = |text: &str| Some(text.to_owned());
        let base = LogArgs::default;
        let unknown = read(&json!({"kind": "later", "plugin": "p", "agent_id": "token:ci", "x": {}}));
        for (which, wanted) in [
            (base(), true),
            (LogArgs { plugin: some("p"), client: some("ci"), ..base() }, true),
            (LogArgs { plugin: some("q"), ..base() }, false),
            (LogArgs { tool: some("p__t"), ..base() }, false),
        ] {
            assert_eq!(RecordFilter::new(&which, None).unwrap().matches(&unknown), wanted, "{which:?}");
        }
    }

    #[test]
    fn a_filter_tells_refused_calls_from_errors_of_tools() {
        let by_profile =
            read(&json!({"kind": "call", "tool": "p__t", "outcome": "not_available", "refusal": "profile"}));
        let of_tool =
            read(&json!({"kind": "call", "tool": "p__t", "outcome": "not_available", "began": true}));
        let options = LogArgs { refused: true, ..LogArgs::default() };
        let mut filter = RecordFilter::new(&options, None).unwrap();
        assert_eq!([&by_profile, &of_tool].map(|record| filter.matches(record)), [true, false]);
    }
}
