//! The context that the calls of a batch share.

use std::sync::Arc;
use std::time::Instant;

use super::parent_call::ParentCall;
use super::parts::{CallPolicy, PipelineParts};
use crate::call::TurnContext;
use crate::call::trace::{CallTrace, Tracer};
use crate::output::budget;
use crate::registry::view::View;
use crate::session::TurnCount;

/// The context that the calls of a batch share.
#[derive(Debug, Clone)]
pub(crate) struct BatchContext {
    pub(crate) pipeline: Arc<PipelineParts>,
    pub(crate) view: View,
    pub(crate) turn: Arc<TurnContext>,
    pub(crate) call_policy: Arc<CallPolicy>,
    pub(crate) turn_count: Option<Arc<TurnCount>>,
    /// The number of calls in the batch.
    pub(crate) size: usize,
    /// The parent call, if a tool makes these calls.
    pub(crate) parent: Option<Arc<ParentCall>>,
    /// The deadline of the parent call.
    pub(crate) deadline: Option<Instant>,
}

impl BatchContext {
    /// Starts the trace of a call.
    pub(crate) fn start_trace(&self, tracer: &Arc<Tracer>, start: tokio::time::Instant) -> Arc<CallTrace> {
        let caller = self.parent.as_ref().and_then(|parent| parent.ctx.trace.as_deref());
        let request = &self.turn.request;
        let named = match request {
            Some(request) => request.parent,
            None => self.turn.identity.traceparent,
        };
        Arc::new(tracer.start(caller, named, request.clone(), start))
    }

    /// Most characters of the output of one call.
    pub(crate) fn budget_chars(&self, of_tool: Option<u64>) -> usize {
        match self.parent {
            Some(_) => self.turn.budget_chars,
            None => budget::share(self.turn.budget_chars, self.size, of_tool),
        }
    }
}
