//! The guard of a call: it collects facts from the stages. At the end it writes the audit record, the entry in the call
//! log, and an event if the call failed.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolbay_policy::audit_policy::StartLines;
use toolbay_policy::hint::Hint;
use toolbay_policy::limits::Usage;

use super::batch::BatchContext;
use super::target::CallTarget;
use super::{refusals, shared};
use crate::approval::Decision;
use crate::audit::call_log::CallEntry;
use crate::audit::{self, AuditRecord, CallStart, StartId};
use crate::call::invoke::Failure;
use crate::call::{BeginHook, CallContext};
use crate::output::redact::Redactor;
use crate::pipeline::result::{CallResult, PolicyHints, ShapedOutput, outcome};
use crate::registry::event::HostEvent;
use crate::registry::view::{FoundTool, ToolEntry};
use crate::tool::ToolSource;
use crate::tool::canonical::Digest;
use crate::tool::fault::{Fault, FaultKind};
use crate::tool::refusal::Refusal;

/// A call that is not recorded yet, with the facts from its stages. If the call is dropped because the caller went
/// away, the guard still records it, since the call may have had effects.
pub(crate) struct AuditGuard<'b> {
    pub(crate) batch: &'b BatchContext,
    pub(crate) call_id: &'b Arc<str>,
    /// The name that the caller used.
    pub(crate) requested_tool: String,
    args_bytes: usize,
    pub(crate) start: Instant,
    pub(crate) redactor: Redactor,
    target: Option<TargetFacts>,
    /// The slot among the calls in progress.
    running: Option<usize>,
    pub(crate) digests: Option<CallDigests>,
    /// The caller's reason for the call.
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) permission: Option<Decision>,
    /// The time in which the call waited for a person, its queue or memory.
    pub(crate) waited: Duration,
    /// The caller's idempotency key.
    pub(crate) idempotency_key: Option<Arc<str>>,
    /// `None` until the call can have had effects.
    pub(crate) run: Option<RunFacts>,
    finished: bool,
}

/// The digests of a call in canonical form ([`crate::tool::canonical`]).
#[derive(Clone, Copy)]
pub(crate) struct CallDigests {
    pub(crate) call: Digest,
    pub(crate) args: Digest,
}

/// Facts about the target of the call, known after the lookup.
struct TargetFacts {
    ctx: Arc<CallContext>,
    source: Option<Arc<ToolSource>>,
    /// Whether the requested tool only forwarded the call.
    forwarded: bool,
    /// Whether the caller must not know of the tool.
    is_hidden: bool,
    /// Whether models may read policy lines.
    hints_for_model: bool,
}

/// Facts about the run of the tool.
#[derive(Default)]
pub(crate) struct RunFacts {
    /// `None` until the tool has ended.
    pub(crate) usage: Option<Usage>,
    pub(crate) cost_usd: Option<f64>,
    /// The age of the result, if it comes from the session's cache.
    pub(crate) cached: Option<Duration>,
    /// The outcome of the reducer.
    pub(crate) reducer: Option<&'static str>,
    /// The mark of an output that does not match its schema.
    pub(crate) mismatch: Option<String>,
    /// The id of the start line in the audit, if the call gets one.
    start_id: Option<StartId>,
}

impl<'b> AuditGuard<'b> {
    pub(crate) fn new(
        batch: &'b BatchContext,
        call_id: &'b Arc<str>,
        requested_tool: String,
        args_bytes: usize,
    ) -> Self {
        Self {
            batch,
            call_id,
            requested_tool,
            args_bytes,
            start: Instant::now(),
            redactor: Redactor::clone(&batch.pipeline.redactor.load()),
            target: None,
            running: None,
            digests: None,
            reason: None,
            permission: None,
            waited: Duration::ZERO,
            idempotency_key: None,
            run: None,
            finished: false,
        }
    }

    /// Records the target of the call.
    pub(crate) fn set_target(&mut self, target: &CallTarget<'_>, forwarded: bool) {
        let entry = target.found.map(FoundTool::entry);
        let settings = self.batch.call_policy.output;
        let settings = entry.map_or(settings, |entry| entry.call.output.or(settings));
        self.target = Some(TargetFacts {
            ctx: Arc::clone(&target.ctx),
            source: target.source.cloned(),
            forwarded,
            is_hidden: target.is_hidden(),
            // The hint of such a refusal names the tool.
            hints_for_model: settings.policy_hints.unwrap_or(false) && !target.is_hidden(),
        });
    }

    /// Gate 1: adds the call to those in progress, unless the operator stopped all calls or the host lost the contact with
    /// the others.
    pub(crate) fn enter(&mut self, target: &CallTarget<'_>) -> Result<(), Refusal> {
        if let Some(shared) = &self.batch.pipeline.shared {
            shared::check_contact(shared)?;
        }
        self.running = Some(self.batch.pipeline.running.add(&target.ctx, target.source, self.start)?);
        Ok(())
    }

    /// Updates the facts about the run of the tool. It does nothing before the `invoke` stage.
    pub(crate) fn update_run(&mut self, note: impl FnOnce(&mut RunFacts)) {
        if let Some(run) = &mut self.run {
            note(run);
        }
    }

    /// Records the call and returns its result.
    pub(crate) fn finish(mut self, output: ShapedOutput) -> CallResult {
        let (duration_us, hints) = self.record(&output);
        let ShapedOutput { result, shaping, memory } = output;
        let target = self.target.take();
        let requested = std::mem::take(&mut self.requested_tool);
        let (tool, through) = match &target {
            Some(target) if target.forwarded => (target.ctx.tool.to_string(), Some(requested)),
            Some(_) | None => (requested, None),
        };
        let run = self.run.take().unwrap_or_default();
        CallResult {
            call_id: Arc::clone(self.call_id),
            tool,
            through,
            result,
            shaping,
            usage: run.usage.unwrap_or_default(),
            duration_us,
            call_sha256: self.digests.map(|digests| digests.call),
            cached: run.cached,
            memory,
            hints: PolicyHints {
                lines: hints,
                for_model: target.as_ref().is_some_and(|target| target.hints_for_model),
            },
            source: target.filter(|target| !target.is_hidden).and_then(|target| target.source),
        }
    }

    /// Records the end of the call. Returns the duration in microseconds and the hints of its refusals.
    fn record(&mut self, output: &ShapedOutput) -> (u64, Vec<Hint>) {
        self.finished = true;
        if let Some(slot) = self.running.take() {
            self.batch.pipeline.running.remove(slot);
        }
        let ended = Instant::now();
        let took = ended.duration_since(self.start);
        let duration_us = micros(took);
        let record = self.audit_record(output, duration_us);
        self.push_log_entry(&record, ended);
        let hints = record.hints.clone();
        let event = output.result.is_err().then(|| HostEvent::ToolError {
            tool: Arc::clone(&record.tool),
            call_id: Arc::clone(&record.call_id),
            outcome: record.outcome,
        });
        // A sink is the embedder's code: its panic must not lose the result of the call.
        let audit = &self.batch.pipeline.audit;
        if std::panic::catch_unwind(AssertUnwindSafe(|| audit.record(record))).is_err() {
            tracing::error!(call = ?self.call_id, "the audit sink panicked; a record is lost");
        }
        if let Some(event) = event {
            self.batch.pipeline.events.emit(event);
        }
        (duration_us, hints)
    }

    fn audit_record(&mut self, output: &ShapedOutput, duration_us: u64) -> AuditRecord {
        let (result, identity, redactor) = (&output.result, &self.batch.turn.identity, &self.redactor);
        let redacted = |text: &str| audit::redacted(redactor, text);
        let target = self.target.as_ref();
        let ctx = target.map(|target| &target.ctx);
        let run = self.run.as_ref();
        // A refused call has no usage.
        let ran = ctx.filter(|_| run.is_some());
        let began = ctx.is_some_and(|ctx| ctx.has_begun());
        let is_cached = run.is_some_and(|run| run.cached.is_some());
        let usage = run.and_then(|run| run.usage).or_else(|| ran.map(|ctx| ctx.usage()));
        AuditRecord {
            call_id: redacted_text(redactor, self.call_id),
            outer: self.batch.parent.as_ref().map(|parent| redacted(&parent.ctx.call_id)),
            tool: ctx.map_or_else(
                || redacted(&self.requested_tool).into(),
                |ctx| redacted_text(redactor, &ctx.tool),
            ),
            through: target.filter(|target| target.forwarded).map(|_| redacted(&self.requested_tool)),
            source: target.and_then(|target| target.source.clone()),
            session_id: self.batch.turn.session.id().map(redacted),
            agent_id: identity.agent_id.as_deref().map(redacted),
            platform: identity.platform.as_deref().map(redacted),
            client_name: identity.client.as_deref().map(redacted),
            profile: ctx.and_then(|ctx| ctx.profile.as_deref()).map(audit::cut),
            traceparent: identity.traceparent,
            call_sha256: self.digests.map(|digests| digests.call),
            args_sha256: self.digests.map(|digests| digests.args),
            epoch: self.batch.call_policy.epoch,
            permission: self.permission,
            outcome: outcome(result),
            refusal: (result.as_ref().err()).filter(|_| !began && !is_cached).map(Failure::refusal_reason),
            limit: match result {
                Err(Failure::Fault(fault)) => fault.limit.clone(),
                Ok(_) | Err(Failure::Refused(_) | Failure::Host(_)) => None,
            },
            uses: ran.map_or_else(Vec::new, |ctx| ctx.uses()),
            uses_not_kept: ran.map_or(0, |ctx| ctx.dropped_uses()),
            hints: ctx.map_or_else(Vec::new, |ctx| refusals::hints(result, ctx)),
            usage: usage.unwrap_or_default(),
            cost_usd: run.and_then(|run| run.cost_usd),
            duration_us,
            waited_us: micros(self.waited).saturating_add(usage.map_or(0, |usage| usage.queued_us)),
            cached: is_cached,
            delivered_chars: match result {
                Ok(output) => output.value.chars().count(),
                Err(failure) => failure.to_string().chars().count(),
            },
            cut_from_chars: output.shaping.cut_from_chars,
            reducer: run.and_then(|run| run.reducer),
            reason: (self.reason.take()).map(|reason| {
                // A redacted text can be shorter than the text.
                let (beginning, _) = redactor.redact_prefix(&reason, 2 * audit::MAX_REASON);
                beginning.chars().take(audit::MAX_REASON).collect()
            }),
            began,
            start_id: run.and_then(|run| run.start_id).filter(|_| began),
            trace: ctx.and_then(|ctx| ctx.trace.as_ref()).map(|trace| {
                match result {
                    Ok(output) => trace.note_result(redactor, &output.value),
                    Err(failure) => trace.note_result(redactor, &failure.to_string()),
                }
                Arc::clone(trace)
            }),
        }
    }

    fn push_log_entry(&self, record: &AuditRecord, ended: Instant) {
        let log = &self.batch.pipeline.call_log;
        if !log.is_enabled() {
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
            waited_us: record.waited_us,
            args_bytes: self.args_bytes,
            delivered_chars: record.delivered_chars,
            cost_usd: record.cost_usd,
        });
    }

    /// Arranges for the start line to be written before the tool runs, if the policy wants one.
    pub(crate) fn write_start(&mut self, entry: &ToolEntry, ctx: &Arc<CallContext>) {
        let (policy, audit) = (&self.batch.call_policy.audit, &self.batch.pipeline.audit);
        let wanted = match policy.start_lines {
            StartLines::All => true,
            StartLines::Effects => policy.required || entry.def.may_have_effects(),
            StartLines::Never => false,
        };
        if !wanted || !audit.accepts_starts() {
            return;
        }
        let (start_id, identity, redactor) = (StartId::next(), &self.batch.turn.identity, &self.redactor);
        let redacted = |text: &str| audit::redacted(redactor, text);
        let start = CallStart {
            start_id,
            call_id: redacted_text(redactor, &ctx.call_id),
            tool: redacted_text(redactor, &ctx.tool),
            source: Some(Arc::clone(&entry.def.source)),
            session_id: self.batch.turn.session.id().map(redacted),
            agent_id: identity.agent_id.as_deref().map(redacted),
            profile: ctx.profile.clone(),
            args_sha256: self.digests.map(|digests| digests.args),
        };
        let (audit, required) = (Arc::clone(audit), policy.required);
        self.update_run(|run| run.start_id = Some(start_id));
        ctx.set_begin_hook(BeginHook(Box::new(move || {
            // As in `record`: a sink is the embedder's code and may panic.
            let written = std::panic::catch_unwind(AssertUnwindSafe(|| audit.record_start(start.clone())));
            let written = written.unwrap_or_else(|_| Err("the audit sink panicked".to_owned()));
            if required { written } else { Ok(()) }
        })));
    }
}

impl Drop for AuditGuard<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let cancelled = Fault::new(FaultKind::Cancelled, "the caller went away");
            self.record(&ShapedOutput::failed(cancelled.into()));
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A text of a caller for the audit: cut and redacted. Most texts are shared unchanged.
fn redacted_text(redactor: &Redactor, text: &Arc<str>) -> Arc<str> {
    match redactor.redact_prefix(text, audit::MAX_TEXT) {
        (Cow::Borrowed(_), false) => Arc::clone(text),
        _ => audit::redacted(redactor, text).into(),
    }
}
