//! Calls: the request of a caller, the context of its turn, and the state of a running call.

pub mod compute;
pub mod dialog;
pub mod idempotency;
pub mod invoke;
pub mod reduce;
pub mod server_connector;
pub mod service_request;
pub mod shared;
pub mod trace;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use toolbay_policy::hidden_chars;
use toolbay_policy::hint::Hint;
use toolbay_policy::limits::Usage;
use toolbay_policy::name;
use toolbay_policy::refusal::{MAX_HINT_BYTES, MAX_HINTS};

use crate::approval::Approver;
use crate::call::compute::{ComputePool, ComputeQueue, INLINE_STEPS};
use crate::call::dialog::Dialog;
use crate::call::shared::CallRights;
use crate::call::trace::{CallTrace, RequestTrace, TraceParent};
use crate::neutral_text;
use crate::output::redact::Redactor;
use crate::session::Session;
use crate::session::attachment::Attachments;
use crate::tool::ToolDef;
use crate::tool::fault::Fault;

/// Default for [`TurnContext::budget_chars`].
pub const DEFAULT_BUDGET_CHARS: usize = 80_000;

/// A call as the caller requests it.
///
/// ```
/// use serde_json::json;
/// use toolbay_core::call::ToolCall;
///
/// let args = json!({"text": "to be or not to be"});
/// let call = ToolCall::new("call-1", "text__word_count", args.to_string());
/// assert_eq!(call.args, r#"{"text":"to be or not to be"}"#);
/// ```
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The caller's id of the call, which the result repeats.
    pub id: Arc<str>,
    /// The tool's qualified name.
    pub tool: String,
    /// The arguments, a JSON text. An empty or blank text counts as `{}`.
    pub args: String,
    /// The key under which the caller repeats the call, at most [`idempotency::MAX_KEY_BYTES`]: the tool runs once. It
    /// belongs to the session, which must have a key.
    pub idempotency_key: Option<Arc<str>>,
}

impl ToolCall {
    /// A call with the arguments as JSON text.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, tool: impl Into<String>, args: impl Into<String>) -> Self {
        Self { id: id.into(), tool: tool.into(), args: args.into(), idempotency_key: None }
    }

    /// Sets the idempotency key.
    #[must_use]
    pub fn with_idempotency_key(self, key: Option<Arc<str>>) -> Self {
        Self { idempotency_key: key, ..self }
    }
}

/// The context that all calls of a batch share. The registry stores none of it, so two sessions on one registry share
/// nothing.
///
/// ```
/// use toolbay_core::call::{Identity, TurnContext};
///
/// let identity = Identity { agent_id: Some("researcher".to_owned()), ..Identity::default() };
/// let turn = TurnContext { budget_chars: 20_000, identity, ..TurnContext::default() };
///
/// // Clones of the token cancel every call of the turn.
/// let cancel = turn.cancel.clone();
/// cancel.cancel();
/// assert!(turn.cancel.is_cancelled());
/// ```
#[derive(Debug, Clone)]
pub struct TurnContext {
    /// Most characters of all results of the batch together.
    pub budget_chars: usize,
    /// Cancels every call of the batch.
    pub cancel: CancellationToken,
    /// Whether the calls pass the gates without running a tool.
    pub dry_run: bool,
    /// Receives progress events.
    pub progress: Option<Arc<dyn ProgressSink>>,
    /// The identity of the caller. A guest gets it on request.
    pub identity: Identity,
    /// The attachments of the turn; `None` if the turn has none and tools cannot create any.
    pub attachments: Option<Arc<dyn Attachments>>,
    /// The port through which native tools send requests to the calling program.
    pub dialog: Option<Arc<dyn Dialog>>,
    /// The approver for the calls of this batch. It takes precedence over those of the session and the host.
    pub approver: Option<Arc<dyn Approver>>,
    /// The session of the turn. The default is a new session for each batch.
    pub session: Arc<Session>,
    /// The request that asks for the calls, if a protocol server received one and calls are traced. Without it,
    /// [`Identity::traceparent`] is the parent of the calls.
    pub request: Option<Arc<RequestTrace>>,
    /// A value of the embedder's program for its native tools. Nothing else reads it.
    pub extension: Option<Arc<dyn Any + Send + Sync>>,
}

/// The identity of the caller as guests see it. The caller leaves a field `None` to withhold it.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// A session key that people can read.
    pub session_key: Option<String>,
    /// The calling platform: `cli`, `mcp`, …
    pub platform: Option<String>,
    /// The calling program, as it names itself. People read it; nothing is decided by it, and guests do not get it.
    pub client: Option<String>,
    /// The id of the acting agent.
    pub agent_id: Option<String>,
    /// The id of the acting personality.
    pub personality_id: Option<String>,
    /// The id of the team.
    pub team_id: Option<String>,
    /// The number of the turn in the session, from 1.
    pub turn: Option<u32>,
    /// The number of messages in the conversation so far.
    pub message_count: Option<u32>,
    /// The caller's trace (W3C Trace Context).
    pub traceparent: Option<TraceParent>,
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
            request: None,
            extension: None,
        }
    }
}

/// The audience of a progress event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressAudience {
    /// Logs and telemetry only.
    Internal,
    /// The person in the conversation.
    User,
    /// Operators' dashboards.
    Dashboard,
}

/// A progress event of a running call. The message is untrusted text of the guest, bounded by the runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressEvent {
    /// The caller's id of the call.
    pub call_id: Arc<str>,
    /// The tool's qualified name.
    pub tool: Arc<str>,
    /// The guest's message.
    pub message: String,
    /// The progress in percent, 0 to 100.
    pub percent: Option<f32>,
    /// The audience that may see the event.
    pub audience: ProgressAudience,
}

/// Receives progress events. The running call invokes it, so it must not block.
pub trait ProgressSink: Send + Sync + fmt::Debug {
    /// Handles one event.
    fn progress(&self, event: ProgressEvent);
}

/// The context of a running call.
#[derive(Debug)]
pub struct CallContext {
    /// The caller's id of the call.
    pub call_id: Arc<str>,
    /// The tool's qualified name.
    pub tool: Arc<str>,
    /// Most characters of `value`; a longer text is cut.
    pub budget_chars: usize,
    /// The context of its batch.
    pub turn: Arc<TurnContext>,
    redactor: Redactor,
    compute: ComputePool,
    /// The profile of the call.
    pub profile: Option<Arc<str>>,
    /// The deadline of a nested call: that of its parent.
    pub deadline: Option<Instant>,
    uses: Mutex<UseLog>,
    refusals: Mutex<RefusalNotes>,
    usage: Mutex<Usage>,
    /// The trace of the call, if calls are traced.
    pub trace: Option<Arc<CallTrace>>,
    /// The rights of the call, on a host with shared state.
    rights: OnceLock<Box<CallRights>>,
    /// Runs before the tool does.
    on_begin: OnceLock<BeginHook>,
    began: AtomicBool,
}

/// Writes the start line of a call into the audit. An error refuses the call.
pub(crate) struct BeginHook(pub(crate) Box<dyn Fn() -> Result<(), String> + Send + Sync>);

impl fmt::Debug for BeginHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeginHook")
    }
}

#[derive(Debug, Default)]
struct UseLog {
    kept: Vec<CapabilityUse>,
    dropped: u32,
}

/// Refusals while the call ran: hints for the operator, and texts for a model that the guest interface cannot express.
#[derive(Debug, Default)]
struct RefusalNotes {
    hints: Vec<Hint>,
    /// The number of refusals for which a hint was considered.
    hint_attempts: u32,
    silent: Vec<SilentRefusal>,
}

/// A refusal without an error message at the guest interface: the tool saw an empty directory, a frozen clock or a bare
/// error code instead.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SilentRefusal {
    /// The text for a model.
    text: String,
    /// Whether the text is relevant to failed calls only.
    only_on_failure: bool,
}

/// A use of a grant by a call, or a refused attempt. A reader of records has the key as a `String`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityUse<S = &'static str> {
    /// The policy key of the capability: `net`, `fs_read`, …
    pub key: S,
    /// The target, cut and escaped.
    pub what: String,
    /// Whether the use was granted.
    pub allowed: bool,
}

/// Longest message of a progress event, in characters.
pub const MAX_PROGRESS: usize = 1000;

/// Most distinct uses that are recorded for one call.
const MAX_USES: usize = 64;
/// Most refusals of one call for which a hint is built.
const MAX_HINT_ATTEMPTS: u32 = 64;
/// Most silent refusals that are appended to the result of one call.
const MAX_SILENT_REFUSALS: usize = 4;

impl CallContext {
    pub(crate) fn new(
        call_id: Arc<str>,
        tool: Arc<str>,
        budget_chars: usize,
        turn: Arc<TurnContext>,
        redactor: Redactor,
        compute: ComputePool,
        profile: Option<Arc<str>>,
    ) -> Self {
        Self {
            call_id,
            tool,
            budget_chars,
            turn,
            redactor,
            compute,
            profile,
            deadline: None,
            uses: Mutex::default(),
            refusals: Mutex::default(),
            usage: Mutex::default(),
            trace: None,
            rights: OnceLock::new(),
            on_begin: OnceLock::new(),
            began: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_begin_hook(&self, on_begin: BeginHook) {
        // A call is invoked once.
        drop(self.on_begin.set(on_begin));
    }

    /// Sets the rights of the call.
    pub(crate) fn set_rights(&self, rights: CallRights) {
        // A call is invoked once.
        drop(self.rights.set(Box::new(rights)));
    }

    /// The rights of the call, which each host call of its guest must [check](CallRights::check). `None` on a host without
    /// shared state.
    #[must_use]
    pub fn rights(&self) -> Option<&CallRights> {
        self.rights.get().map(|rights| &**rights)
    }

    /// Marks the call as begun and writes its start line into the audit, if the policy wants one. An invoker that
    /// [begins its calls](crate::call::invoke::Invoke::calls_begin) calls this once nothing can refuse the call any
    /// more.
    ///
    /// # Errors
    /// The start line cannot be written, and the policy requires the audit. The tool must not run then.
    pub fn begin(&self) -> Result<(), String> {
        self.on_begin.get().map_or(Ok(()), |on_begin| (on_begin.0)())?;
        self.began.store(true, Ordering::Release);
        if let Some(trace) = &self.trace {
            trace.set_began();
        }
        Ok(())
    }

    /// Whether the tool was started.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.began.load(Ordering::Acquire)
    }

    /// The token that cancels this call.
    #[must_use]
    pub fn cancel(&self) -> &CancellationToken {
        &self.turn.cancel
    }

    /// Updates the usage of the call. The audit records it even if the caller goes away before the call ends.
    pub fn update_usage(&self, note: impl FnOnce(&mut Usage)) {
        note(&mut self.usage.lock());
    }

    /// The usage so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        *self.usage.lock()
    }

    /// The queue for work on the data of this call. The work that one source causes delays only that source.
    #[must_use]
    pub fn compute_queue(&self) -> ComputeQueue {
        let source = name::split_qualified(&self.tool).map_or(&*self.tool, |(source, _)| source);
        self.compute_queue_of(source)
    }

    /// The queue for work on the data of a source other than the tool's.
    #[must_use]
    pub fn compute_queue_of(&self, source: &str) -> ComputeQueue {
        self.compute.queue(source.into(), self.cancel().clone())
    }

    /// Runs work of about `steps` steps, as [`ComputeQueue::run`].
    ///
    /// # Errors
    /// The call was cancelled.
    pub async fn compute<T: Send + 'static>(
        &self,
        steps: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        if steps <= INLINE_STEPS {
            return Ok(work());
        }
        self.compute_queue().run(steps, work).await
    }

    /// The redactor for the texts of this call.
    #[must_use]
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Records a use for the audit. Equal uses are recorded once.
    pub fn record_use(&self, key: &'static str, what: &str, allowed: bool) {
        let what = &*self.redactor.redact_text(what);
        let mut uses = self.uses.lock();
        let is_same = |one: &CapabilityUse| one.key == key && one.allowed == allowed && one.what == what;
        if uses.kept.iter().any(is_same) {
            return;
        }
        if uses.kept.len() < MAX_USES {
            uses.kept.push(CapabilityUse { key, what: what.to_owned(), allowed });
        } else {
            uses.dropped = uses.dropped.saturating_add(1);
        }
    }

    /// Adds a hint for the operator. Equal hints are added once; a hint that is too long is dropped, since half a
    /// policy line is of no use.
    pub fn add_hint(&self, hint: impl Into<Hint>) {
        let hint = self.redactor.redact_hint(hint.into());
        let mut refused = self.refusals.lock();
        let fits = refused.hints.len() < MAX_HINTS && hint.to_string().len() <= MAX_HINT_BYTES;
        if fits && !refused.hints.contains(&hint) {
            refused.hints.push(hint);
        }
    }

    /// Whether to build a hint for one more refusal. A guest that is refused in a loop must not cost the host the time
    /// of building a hint each time.
    #[must_use]
    pub fn should_build_hint(&self) -> bool {
        let mut refused = self.refusals.lock();
        refused.hint_attempts = refused.hint_attempts.saturating_add(1);
        refused.hint_attempts <= MAX_HINT_ATTEMPTS && refused.hints.len() < MAX_HINTS
    }

    /// The hints for the operator so far.
    #[must_use]
    pub fn hints(&self) -> Vec<Hint> {
        self.refusals.lock().hints.clone()
    }

    /// Adds a refusal that the guest interface cannot express. Its text, which a model reads, is appended to the result
    /// of the call; with `only_on_failure`, to an error only.
    pub fn add_silent_refusal(&self, text: &str, only_on_failure: bool) {
        let text = self.redactor.redact_text(text);
        let mut refused = self.refusals.lock();
        let silent = &mut refused.silent;
        if let Some(known) = silent.iter_mut().find(|known| known.text == text) {
            known.only_on_failure &= only_on_failure;
        } else if silent.len() < MAX_SILENT_REFUSALS {
            silent.push(SilentRefusal { text: text.into_owned(), only_on_failure });
        }
    }

    /// The texts of silent refusals to append to the result of a call that failed, or did not.
    pub(crate) fn texts_to_append(&self, failed: bool) -> Vec<String> {
        let refused = self.refusals.lock();
        let due = refused.silent.iter().filter(|one| failed || !one.only_on_failure);
        due.map(|one| one.text.clone()).collect()
    }

    /// The recorded uses so far.
    #[must_use]
    pub fn uses(&self) -> Vec<CapabilityUse> {
        self.uses.lock().kept.clone()
    }

    /// The number of uses beyond the limit, which were not recorded.
    #[must_use]
    pub fn dropped_uses(&self) -> u32 {
        self.uses.lock().dropped
    }

    /// Sends a progress event to the sink. Invisible characters of the message are escaped, and the message is cut to
    /// [`MAX_PROGRESS`] characters. The runtime bounds the number of events. A sink that panics costs its event only.
    pub fn progress(&self, message: &str, percent: Option<f32>, audience: ProgressAudience) {
        let Some(sink) = &self.turn.progress else { return };
        let (call_id, tool) = (Arc::clone(&self.call_id), Arc::clone(&self.tool));
        // Redacted before it is cut: a cut could leave half a secret.
        let message = self.redactor.redact_prefix(message, MAX_PROGRESS).0;
        let message = neutral_text::neutralize(&hidden_chars::escape_hidden(&message))
            .chars()
            .take(MAX_PROGRESS)
            .collect();
        let percent = percent.filter(|percent| percent.is_finite()).map(|percent| percent.clamp(0.0, 100.0));
        let event = ProgressEvent { call_id, tool, message, percent, audience };
        if catch_unwind(AssertUnwindSafe(|| sink.progress(event))).is_err() {
            tracing::error!(tool = %self.tool, "the progress sink panicked");
        }
    }
}

/// A call that passed every gate. Only [`crate::pipeline`] constructs it, so no code can invoke a tool without the gates.
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

    /// The arguments as text: valid JSON without duplicate keys that matches the tool's schema. The generated bindings
    /// take a `&String`, so this is not a `&str`, which would need a copy for each call.
    #[must_use]
    pub fn args(&self) -> &String {
        &self.args
    }

    /// The parsed arguments. Clone the `Arc` to keep them beyond the call.
    #[must_use]
    pub fn parsed(&self) -> &Arc<Value> {
        &self.parsed
    }
}

#[cfg(test)]
#[path = "call/fixture_tests.rs"]
pub(crate) mod fixture;
