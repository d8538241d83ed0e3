//! A call, from the caller's side: what is asked, in which turn, and what the call may know about it.

pub mod approval;
pub mod dialog;
pub mod fault;
pub mod invoke;
pub mod outside;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use toolbay_policy::limits::Usage;
use toolbay_policy::refusal::{MAX_HINT_BYTES, MAX_HINTS};
use toolbay_policy::text;

use crate::call::approval::Approver;
use crate::call::dialog::Dialog;
use crate::output::redact::Redactor;
use crate::output::untrusted;
use crate::session::Session;
use crate::session::attachment::Attachments;
use crate::tool::ToolDef;

/// Characters that the results of one batch may have together, unless the turn says otherwise (the seed's default).
pub const DEFAULT_BUDGET_CHARS: usize = 80_000;

/// One call as a caller writes it.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The caller's id of the call; comes back with the result.
    pub id: Arc<str>,
    /// The tool's qualified name.
    pub tool: String,
    /// The arguments, a JSON text. Nothing but white space counts as `{}`.
    pub args: String,
}

impl ToolCall {
    /// A call with the arguments as JSON text.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, tool: impl Into<String>, args: impl Into<String>) -> Self {
        Self { id: id.into(), tool: tool.into(), args: args.into() }
    }
}

/// What holds for all calls of a batch. Shared by them, never kept in the registry, so that two sessions on one
/// registry share nothing.
#[derive(Debug, Clone)]
pub struct TurnContext {
    /// Characters that all results of the batch may have together.
    pub budget_chars: usize,
    /// Ends every call of the batch.
    pub cancel: CancellationToken,
    /// Gates apply, nothing runs.
    pub dry_run: bool,
    /// Receives progress events.
    pub progress: Option<Arc<dyn ProgressSink>>,
    /// Who and where: passed on to the guest on request.
    pub identity: Identity,
    /// The files that came with the turn, and where tools put new ones; `None`: there are none and none can be made.
    pub attachments: Option<Arc<dyn Attachments>>,
    /// The program that called, for what tools of the embedder's own code may ask it.
    pub dialog: Option<Arc<dyn Dialog>>,
    /// Who is asked for the calls of this batch, before those of the session and the host.
    pub approver: Option<Arc<dyn Approver>>,
    /// The conversation it belongs to. Without one from the caller each batch is a session of its own.
    pub session: Arc<Session>,
}

/// What a guest may learn about the turn; `None` where the caller does not know or does not want to tell.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Session id; also the key under which the stale-write guard remembers reads.
    pub session_id: Option<String>,
    /// Human-meaningful session key.
    pub session_key: Option<String>,
    /// `cli`, `mcp`, …
    pub platform: Option<String>,
    /// The acting agent.
    pub agent_id: Option<String>,
    /// The acting personality.
    pub personality_id: Option<String>,
    /// The team.
    pub team_id: Option<String>,
    /// 1-based turn of the session.
    pub turn: Option<u32>,
    /// Messages so far.
    pub message_count: Option<u32>,
    /// The trace that the call is part of, as the caller told: `traceparent` of W3C Trace Context, checked by whoever
    /// took it in.
    pub traceparent: Option<String>,
    /// Further attributes by name.
    pub attributes: serde_json::Map<String, Value>,
}

impl Default for TurnContext {
    fn default() -> Self {
        Self {
            budget_chars: DEFAULT_BUDGET_CHARS,
            cancel: CancellationToken::new(),
            dry_run: false,
            progress: None,
            identity: Identity::default(),
            attachments: None,
            dialog: None,
            approver: None,
            session: Arc::default(),
        }
    }
}

/// Who may see a progress event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Logs and telemetry only.
    Internal,
    /// The person in the conversation.
    User,
    /// Operators' dashboards.
    Dashboard,
}

/// One progress event of a running call. Its text is the guest's: data, bounded by the runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The caller's id of the call.
    pub call_id: Arc<str>,
    /// The tool's qualified name.
    pub tool: Arc<str>,
    /// What the guest says.
    pub message: String,
    /// 0 to 100.
    pub percent: Option<f32>,
    /// Who may see it.
    pub audience: Audience,
}

/// Receives progress events. Called from the running call: must not block.
pub trait ProgressSink: Send + Sync + fmt::Debug {
    /// Takes one event.
    fn progress(&self, event: Progress);
}

/// What one running call knows.
#[derive(Debug)]
pub struct CallContext {
    /// The caller's id of the call.
    pub call_id: Arc<str>,
    /// The tool's qualified name.
    pub tool: Arc<str>,
    /// Characters `value` may have before it is cut.
    pub budget_chars: usize,
    /// The batch it belongs to.
    pub turn: Arc<TurnContext>,
    redactor: Redactor,
    /// The profile under which it runs: that of the view it was admitted by.
    pub profile: Option<Arc<str>>,
    /// When it ends at the latest, if it was made in the middle of another call: with that.
    pub ends: Option<Instant>,
    uses: Mutex<Uses>,
    refused: Mutex<Refused>,
    spent: Mutex<Usage>,
    /// What is to be done before the tool runs.
    on_begin: OnceLock<OnBegin>,
    began: AtomicBool,
}

/// Writes the start line of a call; an error refuses the call.
pub(crate) struct OnBegin(pub(crate) Box<dyn Fn() -> Result<(), String> + Send + Sync>);

impl fmt::Debug for OnBegin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnBegin")
    }
}

#[derive(Debug, Default)]
struct Uses {
    kept: Vec<Use>,
    more: u32,
}

/// What the call was refused while it ran, for those who do not hear it from the tool.
#[derive(Debug, Default)]
struct Refused {
    hints: Vec<String>,
    /// How often a hint was asked for.
    asked: u32,
    unheard: Vec<Unheard>,
}

/// A refusal that an interface could not put into words: the tool went on with an empty folder, a frozen clock or an
/// error without a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unheard {
    /// The text for a model.
    text: String,
    /// It says something only about a call that failed.
    of_failure: bool,
}

/// Something a call used of its grants, or was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Use {
    /// The list of the policy: `net`, `fs_read`, …
    pub key: &'static str,
    /// What of it, cut and escaped.
    pub what: String,
    /// Whether it was granted.
    pub allowed: bool,
}

/// Longest message of a progress event, in characters.
pub const MAX_PROGRESS: usize = 1000;

/// Most different uses that are kept of one call.
const MAX_USES: usize = 64;
/// Most refusals of one call for which a hint is made.
const MAX_ASKED: u32 = 64;
/// Most refusals that are appended to the result of one call.
const MAX_UNHEARD: usize = 4;

impl CallContext {
    pub(crate) fn new(
        call_id: Arc<str>,
        tool: Arc<str>,
        budget_chars: usize,
        turn: Arc<TurnContext>,
        redactor: Redactor,
        profile: Option<Arc<str>>,
    ) -> Self {
        Self {
            call_id,
            tool,
            budget_chars,
            turn,
            redactor,
            profile,
            ends: None,
            uses: Mutex::default(),
            refused: Mutex::default(),
            spent: Mutex::default(),
            on_begin: OnceLock::new(),
            began: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_on_begin(&self, on_begin: OnBegin) {
        // A call is invoked once.
        drop(self.on_begin.set(on_begin));
    }

    /// Notes that the tool is about to run, and writes the start line of the call into the audit if it has one. An invoker
    /// that [begins by itself](crate::call::invoke::Invoke::begins) calls this once nothing can refuse the call any more.
    ///
    /// # Errors
    /// The policy says that the audit is required, and the call cannot be recorded. Nothing may run then.
    pub fn begin(&self) -> Result<(), String> {
        self.on_begin.get().map_or(Ok(()), |on_begin| (on_begin.0)())?;
        self.began.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether the tool was started.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.began.load(Ordering::Acquire)
    }

    /// Ends this call: fires when the caller gives up.
    #[must_use]
    pub fn cancel(&self) -> &CancellationToken {
        &self.turn.cancel
    }

    /// Notes what the call has used so far: what is known of it if its caller goes away before it ends.
    pub fn spend(&self, note: impl FnOnce(&mut Usage)) {
        note(&mut self.spent.lock());
    }

    /// What was noted.
    #[must_use]
    pub fn spent(&self) -> Usage {
        *self.spent.lock()
    }

    /// What takes the values of secrets out of the texts of this call.
    #[must_use]
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Keeps a use for the audit, once for each that differs.
    pub fn note(&self, key: &'static str, what: &str, allowed: bool) {
        let what = &*self.redactor.text(what);
        let mut uses = self.uses.lock();
        let known = |one: &Use| one.key == key && one.allowed == allowed && one.what == what;
        if uses.kept.iter().any(known) {
            return;
        }
        if uses.kept.len() < MAX_USES {
            uses.kept.push(Use { key, what: what.to_owned(), allowed });
        } else {
            uses.more = uses.more.saturating_add(1);
        }
    }

    /// Keeps what the operator is told of a refusal, once for each that differs. One that is too long is not kept: half
    /// a line of a policy is none.
    pub fn advise(&self, hint: impl Into<String>) {
        let hint = self.redactor.owned(hint.into());
        let mut refused = self.refused.lock();
        let fits = refused.hints.len() < MAX_HINTS && hint.len() <= MAX_HINT_BYTES;
        if fits && !refused.hints.contains(&hint) {
            refused.hints.push(hint);
        }
    }

    /// Whether to make one more hint. To make one costs time, which a guest that is refused in a loop does not pay for.
    #[must_use]
    pub fn takes_hints(&self) -> bool {
        let mut refused = self.refused.lock();
        refused.asked = refused.asked.saturating_add(1);
        refused.asked <= MAX_ASKED && refused.hints.len() < MAX_HINTS
    }

    /// What the operator is told so far.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        self.refused.lock().hints.clone()
    }

    /// Notes a refusal that the interface had no words for: its text, which a model reads, is appended to the result of
    /// the call. With `of_failure` it is appended to an error only.
    pub fn unheard(&self, text: &str, of_failure: bool) {
        let text = self.redactor.text(text);
        let mut refused = self.refused.lock();
        let unheard = &mut refused.unheard;
        if let Some(known) = unheard.iter_mut().find(|known| known.text == text) {
            known.of_failure &= of_failure;
        } else if unheard.len() < MAX_UNHEARD {
            unheard.push(Unheard { text: text.into_owned(), of_failure });
        }
    }

    /// The refusals to append to a result of this kind.
    pub(crate) fn to_append(&self, failed: bool) -> Vec<String> {
        let refused = self.refused.lock();
        let due = refused.unheard.iter().filter(|one| failed || !one.of_failure);
        due.map(|one| one.text.clone()).collect()
    }

    /// What was used and refused so far.
    #[must_use]
    pub fn uses(&self) -> Vec<Use> {
        self.uses.lock().kept.clone()
    }

    /// How often something was noted for which there was no room.
    #[must_use]
    pub fn uses_not_kept(&self) -> u32 {
        self.uses.lock().more
    }

    /// Passes a progress event on; what is not seen in its message is spelt out, and it is cut to [`MAX_PROGRESS`] characters. Whoever runs a tool bounds how many
    /// there are.
    pub fn progress(&self, message: &str, percent: Option<f32>, audience: Audience) {
        let Some(sink) = &self.turn.progress else { return };
        let (call_id, tool) = (Arc::clone(&self.call_id), Arc::clone(&self.tool));
        // Before it is cut: half a secret is one, too.
        let message = self.redactor.start(message, MAX_PROGRESS).0;
        let message = untrusted::neutral(&text::visible(&message)).chars().take(MAX_PROGRESS).collect();
        let percent = percent.filter(|percent| percent.is_finite()).map(|percent| percent.clamp(0.0, 100.0));
        sink.progress(Progress { call_id, tool, message, percent, audience });
    }
}

/// A call that passed every gate. Only [`crate::pipeline`] makes one, so an ungated call cannot be written down.
#[derive(Debug)]
pub struct AdmittedCall {
    pub(crate) tool: Arc<ToolDef>,
    pub(crate) args: String,
    pub(crate) parsed: Arc<Value>,
}

impl AdmittedCall {
    /// The tool that was called.
    #[must_use]
    pub fn tool(&self) -> &ToolDef {
        &self.tool
    }

    /// The arguments as text: valid JSON without duplicate keys that matches the tool's schema. A `String`, since
    /// generated bindings take no less, and a copy for each call would be a waste.
    #[must_use]
    pub fn args(&self) -> &String {
        &self.args
    }

    /// The arguments, parsed. To have them for longer than the call, clone the `Arc`.
    #[must_use]
    pub fn parsed(&self) -> &Arc<Value> {
        &self.parsed
    }
}
