//! What is recorded: each call, and each decision about what a plugin may reach. No argument, no result, no text that
//! a guest made up is in it but what it wanted to reach.
//!
//! A record is one line of JSON. Texts in it are cut, and what a terminal would obey is escaped as JSON escapes
//! (`\u202e`), so that no text can forge a line or hide what it says, and a reader of JSON gets it as it was.

pub mod call_log;
pub mod refusals;
pub mod timestamp;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::Serialize;
use toolbay_policy::audit_policy::AuditPolicy;
use toolbay_policy::consent::Authority;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::limits::Usage;
use toolbay_policy::text;

use crate::audit::refusals::RefusalCount;
use crate::call::Use;
use crate::call::approval::Decision;
use crate::tool::ToolSource;
use crate::tool::canonical::Digest;

/// Longest text of a caller that is kept, in characters: ids are shorter, and what is longer is not one.
pub const MAX_TEXT: usize = 100;
/// Longest reason of a call that is kept, in characters.
pub const MAX_REASON: usize = 500;
/// Longest line, in bytes, what ends it included. A plugin with more lines of grants has them counted, not listed.
pub const MAX_LINE: usize = 64 << 10;

/// One call.
#[derive(Debug, Clone, Serialize)]
pub struct AuditRecord {
    /// The caller's id of the call, cut to [`MAX_TEXT`].
    pub call_id: Arc<str>,
    /// The call in the middle of which it was made, if a tool made it; cut to [`MAX_TEXT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outer: Option<String>,
    /// The name that was called, cut to [`MAX_TEXT`]; it may name no tool at all.
    pub tool: Arc<str>,
    /// The tool that was named in its place and only passed the call on (`tool_call`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// Where the tool comes from; absent when no tool was found.
    pub source: Option<Arc<ToolSource>>,
    /// The session, if the caller told.
    pub session_id: Option<String>,
    /// The acting agent, if the caller told.
    pub agent_id: Option<String>,
    /// `cli`, `mcp`, …, if the caller told.
    pub platform: Option<String>,
    /// The profile under which it ran.
    pub profile: Option<String>,
    /// The trace that it is part of (`traceparent` of W3C Trace Context), if the caller told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// SHA-256 of the call, `{"args":…,"tool":…}` in canonical form ([`crate::tool::canonical`]): its identity, whoever made it;
    /// absent when the arguments were not parsed.
    pub call_sha256: Option<Digest>,
    /// SHA-256 of the arguments in canonical form ([`crate::tool::canonical`]); absent when they were not parsed.
    pub args_sha256: Option<Digest>,
    /// What the rules of permission said; absent where there are none.
    pub permission: Option<Decision>,
    /// `ok`, an error code, a fault, or `host_failed`. A call whose caller went away is `cancelled`.
    pub outcome: &'static str,
    /// The limit that ended it.
    pub limit: Option<LimitHit>,
    /// What it used of its grants, and what it was refused: at most 64, each once.
    pub uses: Vec<Use>,
    /// Uses and refusals for which there was no room.
    pub uses_not_kept: u32,
    /// What would allow what it was refused, for the operator ([`toolbay_policy::refusal`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// What the guest used; all zero when nothing ran.
    pub usage: Usage,
    /// What the tool says it cost, in US dollars; a failed call may have cost, too.
    pub cost_usd: Option<f64>,
    /// From the call's arrival to its result, in microseconds.
    pub duration_us: u64,
    /// Whether the result was one of before, from the session's cache.
    pub cached: bool,
    /// Characters of the text that was delivered.
    pub delivered_chars: usize,
    /// Characters before it was cut, if it was.
    pub cut_from_chars: Option<usize>,
    /// What became of the reducer, if there was one.
    pub reducer: Option<&'static str>,
    /// Why the caller called, as it says ([`crate::tool::reason`]); cut to [`MAX_REASON`], without the values of secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the tool was started.
    pub began: bool,
    /// The start line of the call, if it has one ([`CallStart`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_id: Option<StartId>,
}

impl AuditRecord {
    /// Whether the host refused the call, so that no tool was started for it. Such records may be counted instead of
    /// listed.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !self.began && self.outcome != "ok"
    }

    /// The caller by which refusals are counted: the agent, or else the session, or else the platform. What follows `#` in
    /// a session is a label that a client over HTTP chooses for each request.
    #[must_use]
    pub fn client(&self) -> &str {
        let session = self.session_id.as_deref().and_then(|id| id.split('#').next());
        self.agent_id.as_deref().or(session).or(self.platform.as_deref()).unwrap_or_default()
    }
}

/// Joins the start line of a call with its record. Two processes never make the same one, as far as chance allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartId {
    process: u64,
    call: u64,
}

impl StartId {
    /// One that was not there before.
    pub(crate) fn next() -> Self {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        static CALL: AtomicU64 = AtomicU64::new(1);
        // The standard library seeds its hashers from the system's randomness; the core has no other.
        let process = *PROCESS.get_or_init(|| RandomState::new().hash_one(0));
        Self { process, call: CALL.fetch_add(1, Ordering::Relaxed) }
    }
}

impl fmt::Display for StartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.process, self.call)
    }
}

impl Serialize for StartId {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// A call that is about to run. Whatever becomes of the process, the audit then shows that the call may have had effects.
#[derive(Debug, Clone, Serialize)]
pub struct CallStart {
    /// Joins it with the record of the same call.
    pub start_id: StartId,
    /// As in the record of the call.
    pub call_id: Arc<str>,
    /// The tool that runs.
    pub tool: Arc<str>,
    /// As in the record of the call.
    pub source: Arc<ToolSource>,
    /// As in the record of the call.
    pub session_id: Option<String>,
    /// As in the record of the call.
    pub agent_id: Option<String>,
    /// As in the record of the call.
    pub profile: Option<Arc<str>>,
    /// As in the record of the call.
    pub args_sha256: Option<Digest>,
}

/// A request over HTTP that was refused before it reached a tool.
#[derive(Debug, Clone, Serialize)]
pub struct RequestRecord {
    /// The address of the client.
    pub client: String,
    /// Why: `host`, `origin`, `token_missing`, …
    pub reason: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// The method, cut to [`MAX_TEXT`].
    pub method: String,
    /// The path, without what follows `?`, cut to [`MAX_TEXT`].
    pub path: String,
    /// The `Host` that the request named, cut to [`MAX_TEXT`].
    pub host: Option<String>,
}

/// Refusals that came too fast for a line each.
#[derive(Debug, Clone, Serialize)]
pub struct RefusedRecord {
    /// What was refused: `call` or `request`.
    pub what: &'static str,
    /// The agent, session or platform of calls, the address of requests; absent: several clients.
    pub client: Option<String>,
    /// The outcome of the calls, or the reason of the requests.
    pub reason: &'static str,
    /// The tool or the path of the last of them.
    pub last: String,
    /// How many.
    pub count: u64,
    /// Within how many seconds.
    pub seconds: u64,
}

impl RefusedRecord {
    /// The record of a count.
    #[must_use]
    pub fn new(what: &'static str, count: RefusalCount) -> Self {
        let RefusalCount { client, reason, last, count, over } = count;
        let (client, last) = (client.as_deref().map(cut), cut(&last));
        Self { what, client, reason, last, count, seconds: over.as_secs().max(1) }
    }
}

/// What is wrong with an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHealth {
    /// Records that could not be written since the program started, or before, while no line tells of them.
    pub lost: u64,
    /// Why records cannot be written now; `None`: they can.
    pub problem: Option<String>,
}

/// A decision about what a plugin may reach.
#[derive(Debug, Clone, Serialize)]
pub struct GrantRecord {
    /// What happened.
    pub event: GrantEvent,
    /// The plugin.
    pub plugin: String,
    /// The version it claims, if it does.
    pub version: Option<String>,
    /// SHA-256 of its bytes, in hex; absent if it was not looked at.
    pub digest: Option<String>,
    /// What it is granted, or would be.
    pub granted: Authority,
    /// What it declares and is not granted, `kind target`, for each tool.
    pub refused: BTreeMap<String, BTreeSet<String>>,
    /// Why it is held, if it is, line by line.
    pub held: Vec<String>,
    /// Who decided, if a person did.
    pub by: Option<String>,
}

/// What happened to a plugin's grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantEvent {
    /// A plugin was loaded; says what it may reach from now on.
    Loaded,
    /// The first load of a plugin for which the operator had written a section: that is a consent.
    Recorded,
    /// A new version that gets no more than the one before, or more lines for the same one: the record follows.
    Followed,
    /// The operator agreed.
    Granted,
    /// The operator took it back.
    Revoked,
}

/// Room for a line as most are, in bytes.
const USUAL_LINE: usize = 1024;

/// What one line of the audit says.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Line<'a> {
    /// A call is about to run.
    Start(&'a CallStart),
    /// A call ended.
    Call(&'a AuditRecord),
    /// A request over HTTP was refused.
    Request(&'a RequestRecord),
    /// Refusals that are counted and not listed.
    Refused(&'a RefusedRecord),
    /// Something was decided about a plugin.
    Grant(&'a GrantRecord),
    /// Lines that could not be written are missing before this one.
    Gap {
        /// How many.
        lost: u64,
    },
}

impl Line<'_> {
    /// The line, with the time it is given ([`crate::audit::timestamp`]) and what ends it.
    #[must_use]
    pub fn to_json(&self, time: &str) -> String {
        #[derive(Serialize)]
        struct Timed<'a> {
            time: &'a str,
            #[serde(flatten)]
            line: Line<'a>,
        }
        let text = |line: Line<'_>| {
            let mut raw = Vec::with_capacity(USUAL_LINE);
            let written = serde_json::to_writer(&mut raw, &Timed { time, line });
            escape(written.ok().and_then(|()| String::from_utf8(raw).ok()).unwrap_or_default())
        };
        let line = text(*self);
        if line.len() <= MAX_LINE {
            return line;
        }
        match self {
            Self::Call(record) => text(Line::Call(&record.without_uses())),
            Self::Grant(record) => text(Line::Grant(&record.counted())),
            Self::Start(_) | Self::Request(_) | Self::Refused(_) | Self::Gap { .. } => line,
        }
    }
}

/// Escapes in a JSON text what is obeyed rather than shown. Such characters stand in strings only.
fn escape(mut line: String) -> String {
    // Most lines are plain ASCII, in which JSON itself leaves one such character as it is.
    let is_plain = line.is_ascii() && !line.contains('\x7f');
    if !is_plain && line.contains(text::is_hidden) {
        let mut out = String::with_capacity(line.len() + 64);
        for c in line.chars() {
            if text::is_hidden(c) {
                text::escape_json(c, &mut out);
            } else {
                out.push(c);
            }
        }
        line = out;
    }
    line.push('\n');
    line
}

/// Cuts a text of a caller for the record.
#[must_use]
pub fn cut(text: &str) -> String {
    let end = text.char_indices().nth(MAX_TEXT).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default().to_owned()
}

impl AuditRecord {
    fn without_uses(&self) -> Self {
        let count = u32::try_from(self.uses.len()).unwrap_or(u32::MAX);
        let uses_not_kept = self.uses_not_kept.saturating_add(count);
        Self { uses: Vec::new(), uses_not_kept, hints: Vec::new(), ..self.clone() }
    }
}

impl GrantRecord {
    /// Counts in place of lines.
    fn counted(&self) -> Self {
        let count = |what: &str, lines: usize| format!("{lines} {what}, too many for one record");
        let tools = std::iter::once(&self.granted.tools).chain(self.granted.profiles.values());
        let lists = tools.flat_map(|tools| tools.values()).flat_map(|lists| lists.values());
        let granted = lists.map(BTreeSet::len).sum();
        let refused = self.refused.values().map(BTreeSet::len).sum();
        let one = |text: String| BTreeMap::from([("*".to_owned(), BTreeSet::from([text]))]);
        Self {
            granted: Authority {
                tools: BTreeMap::from([("*".to_owned(), one(count("grants", granted)))]),
                ..Authority::default()
            },
            refused: one(count("refusals", refused)),
            held: (!self.held.is_empty()).then(|| count("reasons", self.held.len())).into_iter().collect(),
            ..self.clone()
        }
    }
}

/// Takes records.
pub trait AuditSink: Send + Sync + fmt::Debug {
    /// Takes the record of one call, before its result is delivered. Must not block for long.
    fn record(&self, record: AuditRecord);

    /// Takes the record of a decision.
    fn decided(&self, record: GrantRecord);

    /// Whether it takes [start lines](AuditSink::started).
    fn takes_starts(&self) -> bool {
        false
    }

    /// Takes the start line of a call, before the tool runs. Must not block for long.
    ///
    /// # Errors
    /// Why it cannot be kept. The call is then refused if the policy says `required = true`.
    fn started(&self, start: CallStart) -> Result<(), String> {
        drop(start);
        Ok(())
    }

    /// Takes the record of a request over HTTP that was refused.
    fn refused(&self, request: RequestRecord) {
        drop(request);
    }

    /// Writes what was only counted so far. Call it when the program ends: what holds the sink may live until the process does.
    fn finish(&self) {}

    /// What is wrong with it; `None`: nothing is, and nothing was lost.
    fn health(&self) -> Option<AuditHealth> {
        None
    }

    /// Follows the `[audit]` table of a policy that was read again.
    fn follow(&self, policy: &AuditPolicy) {
        let _ = policy;
    }
}

/// Writes records to the log, target `toolbay::audit`. The log has its own time.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogAudit;

impl LogAudit {
    fn write(line: &Line<'_>) {
        if tracing::enabled!(target: "toolbay::audit", tracing::Level::INFO) {
            tracing::info!(target: "toolbay::audit", "{}", line.to_json("").trim_end());
        }
    }
}

impl AuditSink for LogAudit {
    fn record(&self, record: AuditRecord) {
        Self::write(&Line::Call(&record));
    }

    fn decided(&self, record: GrantRecord) {
        Self::write(&Line::Grant(&record));
    }

    fn takes_starts(&self) -> bool {
        tracing::enabled!(target: "toolbay::audit", tracing::Level::INFO)
    }

    fn started(&self, start: CallStart) -> Result<(), String> {
        Self::write(&Line::Start(&start));
        Ok(())
    }

    fn refused(&self, request: RequestRecord) {
        Self::write(&Line::Request(&request));
    }
}

/// Keeps records in memory, for tests and embedders that want them all.
#[derive(Debug, Default)]
pub struct MemoryAudit {
    calls: Mutex<Vec<AuditRecord>>,
    decisions: Mutex<Vec<GrantRecord>>,
    starts: Mutex<Vec<CallStart>>,
    requests: Mutex<Vec<RequestRecord>>,
}

impl MemoryAudit {
    /// Takes out what was recorded of calls so far.
    #[must_use]
    pub fn take(&self) -> Vec<AuditRecord> {
        std::mem::take(&mut self.calls.lock())
    }

    /// Takes out the start lines so far.
    #[must_use]
    pub fn take_starts(&self) -> Vec<CallStart> {
        std::mem::take(&mut self.starts.lock())
    }

    /// Takes out what was recorded of refused requests so far.
    #[must_use]
    pub fn take_requests(&self) -> Vec<RequestRecord> {
        std::mem::take(&mut self.requests.lock())
    }

    /// Takes out what was recorded of decisions so far.
    #[must_use]
    pub fn take_decisions(&self) -> Vec<GrantRecord> {
        std::mem::take(&mut self.decisions.lock())
    }
}

impl AuditSink for MemoryAudit {
    fn record(&self, record: AuditRecord) {
        self.calls.lock().push(record);
    }

    fn decided(&self, record: GrantRecord) {
        self.decisions.lock().push(record);
    }

    fn takes_starts(&self) -> bool {
        true
    }

    fn started(&self, start: CallStart) -> Result<(), String> {
        self.starts.lock().push(start);
        Ok(())
    }

    fn refused(&self, request: RequestRecord) {
        self.requests.lock().push(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(text: &str) -> AuditRecord {
        let some = || Some(cut(text));
        AuditRecord {
            call_id: cut(text).into(),
            outer: some(),
            tool: cut(text).into(),
            through: None,
            source: None,
            session_id: some(),
            agent_id: some(),
            platform: some(),
            profile: some(),
            traceparent: some(),
            call_sha256: Some(crate::tool::canonical::sha256(&serde_json::json!(1))),
            args_sha256: Some(crate::tool::canonical::sha256(&serde_json::json!(0))),
            permission: None,
            outcome: "ok",
            limit: None,
            uses: (0..64)
                .map(|n| Use {
                    key: "net",
                    what: format!("{n}{}", text.chars().take(200).collect::<String>()),
                    allowed: false,
                })
                .collect(),
            uses_not_kept: 0,
            hints: Vec::new(),
            usage: Usage::default(),
            cost_usd: None,
            duration_us: 1,
            cached: false,
            delivered_chars: 1,
            cut_from_chars: None,
            reducer: None,
            reason: some(),
            began: true,
            start_id: Some(StartId::next()),
        }
    }

    #[test]
    fn what_a_terminal_obeys_is_escaped_and_nothing_is_lost() {
        let text = "a\nb\x1b[31m\u{2028}\u{202e}\u{feff}\u{e0041}\"\\é";
        let line = Line::Call(&record(text)).to_json("t");
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(!line.trim_end().contains(text::is_hidden), "{line}");
        let back: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(back["call_id"], text);
        assert_eq!((&back["kind"], &back["time"]), (&"call".into(), &"t".into()));
    }

    #[test]
    fn a_line_is_bounded_whatever_is_in_it() {
        for text in ["\u{e0041}".repeat(300), "\"".repeat(300), "\u{1}".repeat(300), "😀".repeat(300)] {
            let line = Line::Call(&record(&text)).to_json("t");
            assert!(line.len() <= MAX_LINE, "{}", line.len());
            let back: serde_json::Value = serde_json::from_str(&line).unwrap();
            let kept = back["uses"].as_array().unwrap().len() as u64;
            assert_eq!(kept + back["uses_not_kept"].as_u64().unwrap(), 64);
        }
        let lines: BTreeSet<String> = (0..10_000).map(|n| format!("https://{n}.example.com")).collect();
        let grant = GrantRecord {
            event: GrantEvent::Loaded,
            plugin: "p".to_owned(),
            version: None,
            digest: None,
            granted: Authority {
                tools: BTreeMap::from([(
                    "t".to_owned(),
                    BTreeMap::from([("net".to_owned(), lines.clone())]),
                )]),
                ..Authority::default()
            },
            refused: BTreeMap::from([("t".to_owned(), lines.clone())]),
            held: lines.into_iter().collect(),
            by: None,
        };
        let line = Line::Grant(&grant).to_json("t");
        assert!(line.len() <= MAX_LINE && line.contains("10000 grants, too many"), "{line:.300}");
    }

    proptest! {
        #[test]
        fn every_line_is_one_line_of_json(text in "\\PC{0,40}|.{0,40}|[\u{0}-\u{20}\u{2028}-\u{202e}\u{7f}-\u{9f}]{0,20}") {
            let line = Line::Call(&record(&text)).to_json("t");
            prop_assert_eq!(line.matches('\n').count(), 1);
            let back: serde_json::Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(back["tool"].as_str().unwrap(), cut(&text));
        }
    }
}
