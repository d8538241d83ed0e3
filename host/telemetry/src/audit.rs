//! The audit that also counts.

use std::sync::Arc;

use toolbay_core::audit::{
    ActionRecord, AuditHealth, AuditRecord, AuditSink, CallStart, GrantRecord, RequestRecord,
};
use toolbay_policy::audit_policy::AuditPolicy;

use crate::metrics::Metrics;

/// Counts records and passes them on to the audit.
#[derive(Debug)]
pub struct MetricsAudit {
    audit: Arc<dyn AuditSink>,
    metrics: Arc<Metrics>,
}

impl MetricsAudit {
    /// Counts the records for `audit` in `metrics`.
    #[must_use]
    pub fn new(audit: Arc<dyn AuditSink>, metrics: Arc<Metrics>) -> Self {
        Self { audit, metrics }
    }
}

impl AuditSink for MetricsAudit {
    fn record(&self, record: AuditRecord) {
        self.metrics.observe_call(&record);
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
        self.metrics.observe_request(&request);
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
