//! Traces of calls: the context that a call came with and passes on (W3C Trace Context), and what its spans show beyond
//! the audit record.
//!
//! The ids of a span are known while the call runs, so that nested calls and requests name it as their parent. Spans are
//! made from the audit record when the call ends. Without a [`Tracer`], no call has a trace.

mod parent;
mod request;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_policy::telemetry::TelemetryPolicy;

pub use self::parent::TraceParent;
pub use self::request::{HttpRequestSpan, HttpSpanGuard, RequestTrace, RequestTransport};
use crate::output::redact::Redactor;

/// Most requests of one call that get a span: as many as a record lists uses.
pub const MAX_HTTP_SPANS: usize = 64;
/// Longest arguments and longest result in a span, in characters: more is slow to show and to send.
pub const MAX_CONTENT: usize = 4096;

/// Starts the traces of calls, and decides which of them are sampled.
#[derive(Debug)]
pub struct Tracer {
    /// Its keys are random, and so are the ids.
    random: RandomState,
    count: AtomicU64,
    /// A new trace is sampled if a number of 63 bits from its id is smaller.
    sampled_below: u64,
    propagate: BTreeSet<String>,
    arguments: bool,
}

impl Tracer {
    /// A tracer that samples and propagates as the policy says.
    #[must_use]
    pub fn new(policy: &TelemetryPolicy) -> Self {
        const RANGE: f64 = 9_223_372_036_854_775_808.0;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the policy checks that the share is between 0 and 1"
        )]
        let sampled_below = (policy.sample * RANGE) as u64;
        Self {
            random: RandomState::new(),
            count: AtomicU64::new(0),
            sampled_below,
            propagate: policy.propagate.clone(),
            arguments: policy.arguments,
        }
    }

    /// Starts the trace of a call that began at `start`. Its parent is the calling call, or else the span that the request
    /// names; without either, it is a new trace.
    pub(crate) fn start(
        self: &Arc<Self>,
        caller: Option<&CallTrace>,
        named: Option<TraceParent>,
        request: Option<Arc<RequestTrace>>,
        start: Instant,
    ) -> CallTrace {
        let parent = caller.map(|caller| caller.context).or(named);
        CallTrace {
            context: parent.map_or_else(|| self.new_trace(), |parent| parent.with_span(self.next_span())),
            parent: parent.map(|parent| parent.span_id()),
            is_remote: caller.is_none() && parent.is_some(),
            request,
            tracer: Arc::clone(self),
            start,
            began: OnceInstant::default(),
            notes: Mutex::default(),
        }
    }

    fn new_trace(&self) -> TraceParent {
        let (high, low) = (self.next_id(), self.next_id());
        // The rule of OpenTelemetry's `TraceIdRatioBased`: 63 bits of the lower half.
        TraceParent::new([high, low], self.next_span(), low >> 1 < self.sampled_below)
    }

    fn next_span(&self) -> [u8; 8] {
        self.next_id().to_be_bytes()
    }

    /// A random id other than 0, which is invalid.
    fn next_id(&self) -> u64 {
        self.random.hash_one(self.count.fetch_add(1, Ordering::Relaxed)).max(1)
    }
}

/// The time of an event that happens once.
type OnceInstant = std::sync::OnceLock<Instant>;

/// The trace of one call.
#[derive(Debug)]
pub struct CallTrace {
    context: TraceParent,
    parent: Option<[u8; 8]>,
    is_remote: bool,
    request: Option<Arc<RequestTrace>>,
    tracer: Arc<Tracer>,
    start: Instant,
    began: OnceInstant,
    notes: Mutex<TraceNotes>,
}

/// What the spans of a call show beyond its audit record.
#[derive(Debug, Clone, Default)]
pub struct TraceNotes {
    /// The HTTP requests of the call that ended, at most [`MAX_HTTP_SPANS`].
    pub http: Vec<HttpRequestSpan>,
    /// The number of further requests.
    pub http_not_kept: u32,
    /// The arguments, redacted and cut, if the policy wants them.
    pub arguments: Option<String>,
    /// The result, redacted and cut, if the policy wants it.
    pub result: Option<String>,
}

impl CallTrace {
    /// The position of the call's span in its trace.
    #[must_use]
    pub fn context(&self) -> TraceParent {
        self.context
    }

    /// The id of the parent span; `None` if the call begins a trace.
    #[must_use]
    pub fn parent(&self) -> Option<[u8; 8]> {
        self.parent
    }

    /// Whether the parent is a span of another process.
    #[must_use]
    pub fn has_remote_parent(&self) -> bool {
        self.is_remote
    }

    /// The request that asked for the call, if a protocol server received one.
    #[must_use]
    pub fn request(&self) -> Option<&RequestTrace> {
        self.request.as_deref()
    }

    /// The time from the arrival of the call to the start of its tool; `None` if no tool was started.
    #[must_use]
    pub fn began(&self) -> Option<Duration> {
        self.began.get().map(|began| began.duration_since(self.start))
    }

    /// Takes the notes of the call.
    #[must_use]
    pub fn take_notes(&self) -> TraceNotes {
        std::mem::take(&mut self.notes.lock())
    }

    /// Another id for a span below the call's.
    #[must_use]
    pub fn next_span(&self) -> [u8; 8] {
        self.tracer.next_span()
    }

    /// Whether requests to an origin carry the context of the trace.
    #[must_use]
    pub fn propagates_to(&self, origin: &str) -> bool {
        self.tracer.propagate.contains(origin)
    }

    /// The time since the arrival of the call.
    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn set_began(&self) {
        // A call begins once.
        _ = self.began.set(Instant::now());
    }

    pub(crate) fn note_arguments(&self, redactor: &Redactor, text: &str) {
        if self.wants_content() {
            self.notes.lock().arguments = Some(redactor.redact_prefix(text, MAX_CONTENT).0.into());
        }
    }

    pub(crate) fn note_result(&self, redactor: &Redactor, text: &str) {
        if self.wants_content() {
            self.notes.lock().result = Some(redactor.redact_prefix(text, MAX_CONTENT).0.into());
        }
    }

    fn wants_content(&self) -> bool {
        self.tracer.arguments && self.context.is_sampled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(sample: f64) -> Arc<Tracer> {
        Arc::new(Tracer::new(&TelemetryPolicy {
            otlp: None,
            net_private: Vec::new(),
            sample,
            propagate: BTreeSet::from(["https://api.example".to_owned()]),
            arguments: false,
        }))
    }

    #[tokio::test]
    async fn a_share_of_new_traces_is_sampled_and_a_parent_decides_for_its_own() {
        let sampled = |sample: f64, parent: Option<&str>| {
            let tracer = tracer(sample);
            let parent = parent.map(|text| TraceParent::parse(text).unwrap());
            let start = Instant::now();
            (0..1000).filter(|_| tracer.start(None, parent, None, start).context().is_sampled()).count()
        };
        const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
        const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00";
        assert_eq!((sampled(0.0, None), sampled(1.0, None)), (0, 1000));
        assert!((20..400).contains(&sampled(0.1, None)));
        assert_eq!((sampled(0.0, Some(SAMPLED)), sampled(1.0, Some(UNSAMPLED))), (1000, 0));
    }

    #[tokio::test]
    async fn a_nested_call_is_below_its_caller_and_a_root_has_no_parent() {
        let tracer = tracer(1.0);
        let parent = TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01").unwrap();
        let outer = tracer.start(None, Some(parent), None, Instant::now());
        let inner = tracer.start(Some(&outer), Some(parent), None, Instant::now());
        assert_eq!(outer.parent(), Some(parent.span_id()));
        assert_eq!(inner.parent(), Some(outer.context().span_id()));
        assert_eq!(inner.context().trace_id(), parent.trace_id());
        assert!(outer.has_remote_parent() && !inner.has_remote_parent());
        let (one, other) =
            (tracer.start(None, None, None, Instant::now()), tracer.start(None, None, None, Instant::now()));
        assert_eq!((one.parent(), one.has_remote_parent()), (None, false));
        assert_ne!(one.context().trace_id(), other.context().trace_id());
        assert!(one.propagates_to("https://api.example") && !one.propagates_to("https://other.example"));
    }
}
