//! The calls in progress, for operators: who makes them, since when, and how to cancel them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::audit;
use crate::call::CallContext;
use crate::tool::ToolSource;
use crate::tool::refusal::{Refusal, RefusalReason};

/// The calls in progress of a pipeline, and whether the operator stopped all calls.
#[derive(Debug, Default)]
pub struct RunningCalls {
    state: Mutex<RunningState>,
}

#[derive(Debug, Default)]
struct RunningState {
    /// The number of the last call.
    last: u64,
    /// The calls, in reusable slots, so that adding and removing a call is cheap.
    slots: Vec<Option<RunningEntry>>,
    free: Vec<usize>,
    /// The reason why no call may begin.
    stopped: Option<Arc<str>>,
}

#[derive(Debug)]
struct RunningEntry {
    number: u64,
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
    /// Whether the tool was started. Before that, a call waits for an approval, a serial queue, memory or a run
    /// permit.
    pub began: bool,
    /// The time since the call arrived, in milliseconds.
    pub elapsed_ms: u64,
}

impl RunningCalls {
    /// Adds a call and returns its slot.
    ///
    /// # Errors
    /// The operator stopped all calls.
    pub(super) fn add(
        &self,
        ctx: &Arc<CallContext>,
        source: Option<&Arc<ToolSource>>,
        start: Instant,
    ) -> Result<usize, Refusal> {
        let (ctx, source) = (Arc::clone(ctx), source.cloned());
        let mut state = self.state.lock();
        if let Some(reason) = &state.stopped {
            let text = format!("Stopped: the operator stopped all calls: {reason}");
            return Err(Refusal::new(RefusalReason::Stopped, text)
                .with_subject("stopped")
                .with_hint(Some("`toolbay resume` allows calls again".into())));
        }
        state.last += 1;
        let entry = Some(RunningEntry { number: state.last, ctx, source, start });
        if let Some(at) = state.free.pop()
            && let Some(slot) = state.slots.get_mut(at)
        {
            *slot = entry;
            return Ok(at);
        }
        state.slots.push(entry);
        Ok(state.slots.len() - 1)
    }

    /// Removes a call that has ended.
    pub(super) fn remove(&self, slot: usize) {
        let mut state = self.state.lock();
        let removed = state.slots.get_mut(slot).and_then(Option::take);
        state.free.push(slot);
        drop(state);
        // Dropped without the lock: it may be the last reference to the context.
        drop(removed);
    }

    /// The calls in progress, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<RunningCall> {
        let now = Instant::now();
        let mut calls: Vec<_> = self.state.lock().calls().map(|entry| entry.describe(now)).collect();
        calls.sort_unstable_by_key(|call| call.number);
        calls
    }

    /// The number of calls in progress.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.lock().calls().count()
    }

    /// Cancels a call, with all calls of its batch: they share one token. Returns the call; `None` if it has ended.
    pub fn cancel(&self, number: u64) -> Option<RunningCall> {
        let state = self.state.lock();
        let entry = state.calls().find(|entry| entry.number == number)?;
        let (call, ctx) = (entry.describe(Instant::now()), Arc::clone(&entry.ctx));
        drop(state);
        ctx.cancel().cancel();
        Some(call)
    }

    /// Cancels all calls, and refuses new ones until [`RunningCalls::resume`]. Returns the number of cancelled calls.
    pub fn stop(&self, reason: &str) -> usize {
        let mut state = self.state.lock();
        state.stopped = Some(reason.into());
        drop(state);
        // No call can begin from here on, so none is missed.
        self.cancel_all()
    }

    /// Cancels the calls that are in progress now. Returns their number.
    pub fn cancel_all(&self) -> usize {
        let running: Vec<_> = self.state.lock().calls().map(|entry| Arc::clone(&entry.ctx)).collect();
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

impl RunningState {
    /// The calls in progress, in no order.
    fn calls(&self) -> impl Iterator<Item = &RunningEntry> {
        self.slots.iter().flatten()
    }
}

impl RunningEntry {
    fn describe(&self, now: Instant) -> RunningCall {
        let CallContext { call_id, tool, turn, profile, .. } = &*self.ctx;
        let redacted = |text: &str| audit::redacted(self.ctx.redactor(), text);
        RunningCall {
            number: self.number,
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
