//! What is kept of a call: a line of the audit, an entry of the log, an event if it failed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use super::way::Way;
use super::{Batch, outcome};
use crate::audit::{self, AuditRecord};
use crate::call_log::CallEntry;
use crate::content::ToolOutput;
use crate::event::Event;
use crate::fault::{Fault, FaultKind};
use crate::invoke::Failure;
use crate::redact::Redactor;

/// A call that is not recorded yet. One that is dropped under way, because its caller went away, has done what it has
/// done: it is recorded too.
pub(super) struct Open<'a> {
    batch: Batch<'a>,
    call_id: &'a str,
    tool: &'a str,
    args_bytes: usize,
    start: Instant,
    pub(super) way: Way,
    ended: bool,
}

impl<'a> Open<'a> {
    pub(super) fn new(batch: Batch<'a>, call_id: &'a str, tool: &'a str, args_bytes: usize) -> Self {
        let pipeline = batch.pipeline;
        let way = Way {
            redactor: Redactor::clone(&pipeline.redactor.load()),
            delivery: batch.gates.delivery,
            ..Way::default()
        };
        Self { batch, call_id, tool, args_bytes, start: Instant::now(), way, ended: false }
    }

    /// Records how the call ended; returns how long it took, in microseconds.
    pub(super) fn end(&mut self, result: &Result<ToolOutput, Failure>) -> u64 {
        self.ended = true;
        let duration_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let record = self.record(result, duration_us);
        self.remember(&record);
        // A sink is the embedder's code; that it fails must not cost the caller the result.
        let audit = &self.batch.pipeline.audit;
        let event = result.is_err().then(|| Event::ToolError {
            tool: record.tool.as_str().into(),
            call_id: record.call_id.as_str().into(),
            outcome: record.outcome,
        });
        if std::panic::catch_unwind(AssertUnwindSafe(|| audit.record(record))).is_err() {
            tracing::error!(call = ?self.call_id, "the audit sink panicked; a record is lost");
        }
        if let Some(event) = event {
            self.batch.pipeline.events.tell(event);
        }
        duration_us
    }

    fn record(&mut self, result: &Result<ToolOutput, Failure>, duration_us: u64) -> AuditRecord {
        let text = match result {
            Ok(output) => output.value.chars().count(),
            Err(failure) => failure.to_string().chars().count(),
        };
        let limit = match result {
            Err(Failure::Fault(fault)) => fault.limit.clone(),
            Ok(_) | Err(Failure::Refused(_) | Failure::Host(_)) => None,
        };
        let (way, identity) = (&mut self.way, &self.batch.turn.identity);
        let redactor = &way.redactor;
        let told = |text: &str| audit::cut(&redactor.text(text));
        AuditRecord {
            call_id: told(self.call_id),
            outer: self.batch.outer.map(|outer| told(outer.id())),
            tool: told(way.target.as_deref().unwrap_or(self.tool)),
            through: way.target.is_some().then(|| told(self.tool)),
            source: way.source.clone(),
            session_id: identity.session_id.as_deref().map(told),
            agent_id: identity.agent_id.as_deref().map(told),
            platform: identity.platform.as_deref().map(told),
            profile: self
                .batch
                .view
                .profile_of(way.target.as_deref().unwrap_or(self.tool))
                .map(|profile| audit::cut(profile)),
            traceparent: identity.traceparent.as_deref().map(told),
            call_sha256: way.call_sha256.clone(),
            args_sha256: way.args_sha256.take(),
            permission: way.permission,
            outcome: outcome(result),
            limit,
            uses: way.ctx.as_ref().map_or_else(Vec::new, |ctx| ctx.uses()),
            uses_not_kept: way.ctx.as_ref().map_or(0, |ctx| ctx.uses_not_kept()),
            usage: way.usage.or_else(|| way.ctx.as_ref().map(|ctx| ctx.spent())).unwrap_or_default(),
            cost_usd: way.cost_usd,
            duration_us,
            cached: way.cached.is_some(),
            delivered_chars: text,
            cut_from_chars: way.cut_from,
            reducer: way.reducer,
            reason: (way.reason.take())
                .map(|reason| redactor.text(&reason).chars().take(audit::MAX_REASON).collect()),
        }
    }

    fn remember(&self, record: &AuditRecord) {
        let log = &self.batch.pipeline.log;
        if !log.is_on() {
            return;
        }
        let ctx = self.way.ctx.as_ref();
        log.push(CallEntry {
            number: 0,
            ended: tokio::time::Instant::now(),
            call_id: shared(&record.call_id, ctx.map(|ctx| &ctx.call_id)),
            outer: record.outer.as_deref().map(Arc::from),
            tool: shared(&record.tool, ctx.map(|ctx| &ctx.tool)),
            source: record.source.clone(),
            session_id: record.session_id.as_deref().map(Arc::from),
            outcome: record.outcome,
            cached: record.cached,
            duration_us: record.duration_us,
            args_bytes: self.args_bytes,
            delivered_chars: record.delivered_chars,
            cost_usd: record.cost_usd,
        });
    }
}

/// A text, without a copy where it is written down already.
fn shared(text: &str, known: Option<&Arc<str>>) -> Arc<str> {
    known.filter(|known| ***known == *text).map_or_else(|| text.into(), Arc::clone)
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let gone = Fault::new(FaultKind::Cancelled, "the caller went away");
            self.end(&Err(gone.into()));
        }
    }
}
