//! The audit: records of all calls and of all decisions about grants. A record contains no arguments, no results and no
//! text of a guest except for the targets of its accesses.
//!
//! A record is one line of JSON. Its texts are cut. Control and invisible characters are written as JSON escapes
//! (`\u202e`), so no text can forge a line or hide its content, and a JSON reader gets the original text.

pub mod call_log;
pub mod edits;
pub mod observer;
pub mod read;
pub mod refusals;
mod sink;
pub mod timestamp;

pub use sink::{AuditSink, LogAudit, MemoryAudit};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use toolbay_policy::consent::Authority;
use toolbay_policy::hidden_chars;
use toolbay_policy::hint::Hint;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::limits::Usage;

use crate::approval::Decision;
use crate::audit::refusals::RefusalCount;
use crate::call::CapabilityUse;
use crate::call::trace::{CallTrace, TraceParent};
use crate::output::redact::Redactor;
use crate::random;
use crate::tool::canonical::Digest;
use crate::tool::refusal::RefusalReason;
use crate::tool::{PluginOrigin, ToolSource};

/// Longest recorded text of a caller, in characters. Ids are shorter.
pub const MAX_TEXT: usize = 100;
/// Longest recorded reason of a call, in characters.
pub const MAX_REASON: usize = 500;
/// Longest line including its line break, in bytes. If the grants of a plugin do not fit, they are counted instead of
/// listed.
pub const MAX_LINE: usize = 64 << 10;

/// The record of a call. The host writes words that it knows (`S`) and reasons that it has types for (`R`); a reader gets
/// texts ([`read::CallRecord`]).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditRecord<S = &'static str, R = RefusalReason> {
    /// The caller's id of the call, cut to [`MAX_TEXT`].
    pub call_id: Arc<str>,
    /// The id of the parent call, if a tool made the call; cut to [`MAX_TEXT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outer: Option<String>,
    /// The name of the called tool, cut to [`MAX_TEXT`]. It may be unknown.
    pub tool: Arc<str>,
    /// The requested tool, if it only forwarded the call (`tool_call`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// The source of the tool; absent if the tool is unknown.
    pub source: Option<Arc<ToolSource>>,
    /// The session id of the caller.
    pub session_id: Option<String>,
    /// The agent id of the caller.
    pub agent_id: Option<String>,
    /// The platform of the caller: `cli`, `mcp`, …
    pub platform: Option<String>,
    /// The program of the caller, as it names itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// The profile of the call.
    pub profile: Option<String>,
    /// The caller's trace (`traceparent` of W3C Trace Context). A reader does not get it.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// SHA-256 of the call, `{"args":…,"tool":…}` in canonical form ([`crate::tool::canonical`]). Equal calls have
    /// equal digests. Absent if the arguments were not parsed. A reader does not get it.
    #[serde(skip_deserializing)]
    pub call_sha256: Option<Digest>,
    /// SHA-256 of the arguments in canonical form ([`crate::tool::canonical`]); absent if they were not parsed. A reader
    /// does not get it.
    #[serde(skip_deserializing)]
    pub args_sha256: Option<Digest>,
    /// The number of the published epoch that judged the call, if several replicas share the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The decision of the permission rules; absent without rules.
    pub permission: Option<Decision>,
    /// The outcome: `ok`, an error code, a fault, or `host_failed`. A call whose caller went away is `cancelled`.
    pub outcome: S,
    /// Why the host refused the call before its tool was started; absent for all other calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<R>,
    /// The limit that ended the call.
    pub limit: Option<LimitHit<S>>,
    /// The uses of grants and the refused attempts, without duplicates: at most 64.
    pub uses: Vec<CapabilityUse<S>>,
    /// The number of uses beyond that limit.
    pub uses_not_kept: u32,
    /// What would allow the refused operations, for the operator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
    /// The resource usage of the guest; all zero if no tool ran.
    pub usage: Usage,
    /// The cost in US dollars, as the tool reported it. A failed call may have a cost as well.
    pub cost_usd: Option<f64>,
    /// The time from the arrival of the call to its result, in microseconds.
    pub duration_us: u64,
    /// The part of it in which the call waited for a person, its serial queue, memory or a run permit,
    /// in microseconds.
    pub waited_us: u64,
    /// Whether the tool did not run: the result comes from the session's cache or from an earlier call with the same key.
    pub cached: bool,
    /// Characters of the delivered text.
    pub delivered_chars: usize,
    /// Characters of the text before it was cut; absent if it was not cut.
    pub cut_from_chars: Option<usize>,
    /// The outcome of the reducer, if the tool has one.
    pub reducer: Option<S>,
    /// The caller's reason for the call ([`crate::tool::toolcall_reason`]), cut to [`MAX_REASON`] and redacted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the tool was started.
    pub began: bool,
    /// The id of the start line ([`CallStart`]), if the call has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_id: Option<StartId>,
    /// The trace of the call, if calls are traced. It is no part of the line.
    #[serde(skip)]
    pub trace: Option<Arc<CallTrace>>,
}

impl<S, R> AuditRecord<S, R> {
    /// Whether the host refused the call before a tool was started. The audit may count such records instead of listing
    /// them.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.refusal.is_some()
    }

    /// The duration of the call without the time that it waited, in microseconds: the time that a person takes to approve
    /// a call does not count. Records of older versions have only the wait for a free place.
    #[must_use]
    pub fn working_us(&self) -> u64 {
        self.duration_us.saturating_sub(self.waited_us.max(self.usage.queued_us))
    }

    /// The client for counting refusals: the agent, the session or the platform, whichever is known first. In a session
    /// id, the part after `#` is dropped, since an HTTP client chooses it for each request.
    #[must_use]
    pub fn client(&self) -> &str {
        let session = self.session_id.as_deref().and_then(|id| id.split('#').next());
        self.agent_id.as_deref().or(session).or(self.platform.as_deref()).unwrap_or_default()
    }
}

/// The id that connects the start line of a call with its record. A random part makes it unique across processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StartId {
    process: u64,
    call: u64,
}

impl StartId {
    /// A new id.
    pub(crate) fn next() -> Self {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        static CALL: AtomicU64 = AtomicU64::new(1);
        let process = *PROCESS.get_or_init(random::number);
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

impl<'de> Deserialize<'de> for StartId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let parts = text.split_once('-');
        let id = parts.and_then(|(process, call)| {
            Some(Self { process: u64::from_str_radix(process, 16).ok()?, call: call.parse().ok()? })
        });
        id.ok_or_else(|| D::Error::custom("no id of a start line"))
    }
}

/// The start line of a call that is about to run. If the process crashes, the audit shows that the call may have had
/// effects.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallStart {
    /// The id that the record of the call repeats.
    pub start_id: StartId,
    /// See [`AuditRecord::call_id`].
    #[serde(default)]
    pub call_id: Arc<str>,
    /// The name of the tool.
    #[serde(default)]
    pub tool: Arc<str>,
    /// The source of the tool. A reader has none if it is of an unknown kind.
    pub source: Option<Arc<ToolSource>>,
    /// See [`AuditRecord::session_id`].
    pub session_id: Option<String>,
    /// See [`AuditRecord::agent_id`].
    pub agent_id: Option<String>,
    /// See [`AuditRecord::profile`].
    pub profile: Option<Arc<str>>,
    /// See [`AuditRecord::args_sha256`].
    #[serde(skip_deserializing)]
    pub args_sha256: Option<Digest>,
}

/// The record of an HTTP request that was refused before it reached a tool.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestRecord<S = &'static str> {
    /// The address of the client.
    pub client: String,
    /// The name of the token that the request had, if it is known: `token:ci`. It is never the token itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The reason: `host`, `origin`, `token_missing`, …
    pub reason: S,
    /// The status of the response.
    pub status: u16,
    /// The method, cut to [`MAX_TEXT`].
    pub method: String,
    /// The path without the query, cut to [`MAX_TEXT`].
    pub path: String,
    /// The `Host` header, cut to [`MAX_TEXT`].
    pub host: Option<String>,
}

/// The record of an operator's action on running calls or tools.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ActionRecord<S = &'static str> {
    /// The action: `cancel`, `stop`, `resume`, `reload`, `disable`, `enable`, `approve`, `refuse`, or that a file was edited:
    /// `policy`, `tokens`, `admin_tokens`.
    pub action: S,
    /// What it applies to, cut to [`MAX_TEXT`]; absent if it applies to the whole server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The reason, cut to [`MAX_REASON`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The person who acted, cut to [`MAX_TEXT`].
    pub by: String,
}

/// The record of several refusals that were too frequent for a line each.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusalCountRecord<S = &'static str> {
    /// The kind of refusal: `call` or `request`.
    pub what: S,
    /// The agent, session or platform of calls, or the address of requests; absent for several clients.
    pub client: Option<String>,
    /// The outcome of the calls; absent for requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<S>,
    /// Why they were refused. In records of older versions the outcome of calls, which have none.
    pub reason: S,
    /// The tool or the path of the last refusal.
    pub last: String,
    /// The number of refusals.
    pub count: u64,
    /// The seconds in which they occurred.
    pub seconds: u64,
}

impl RefusalCountRecord {
    /// The record of a count.
    #[must_use]
    pub fn new(what: &'static str, count: RefusalCount) -> Self {
        let RefusalCount { client, outcome, reason, last, count, duration } = count;
        let (client, last) = (client.as_deref().map(cut), cut(&last));
        Self { what, client, outcome, reason, last, count, seconds: duration.as_secs().max(1) }
    }
}

/// The health of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHealth {
    /// Records that were lost since the program started, or earlier without a line that reports the gap.
    pub lost: u64,
    /// The problem if records cannot be written at the moment.
    pub problem: Option<String>,
}

/// The record of a decision about a plugin's grants. A reader gets the event as a text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantRecord<E = GrantEvent> {
    /// The event.
    #[serde(default)]
    pub event: E,
    /// The plugin.
    #[serde(default)]
    pub plugin: String,
    /// The version that the plugin claims.
    pub version: Option<String>,
    /// SHA-256 of the component's bytes, in hex; absent if the file was not read.
    pub digest: Option<String>,
    /// The registry that the plugin comes from; absent for a local file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<PluginOrigin>>,
    /// The grants, or the proposed grants.
    #[serde(default)]
    pub granted: Authority,
    /// The declared capabilities that are not granted, as `kind target`, by tool.
    #[serde(default)]
    pub refused: BTreeMap<String, BTreeSet<String>>,
    /// The reasons why the plugin waits for consent.
    #[serde(default)]
    pub held: Vec<String>,
    /// The person who decided.
    pub by: Option<String>,
}

/// An event of a plugin's grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantEvent {
    /// A plugin was loaded with these grants.
    Loaded,
    /// A plugin with a policy section was loaded for the first time, which counts as consent.
    Recorded,
    /// The consent was carried over to a new version without additional grants, or to new policy lines for the same
    /// version.
    Followed,
    /// The operator consented.
    Granted,
    /// The operator revoked the consent.
    Revoked,
}

/// The initial capacity of a line, in bytes, enough for most lines.
const LINE_CAPACITY: usize = 1024;

/// The content of one audit line.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum AuditEvent<'a> {
    /// A call is about to run.
    Start(&'a CallStart),
    /// A call ended.
    Call(&'a AuditRecord),
    /// A request over HTTP was refused.
    Request(&'a RequestRecord),
    /// Several refusals in one count.
    Refused(&'a RefusalCountRecord),
    /// A decision about a plugin's grants.
    Grant(&'a GrantRecord),
    /// An operator acted on running calls or tools.
    Action(&'a ActionRecord),
    /// Lines before this one were lost.
    Gap {
        /// The number of lost lines.
        lost: u64,
    },
}

impl AuditEvent<'_> {
    /// The line in JSON with a time ([`crate::audit::timestamp`]) and a line break.
    #[must_use]
    pub fn to_json(&self, time: &str) -> String {
        #[derive(Serialize)]
        struct TimedLine<'a> {
            time: &'a str,
            #[serde(flatten)]
            line: AuditEvent<'a>,
        }
        let text = |line: AuditEvent<'_>| {
            let mut raw = Vec::with_capacity(LINE_CAPACITY);
            let written = serde_json::to_writer(&mut raw, &TimedLine { time, line });
            escape(written.ok().and_then(|()| String::from_utf8(raw).ok()).unwrap_or_default())
        };
        let line = text(*self);
        if line.len() <= MAX_LINE {
            return line;
        }
        match self {
            Self::Call(record) => text(AuditEvent::Call(&record.without_uses())),
            Self::Grant(record) => text(AuditEvent::Grant(&record.with_counts())),
            Self::Start(_) | Self::Request(_) | Self::Refused(_) | Self::Action(_) | Self::Gap { .. } => line,
        }
    }
}

/// Escapes control and invisible characters in a JSON text, where they can only be in strings. Adds a line break.
fn escape(mut line: String) -> String {
    // Most lines are ASCII. The only control character of ASCII that JSON leaves unescaped is DEL.
    let is_plain = line.is_ascii() && !line.contains('\x7f');
    if !is_plain && line.contains(hidden_chars::is_hidden) {
        let mut out = String::with_capacity(line.len() + 64);
        for c in line.chars() {
            if hidden_chars::is_hidden(c) {
                hidden_chars::escape_json(c, &mut out);
            } else {
                out.push(c);
            }
        }
        line = out;
    }
    line.push('\n');
    line
}

/// Cuts a text of a caller to [`MAX_TEXT`].
#[must_use]
pub fn cut(text: &str) -> String {
    let end = text.char_indices().nth(MAX_TEXT).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default().to_owned()
}

/// The beginning of a text of a caller without the values of secrets, at most [`MAX_TEXT`] characters. The work does not
/// grow with the text.
#[must_use]
pub(crate) fn redacted(redactor: &Redactor, text: &str) -> String {
    cut(&redactor.redact_prefix(text, 2 * MAX_TEXT).0)
}

impl AuditRecord {
    fn without_uses(&self) -> Self {
        let count = u32::try_from(self.uses.len()).unwrap_or(u32::MAX);
        let uses_not_kept = self.uses_not_kept.saturating_add(count);
        Self { uses: Vec::new(), uses_not_kept, hints: Vec::new(), ..self.clone() }
    }
}

impl GrantRecord {
    /// The record with counts in place of lists.
    fn with_counts(&self) -> Self {
        let count = |what: &str, lines: usize| format!("{lines} {what}, too many for one record");
        let tools = std::iter::once(&self.granted.tools).chain(self.granted.profiles.values());
        let lists = tools.flat_map(|tools| tools.values()).flat_map(|lists| lists.values());
        let granted = lists.map(BTreeSet::len).sum();
        let refused = self.refused.values().map(BTreeSet::len).sum();
        let single = |text: String| BTreeMap::from([("*".to_owned(), BTreeSet::from([text]))]);
        Self {
            granted: Authority {
                tools: BTreeMap::from([("*".to_owned(), single(count("grants", granted)))]),
                ..Authority::default()
            },
            refused: single(count("refusals", refused)),
            held: (!self.held.is_empty()).then(|| count("reasons", self.held.len())).into_iter().collect(),
            ..self.clone()
        }
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
            client_name: some(),
            profile: some(),
            traceparent: TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"),
            call_sha256: Some(crate::tool::canonical::sha256(&serde_json::json!(1))),
            args_sha256: Some(crate::tool::canonical::sha256(&serde_json::json!(0))),
            epoch: None,
            permission: None,
            outcome: "ok",
            refusal: None,
            limit: None,
            uses: (0..64)
                .map(|n| CapabilityUse {
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
            waited_us: 0,
            cached: false,
            delivered_chars: 1,
            cut_from_chars: None,
            reducer: None,
            reason: some(),
            began: true,
            start_id: Some(StartId::next()),
            trace: None,
        }
    }

    #[test]
    fn control_characters_are_escaped_without_loss() {
        let text = "a\nb\x1b[31m\u{2028}\u{202e}\u{feff}\u{e0041}\"\\é";
        let line = AuditEvent::Call(&record(text)).to_json("t");
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(!line.trim_end().contains(hidden_chars::is_hidden), "{line}");
        let back: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(back["call_id"], text);
        assert_eq!((&back["kind"], &back["time"]), (&"call".into(), &"t".into()));
    }

    #[test]
    fn a_line_never_exceeds_its_limit() {
        for text in ["\u{e0041}".repeat(300), "\"".repeat(300), "\u{1}".repeat(300), "😀".repeat(300)] {
            let line = AuditEvent::Call(&record(&text)).to_json("t");
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
            origin: None,
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
        let line = AuditEvent::Grant(&grant).to_json("t");
        assert!(line.len() <= MAX_LINE && line.contains("10000 grants, too many"), "{line:.300}");
    }

    proptest! {
        #[test]
        fn every_record_is_one_line_of_json(text in "\\PC{0,40}|.{0,40}|[\u{0}-\u{20}\u{2028}-\u{202e}\u{7f}-\u{9f}]{0,20}") {
            let line = AuditEvent::Call(&record(&text)).to_json("t");
            prop_assert_eq!(line.matches('\n').count(), 1);
            let back: serde_json::Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(back["tool"].as_str().unwrap(), cut(&text));
        }
    }
}
