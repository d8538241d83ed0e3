//! Observers of the audit: metrics, traces and the operator's page learn from its records.

use std::fmt;
use std::sync::Arc;

use toolbay_policy::audit_policy::AuditPolicy;

use super::{ActionRecord, AuditHealth, AuditRecord, AuditSink, CallStart, GrantRecord, RequestRecord};

/// Receives audit records before the sink does. Its methods must not block.
pub trait AuditObserver: Send + Sync + fmt::Debug {
    /// Observes a call that ended.
    fn observe_call(&self, record: &AuditRecord);

    /// Observes a refused HTTP request.
    fn observe_request(&self, record: &RequestRecord) {
        let _ = record;
    }
}

/// An audit with observers.
#[derive(Debug)]
pub struct ObservedAudit {
    audit: Arc<dyn AuditSink>,
    observers: Vec<Arc<dyn AuditObserver>>,
}

impl ObservedAudit {
    /// Shows the records for `audit` to the observers, in their order.
    #[must_use]
    pub fn new(audit: Arc<dyn AuditSink>, observers: Vec<Arc<dyn AuditObserver>>) -> Self {
        Self { audit, observers }
    }
}

impl AuditSink for ObservedAudit {
    fn record(&self, record: AuditRecord) {
        self.observers.iter().for_each(|observer| observer.observe_call(&record));
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
        self.observers.iter().for_each(|observer| observer.observe_request(&request));
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
