//! `toolbay log`: reads the audit.

mod files;
mod show;

use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use serde_json::Value;
use toolbay::FileAudit;
use toolbay_core::timestamp;

use crate::args::{LogArgs, SetupArgs};
use crate::{Stop, Verdict, output, setup};
use files::Tail;
use show::Stats;

/// Between two looks at a file that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &SetupArgs, which: &LogArgs) -> Result<Verdict, Stop> {
    let path = setup::audit_file(args)?;
    let filter = Filter::new(which)?;
    if FileAudit::files(&path).is_empty() && !which.follow {
        output::note(&format!("there is no audit yet: `{}`", path.display()));
        return Ok(Verdict::Good);
    }
    let mut tail = Tail::new(path);
    let mut broken = 0;
    let mut kept: VecDeque<(String, Value)> = VecDeque::new();
    let mut stats = Stats::default();
    let most = which.limit.unwrap_or(usize::MAX);
    tail.read(&mut |line| match filter.read(line) {
        Read::Wanted(record) => {
            if which.stats {
                stats.add(&record);
                return Ok(());
            }
            kept.push_back((line.to_owned(), record));
            if kept.len() > most {
                kept.pop_front();
            }
            Ok(())
        }
        Read::Other => Ok(()),
        Read::Broken => {
            broken += 1;
            Ok(())
        }
    })?;
    if which.stats {
        stats.show()?;
    }
    kept.iter().try_for_each(|(line, record)| print(which, line, record))?;
    drop(kept);
    if which.follow {
        follow(&mut tail, &filter)?;
    }
    if tail.rest_is_broken() {
        broken += 1;
    }
    if broken > 0 {
        output::complain(&format!("{broken} lines of the audit are broken and were left out"));
    }
    Ok(Verdict::Good)
}

fn print(which: &LogArgs, line: &str, record: &Value) -> std::io::Result<()> {
    if which.json {
        // As it stands in the file, where it is escaped.
        writeln!(std::io::stdout().lock(), "{line}")
    } else {
        show::record(record)
    }
}

/// Shows what comes, until nobody reads it any more.
fn follow(tail: &mut Tail, filter: &Filter<'_>) -> std::io::Result<()> {
    loop {
        std::io::stdout().flush()?;
        std::thread::sleep(LOOK_EVERY);
        tail.read(&mut |line| match filter.read(line) {
            Read::Wanted(record) => print(filter.which, line, &record),
            Read::Other => Ok(()),
            Read::Broken => {
                output::complain("a line of the audit is broken");
                Ok(())
            }
        })?;
    }
}

/// The calls that the audit tells of from now on.
pub(crate) struct LiveCalls {
    tail: Tail,
    which: LogArgs,
}

impl LiveCalls {
    /// Begins now: what is there already is passed over.
    pub(crate) fn new(args: &SetupArgs) -> Result<Self, Stop> {
        let mut tail = Tail::new(setup::audit_file(args)?);
        tail.read(&mut |_| Ok(()))?;
        Ok(Self { tail, which: LogArgs::default() })
    }

    /// Shows what came since the last time.
    pub(crate) fn show(&mut self) -> Result<(), Stop> {
        let filter = Filter::new(&self.which)?;
        self.tail.read(&mut |line| match filter.read(line) {
            Read::Wanted(record) if text(&record, "kind") == "call" => show::record(&record),
            Read::Wanted(_) | Read::Other | Read::Broken => Ok(()),
        })?;
        Ok(())
    }
}

/// Most hints of one tool that are kept, the last ones.
const MAX_HINTS: usize = 5;

/// What would allow what a tool was refused lately, the last first, as the audit has it. An audit that cannot be read has
/// none.
pub(crate) fn hints_of(args: &SetupArgs, tool: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let Ok(file) = setup::audit_file(args) else { return found };
    let mut take = |line: &str| {
        // Most calls have none, and to read a line takes far longer than to search it.
        if line.contains("\"hints\"")
            && let Ok(record) = serde_json::from_str::<Value>(line)
            && text(&record, "tool") == tool
        {
            for hint in
                record.get("hints").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
            {
                found.retain(|known| known != hint);
                found.insert(0, hint.to_owned());
            }
            found.truncate(MAX_HINTS);
        }
        Ok(())
    };
    if Tail::new(file).read(&mut take).is_err() {
        found.clear();
    }
    found
}

/// Which records are wanted.
struct Filter<'a> {
    which: &'a LogArgs,
    since: Option<String>,
}

/// What a line is.
enum Read {
    Wanted(Value),
    Other,
    Broken,
}

impl<'a> Filter<'a> {
    fn new(which: &'a LogArgs) -> Result<Self, Stop> {
        let read = |text: &String| {
            since(text, micros_now()).ok_or_else(|| {
                Stop::Usage(anyhow!(
                    "--since `{text}`: write `10m` (`s`, `m`, `h`, `d`) or `2026-02-03T04:05:06Z`"
                ))
            })
        };
        Ok(Self { which, since: which.since.as_ref().map(read).transpose()? })
    }

    fn read(&self, line: &str) -> Read {
        let Ok(record) = serde_json::from_str::<Value>(line) else { return Read::Broken };
        if record.get("kind").and_then(Value::as_str).is_none() {
            return Read::Broken;
        }
        if self.wants(&record) { Read::Wanted(record) } else { Read::Other }
    }

    fn wants(&self, record: &Value) -> bool {
        let which = self.which;
        let is_call = text(record, "kind") == "call";
        let same = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|w| w == found);
        let plugin = record.pointer("/source/id").or_else(|| record.get("plugin"));
        let of_calls = same(&which.tool, text(record, "tool"))
            && same(&which.session, text(record, "session_id"))
            && same(&which.outcome, text(record, "outcome"))
            && (!which.failed || text(record, "outcome") != "ok");
        let only_calls =
            which.tool.is_some() || which.session.is_some() || which.outcome.is_some() || which.failed;
        (if is_call { of_calls } else { !only_calls })
            && same(&which.plugin, plugin.and_then(Value::as_str).unwrap_or_default())
            && (!which.refused || show::has_refusal(record))
            && self.since.as_ref().is_none_or(|since| text(record, "time") >= since.as_str())
    }
}

fn text<'a>(record: &'a Value, key: &str) -> &'a str {
    record.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The point in time that a person means, as records write it.
fn since(text: &str, now: u64) -> Option<String> {
    if let Some(micros) = timestamp::parse(text) {
        return Some(timestamp::rfc3339(micros));
    }
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let back = number.parse::<u64>().ok()?.checked_mul(seconds)?.checked_mul(1_000_000)?;
    Some(timestamp::rfc3339(now.saturating_sub(back)))
}

fn micros_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_point_in_time_is_read() {
        let now = 1_000_000_000_000_000;
        for (text, expect) in [
            ("0s", Some(now)),
            ("10m", Some(now - 600_000_000)),
            ("2h", Some(now - 7_200_000_000)),
            ("1d", Some(now - 86_400_000_000)),
            ("999999d", Some(0)),
            ("1970-01-01T00:00:01Z", Some(1_000_000)),
        ] {
            assert_eq!(since(text, now), expect.map(timestamp::rfc3339), "{text}");
        }
        for text in ["", "m", "10", "-1m", "10é", "18446744073709551615d", "yesterday"] {
            assert_eq!(since(text, now), None, "{text}");
        }
    }

    #[test]
    fn a_filter_takes_what_it_says() {
        let call = json!({"kind": "call", "time": "2026-01-01T00:00:00.000000Z", "tool": "p__t", "session_id": "s",
            "source": {"id": "p"}, "outcome": "ok", "uses": [{"key": "net", "what": "x", "allowed": false}]});
        let grant = json!({"kind": "grant", "time": "2026-01-02T00:00:00.000000Z", "plugin": "p", "event": "loaded",
            "refused": {}, "held": []});
        let some = |text: &str| Some(text.to_owned());
        let base = LogArgs::default;
        for (which, of_call, of_grant) in [
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
        ] {
            let filter = Filter::new(&which).unwrap();
            assert_eq!((filter.wants(&call), filter.wants(&grant)), (of_call, of_grant), "{which:?}");
        }
        let filter = LogArgs::default();
        let filter = Filter::new(&filter).unwrap();
        for broken in ["{\"kind\":\"ca", "5", "{}", "[]"] {
            assert!(matches!(filter.read(broken), Read::Broken), "{broken}");
        }
    }
}
