//! A call, from the caller's side: what is asked, in which turn, and what the call may know about it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::tool::ToolDef;

/// Characters that the results of one batch may have together, unless the turn says otherwise (the seed's default).
pub const DEFAULT_BUDGET_CHARS: usize = 80_000;

/// One call as a caller writes it.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The caller's id of the call; comes back with the result.
    pub id: String,
    /// The tool's qualified name.
    pub tool: String,
    /// The arguments, a JSON text. Nothing but white space counts as `{}`.
    pub args: String,
}

impl ToolCall {
    /// A call with the arguments as JSON text.
    #[must_use]
    pub fn new(id: impl Into<String>, tool: impl Into<String>, args: impl Into<String>) -> Self {
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
    /// Ends this call: fires when the caller gives up and when the batch is dropped.
    pub cancel: CancellationToken,
    /// The batch it belongs to.
    pub turn: Arc<TurnContext>,
    events: AtomicU32,
}

impl CallContext {
    pub(crate) fn new(call_id: &str, tool: &str, budget_chars: usize, turn: Arc<TurnContext>) -> Self {
        let cancel = turn.cancel.child_token();
        Self {
            call_id: call_id.into(),
            tool: tool.into(),
            budget_chars,
            cancel,
            turn,
            events: AtomicU32::new(0),
        }
    }

    /// Passes a progress event on, unless `most` were passed before.
    pub fn progress(&self, message: String, percent: Option<f32>, audience: Audience, most: u32) {
        let Some(sink) = &self.turn.progress else { return };
        if self.events.fetch_add(1, Ordering::Relaxed) < most {
            let (call_id, tool) = (Arc::clone(&self.call_id), Arc::clone(&self.tool));
            sink.progress(Progress { call_id, tool, message, percent, audience });
        }
    }
}

/// A call that passed every gate. Only [`crate::pipeline`] makes one, so an ungated call can not be written down.
#[derive(Debug)]
pub struct Admitted {
    pub(crate) tool: Arc<ToolDef>,
    pub(crate) args: String,
    pub(crate) parsed: Value,
}

impl Admitted {
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

    /// The arguments, parsed.
    #[must_use]
    pub fn parsed(&self) -> &Value {
        &self.parsed
    }
}
