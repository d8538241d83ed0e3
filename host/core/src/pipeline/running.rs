//! The calls in progress, for operators: who makes them, since when, and how to cancel them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::resolve::CallTarget;
use crate::audit;
use crate::call::CallContext;
use crate::tool::ToolSource;
use crate::tool::content::{ErrorCode, ToolError};

/// The calls in progress of a pipeline, and whether the operator stopped all calls.
#[derive(Debug, Default)]
pub struct RunningCalls {
    state: Mutex<RunningState>,
}

#[derive(Debug, Default)]
struct RunningState {
    /// The number of the last call.
    last: u64,
    calls: BTreeMap<u64, RunningEntry>,
    /// The reason why no call may begin.
    stopped: Option<Arc<str>>,
}

#[derive(Debug)]
struct RunningEntry {
    ctx: Arc<CallContext>,
    source: Option<Arc<ToolSource>>,
    start: Instant,
}

/// A call in progress. Texts of callers are cut and redacted as in the audit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunningCall {
    /// The number of the call in this process, from 1, for [`RunningCalls::cancel`].
    pub number: u64,
    /// The caller's id of the call. The id of a nested call begins with that of its parent.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The label of the tool's source; absent if the tool is unknown.
    pub source: Option<String>,
    /// The session id of the caller.
    pub session_id: Option<String>,
    /// The agent id of the caller.
    pub agent_id: Option<String>,
    /// The profile of the call.
    pub profile: Option<String>,
    /// Whether the tool was started. Before that, a call waits for an approval, a serial queue, memory or a place among
    /// the parallel calls.
    pub began: bool,
    /// The time since the call arrived, in milliseconds.
    pub elapsed_ms: u64,
}

impl RunningCalls {
    /// Adds a call and returns its number.
    ///
    /// # Errors
    /// The operator stopped all calls.
    pub(super) fn add(&self, target: &CallTarget<'_>, start: Instant) -> Result<u64, ToolError> {
        let entry = RunningEntry { ctx: Arc::clone(&target.ctx), source: target.source().cloned(), start };
        let mut state = self.state.lock();
        if let Some(reason) = &state.stopped {
            let text = format!("Stopped: the operator stopped all calls: {reason}");
            return Err(ToolError::new(ErrorCode::NotAvailable, text)
                .with_subject("stopped")
                .with_hint(Some("`toolbay resume` allows calls again".to_owned())));
        }
        state.last += 1;
        let number = state.last;
        state.calls.insert(number, entry);
        Ok(number)
    }

    /// Removes a call that has ended.
    pub(super) fn remove(&self, number: u64) {
        let removed = self.state.lock().calls.remove(&number);
        // Dropped without the lock: it may be the last reference to the context.
        drop(removed);
    }

    /// The calls in progress, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<RunningCall> {
        let now = Instant::now();
        self.state.lock().calls.iter().map(|(number, entry)| entry.describe(*number, now)).collect()
    }

    /// The number of calls in progress.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.lock().calls.len()
    }

    /// Cancels a call, with all calls of its batch: they share one token. Returns the call; `None` if it has ended.
    pub fn cancel(&self, number: u64) -> Option<RunningCall> {
        let state = self.state.lock();
        let entry = state.calls.get(&number)?;
        let (call, ctx) = (entry.describe(number, Instant::now()), Arc::clone(&entry.ctx));
        drop(state);
        ctx.cancel().cancel();
        Some(call)
    }

    /// Cancels all calls, and refuses new ones until [`RunningCalls::resume`]. Returns the number of cancelled calls.
    pub fn stop(&self, reason: &str) -> usize {
        let mut state = self.state.lock();
        state.stopped = Some(reason.into());
        // No call can begin from here on, so none is missed.
        let running: Vec<_> = state.calls.values().map(|entry| Arc::clone(&entry.ctx)).collect();
        drop(state);
        running.iter().for_each(|ctx| ctx.cancel().cancel());
        running.len()
    }

    /// Allows calls again after [`RunningCalls::stop`]. Returns whether they were stopped.
    pub fn resume(&self) -> bool {
        self.state.lock().stopped.take().is_some()
    }

    /// The reason why all calls are stopped; `None` if they are not.
    #[must_use]
    pub fn stopped(&self) -> Option<Arc<str>> {
        self.state.lock().stopped.clone()
    }
}

impl RunningEntry {
    fn describe(&self, number: u64, now: Instant) -> RunningCall {
        let CallContext { call_id, tool, turn, profile, .. } = &*self.ctx;
        let redacted = |text: &str| audit::cut(&self.ctx.redactor().redact_text(text));
        RunningCall {
            number,
            call_id: redacted(call_id),
            tool: redacted(tool),
            source: self.source.as_ref().map(|source| source.label()),
            session_id: turn.session.id().map(redacted),
            agent_id: turn.identity.agent_id.as_deref().map(redacted),
            profile: profile.as_deref().map(audit::cut),
            began: self.ctx.has_begun(),
            elapsed_ms: millis(now.duration_since(self.start)),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
