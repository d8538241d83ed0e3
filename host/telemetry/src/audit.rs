//! The audit that also counts and traces.

use std::sync::Arc;

use toolbay_core::audit::{
    ActionRecord, AuditHealth, AuditRecord, AuditSink, CallStart, GrantRecord, RequestRecord,
};
use toolbay_policy::audit_policy::AuditPolicy;

use crate::metrics::Metrics;
use crate::otlp::ExportBuffer;

/// Counts records, keeps what is to be exported, and passes records on to the audit.
#[derive(Debug)]
pub struct TelemetryAudit {
    audit: Arc<dyn AuditSink>,
    metrics: Option<Arc<Metrics>>,
    exports: Option<Arc<ExportBuffer>>,
}

impl TelemetryAudit {
    /// Counts records in `metrics`, adds calls to `exports`, and passes records on to `audit`. For exports, the host
    /// needs a [`Tracer`](toolbay_core::call::trace::Tracer).
    #[must_use]
    pub fn new(
        audit: Arc<dyn AuditSink>,
        metrics: Option<Arc<Metrics>>,
        exports: Option<Arc<ExportBuffer>>,
    ) -> Self {
        Self { audit, metrics, exports }
    }
}

impl AuditSink for TelemetryAudit {
    fn record(&self, record: AuditRecord) {
        if let Some(metrics) = &self.metrics {
            metrics.observe_call(&record);
        }
        if let Some(exports) = &self.exports {
            exports.observe_call(&record);
        }
        self.audit.record(record);
    }

    fn record_grant(&self, record: GrantRecord) {
        self.audit.record_grant(record);
    }

    fn accepts_starts(&self) -> bool {
        self.audit.accepts_starts()
    }

    fn record_start(&self, start: CallStart) -> Result<(), String> {
        self.audit.record_start(start)
    }

    fn record_request(&self, request: RequestRecord) {
        if let Some(metrics) = &self.metrics {
            metrics.observe_request(&request);
        }
        self.audit.record_request(request);
    }

    fn record_action(&self, action: ActionRecord) {
        self.audit.record_action(action);
    }

    fn finish(&self) {
        self.audit.finish();
    }

    fn health(&self) -> Option<AuditHealth> {
        self.audit.health()
    }

    fn apply_policy(&self, policy: &AuditPolicy) {
        self.audit.apply_policy(policy);
    }
}
