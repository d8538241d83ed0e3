//! The calls that ended and are not exported yet.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;
use toolbay_core::audit::AuditRecord;
use toolbay_core::audit::observer::AuditObserver;
use toolbay_core::call::trace::{CallTrace, TraceNotes};
use toolbay_core::tool::ToolSource;
use toolbay_core::tool::refusal::RefusalReason;
use toolbay_policy::limits::Usage;

use super::durations::Durations;
use crate::metrics::Metrics;

/// Most spans that wait: about eight seconds of a thousand calls a second, and at most about 12 MiB.
const MAX_SPANS: usize = 8192;
/// The spans of one export, as in OpenTelemetry's batch processor.
const BATCH_SPANS: usize = 512;
/// Bytes of arguments and results that count as one more span.
const SPAN_BYTES: usize = 1024;

/// Holds what is to be exported. Adding to it never waits: what does not fit is counted as lost.
#[derive(Debug)]
pub struct ExportBuffer {
    queue: Mutex<CallQueue>,
    batch_ready: Notify,
    lost: Counter,
    durations: Durations,
}

#[derive(Debug, Default)]
struct CallQueue {
    calls: Vec<FinishedCall>,
    spans: usize,
}

/// A sampled call that ended: the facts for its spans.
#[derive(Debug)]
pub(super) struct FinishedCall {
    pub(super) trace: Arc<CallTrace>,
    pub(super) notes: TraceNotes,
    /// The time since the epoch when it ended.
    pub(super) end: Duration,
    pub(super) duration: Duration,
    pub(super) call_id: Arc<str>,
    pub(super) is_nested: bool,
    pub(super) tool: Arc<str>,
    /// `None` if the tool is unknown.
    pub(super) source: Option<Arc<ToolSource>>,
    pub(super) session_id: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) outcome: &'static str,
    pub(super) refusal: Option<RefusalReason>,
    pub(super) usage: Usage,
    pub(super) is_cached: bool,
}

impl ExportBuffer {
    /// An empty buffer. Spans that are lost are counted in `metrics`, if there are any.
    #[must_use]
    pub fn new(metrics: Option<&Metrics>) -> Self {
        Self {
            queue: Mutex::default(),
            batch_ready: Notify::new(),
            lost: metrics.map_or_else(Counter::default, |metrics| metrics.spans_lost.clone()),
            durations: Durations::default(),
        }
    }

    /// The number of lost spans.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    pub(super) fn count_lost(&self, spans: usize) {
        self.lost.inc_by(spans as u64);
    }

    pub(super) fn durations(&self) -> &Durations {
        &self.durations
    }

    /// Waits until a batch is full.
    pub(super) async fn batch_ready(&self) {
        self.batch_ready.notified().await;
    }

    /// Takes the oldest calls, of about one batch, and the number of their spans.
    pub(super) fn take_batch(&self) -> Option<(Vec<FinishedCall>, usize)> {
        let mut queue = self.queue.lock();
        let (mut count, mut spans) = (0, 0);
        for call in &queue.calls {
            if spans >= BATCH_SPANS {
                break;
            }
            count += 1;
            spans += call.spans();
        }
        if count == 0 {
            return None;
        }
        queue.spans -= spans;
        Some((queue.calls.drain(..count).collect(), spans))
    }
}

impl AuditObserver for ExportBuffer {
    /// Adds a call.
    fn observe_call(&self, record: &AuditRecord) {
        let Some(trace) = &record.trace else { return };
        self.durations.observe(record, trace);
        if !trace.context().is_sampled() {
            return;
        }
        let call = FinishedCall::new(record, trace);
        let spans = call.spans();
        let mut queue = self.queue.lock();
        if queue.spans + spans > MAX_SPANS {
            drop(queue);
            return self.count_lost(spans);
        }
        let before = queue.spans;
        queue.spans += spans;
        queue.calls.push(call);
        drop(queue);
        // Waking a task takes longer than the rest, so it happens once for a batch.
        if before / BATCH_SPANS != (before + spans) / BATCH_SPANS {
            self.batch_ready.notify_one();
        }
    }
}

impl FinishedCall {
    fn new(record: &AuditRecord, trace: &Arc<CallTrace>) -> Self {
        Self {
            trace: Arc::clone(trace),
            notes: trace.take_notes(),
            end: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            duration: Duration::from_micros(record.duration_us),
            call_id: Arc::clone(&record.call_id),
            is_nested: record.outer.is_some(),
            tool: Arc::clone(&record.tool),
            source: record.source.clone(),
            session_id: record.session_id.clone(),
            profile: record.profile.clone(),
            outcome: record.outcome,
            refusal: record.refusal,
            usage: record.usage,
            is_cached: record.cached,
        }
    }

    /// The number of its spans. Long arguments and results count as more.
    fn spans(&self) -> usize {
        let TraceNotes { http, arguments, result, .. } = &self.notes;
        let bytes = [arguments, result].into_iter().flatten().map(String::len).sum::<usize>();
        let children = match (self.trace.began(), self.queues()) {
            (Some(_), true) => 2,
            (Some(_), false) => 1,
            (None, _) => 0,
        };
        1 + children + http.len() + bytes / SPAN_BYTES
    }

    /// Whether the call waited for a run permit: native tools and other servers need none.
    pub(super) fn queues(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.plugin().is_some())
    }
}
