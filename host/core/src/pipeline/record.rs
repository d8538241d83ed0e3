//! What is kept of a call: a line of the audit, an entry of the log, an event if it failed.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use tokio::time::Instant;
use toolbay_policy::audit_policy::StartLines;

use super::way::Way;
use super::{Batch, outcome};
use crate::audit::call_log::CallEntry;
use crate::audit::{self, AuditRecord, CallStart, StartId};
use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::Failure;
use crate::call::{CallContext, OnBegin};
use crate::output::redact::Redactor;
use crate::registry::event::Event;
use crate::registry::view::Entry;
use crate::tool::content::ToolOutput;

/// A call that is not recorded yet. One that is dropped under way, because its caller went away, has done what it has
/// done: it is recorded too.
pub(super) struct Open<'a> {
    batch: Batch<'a>,
    call_id: &'a Arc<str>,
    tool: &'a str,
    args_bytes: usize,
    start: Instant,
    pub(super) way: Way,
    ended: bool,
}

impl<'a> Open<'a> {
    pub(super) fn new(batch: Batch<'a>, call_id: &'a Arc<str>, tool: &'a str, args_bytes: usize) -> Self {
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
        let ended = Instant::now();
        let took = ended.duration_since(self.start);
        let duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let record = self.record(result, duration_us);
        self.remember(&record, ended);
        // A sink is the embedder's code; that it fails must not cost the caller the result.
        let audit = &self.batch.pipeline.audit;
        let event = result.is_err().then(|| Event::ToolError {
            tool: Arc::clone(&record.tool),
            call_id: Arc::clone(&record.call_id),
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
        let began = way.call.as_ref().filter(|_| way.began);
        let told = |text: &str| audit::cut(&redactor.text(text));
        let (call_id, tool) = match &way.call {
            Some(call) => (shown(redactor, &call.call_id), shown(redactor, &call.tool)),
            None => (told(self.call_id).into(), told(self.tool).into()),
        };
        AuditRecord {
            call_id,
            outer: self.batch.outer.map(|outer| told(outer.id())),
            tool,
            through: way.target.is_some().then(|| told(self.tool)),
            source: way.source.clone(),
            session_id: identity.session_id.as_deref().map(told),
            agent_id: identity.agent_id.as_deref().map(told),
            platform: identity.platform.as_deref().map(told),
            profile: way.profile.as_deref().map(audit::cut),
            traceparent: identity.traceparent.as_deref().map(told),
            call_sha256: way.call_sha256,
            args_sha256: way.args_sha256,
            permission: way.permission,
            outcome: outcome(result),
            limit,
            uses: began.map_or_else(Vec::new, |ctx| ctx.uses()),
            uses_not_kept: began.map_or(0, |ctx| ctx.uses_not_kept()),
            hints: way.hints.clone(),
            usage: way.usage.or_else(|| began.map(|ctx| ctx.spent())).unwrap_or_default(),
            cost_usd: way.cost_usd,
            duration_us,
            cached: way.cached.is_some(),
            delivered_chars: text,
            cut_from_chars: way.cut_from,
            reducer: way.reducer,
            reason: (way.reason.take())
                .map(|reason| redactor.text(&reason).chars().take(audit::MAX_REASON).collect()),
            began: way.call.as_ref().is_some_and(|ctx| ctx.has_begun()),
            start_id: way.call.as_ref().filter(|ctx| ctx.has_begun()).and(way.start_id),
        }
    }

    fn remember(&self, record: &AuditRecord, ended: Instant) {
        let log = &self.batch.pipeline.log;
        if !log.is_on() {
            return;
        }
        log.push(CallEntry {
            number: 0,
            ended,
            call_id: Arc::clone(&record.call_id),
            outer: record.outer.as_deref().map(Arc::from),
            tool: Arc::clone(&record.tool),
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

impl Way {
    /// Has the call written into the audit before it runs, if the policy wants that.
    pub(super) fn write_start(&mut self, batch: Batch<'_>, entry: &Entry, ctx: &Arc<CallContext>) {
        let (policy, audit) = (&batch.gates.audit, &batch.pipeline.audit);
        let wanted = match policy.start_lines {
            StartLines::All => true,
            StartLines::Effects => policy.required || entry.def.may_have_effects(),
            StartLines::Never => false,
        };
        if !wanted || !audit.takes_starts() {
            return;
        }
        let (start_id, identity, redactor) = (StartId::next(), &batch.turn.identity, &self.redactor);
        let told = |text: &str| audit::cut(&redactor.text(text));
        let start = CallStart {
            start_id,
            call_id: shown(redactor, &ctx.call_id),
            tool: shown(redactor, &ctx.tool),
            source: Arc::clone(&entry.def.source),
            session_id: identity.session_id.as_deref().map(told),
            agent_id: identity.agent_id.as_deref().map(told),
            profile: self.profile.clone(),
            args_sha256: self.args_sha256,
        };
        self.start_id = Some(start_id);
        let (audit, required) = (Arc::clone(audit), policy.required);
        ctx.set_on_begin(OnBegin(Box::new(move || {
            // As at the end: a sink is the embedder's code.
            let written = std::panic::catch_unwind(AssertUnwindSafe(|| audit.started(start.clone())));
            let written = written.unwrap_or_else(|_| Err("the audit sink panicked".to_owned()));
            if required { written } else { Ok(()) }
        })));
    }
}

/// A text of a caller as it is kept: short, and without the values of secrets. Most are that as they come.
fn shown(redactor: &Redactor, text: &Arc<str>) -> Arc<str> {
    match redactor.text(text) {
        Cow::Borrowed(_) if text.len() <= audit::MAX_TEXT => Arc::clone(text),
        told => audit::cut(&told).into(),
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let gone = Fault::new(FaultKind::Cancelled, "the caller went away");
            self.end(&Err(gone.into()));
        }
    }
}
