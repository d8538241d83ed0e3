//! The sinks of the audit: the trait, the log, and a store in memory.

use std::fmt;

use parking_lot::Mutex;
use toolbay_policy::audit_policy::AuditPolicy;

use super::{ActionRecord, AuditEvent, AuditHealth, AuditRecord, CallStart, GrantRecord, RequestRecord};

/// Receives audit records.
pub trait AuditSink: Send + Sync + fmt::Debug {
    /// Records a call before its result is delivered. It must not block for long.
    fn record(&self, record: AuditRecord);

    /// Records a decision about grants.
    fn record_grant(&self, record: GrantRecord);

    /// Whether the sink wants [start lines](AuditSink::record_start).
    fn accepts_starts(&self) -> bool {
        false
    }

    /// Records the start of a call before the tool runs. It must not block for long.
    ///
    /// # Errors
    /// The line cannot be written. The call is then refused if the policy says `required = true`.
    fn record_start(&self, start: CallStart) -> Result<(), String> {
        drop(start);
        Ok(())
    }

    /// Records a refused HTTP request.
    fn record_request(&self, request: RequestRecord) {
        drop(request);
    }

    /// Records an operator's action.
    fn record_action(&self, action: ActionRecord) {
        drop(action);
    }

    /// Writes pending counts. Call it at the end of the program, since the sink may not be dropped before the process
    /// exits.
    fn finish(&self) {}

    /// The health of the audit; `None` if there is no problem and no record was lost.
    fn health(&self) -> Option<AuditHealth> {
        None
    }

    /// Applies the `[audit]` table of a reloaded policy.
    fn apply_policy(&self, policy: &AuditPolicy) {
        let _ = policy;
    }
}

/// Writes records to the log with the target `toolbay::audit`. The log adds the time.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogAudit;

impl LogAudit {
    fn write(line: &AuditEvent<'_>) {
        if tracing::enabled!(target: "toolbay::audit", tracing::Level::INFO) {
            tracing::info!(target: "toolbay::audit", "{}", line.to_json("").trim_end());
        }
    }
}

impl AuditSink for LogAudit {
    fn record(&self, record: AuditRecord) {
        Self::write(&AuditEvent::Call(&record));
    }

    fn record_grant(&self, record: GrantRecord) {
        Self::write(&AuditEvent::Grant(&record));
    }

    fn accepts_starts(&self) -> bool {
        tracing::enabled!(target: "toolbay::audit", tracing::Level::INFO)
    }

    fn record_start(&self, start: CallStart) -> Result<(), String> {
        Self::write(&AuditEvent::Start(&start));
        Ok(())
    }

    fn record_request(&self, request: RequestRecord) {
        Self::write(&AuditEvent::Request(&request));
    }

    fn record_action(&self, action: ActionRecord) {
        Self::write(&AuditEvent::Action(&action));
    }
}

/// Stores records in memory, for tests and embedders.
#[derive(Debug, Default)]
pub struct MemoryAudit {
    calls: Mutex<Vec<AuditRecord>>,
    decisions: Mutex<Vec<GrantRecord>>,
    starts: Mutex<Vec<CallStart>>,
    requests: Mutex<Vec<RequestRecord>>,
    actions: Mutex<Vec<ActionRecord>>,
}

impl MemoryAudit {
    /// Removes and returns the records of calls.
    #[must_use]
    pub fn take(&self) -> Vec<AuditRecord> {
        std::mem::take(&mut self.calls.lock())
    }

    /// Removes and returns the start lines.
    #[must_use]
    pub fn take_starts(&self) -> Vec<CallStart> {
        std::mem::take(&mut self.starts.lock())
    }

    /// Removes and returns the records of refused requests.
    #[must_use]
    pub fn take_requests(&self) -> Vec<RequestRecord> {
        std::mem::take(&mut self.requests.lock())
    }

    /// Removes and returns the records of operators' actions.
    #[must_use]
    pub fn take_actions(&self) -> Vec<ActionRecord> {
        std::mem::take(&mut self.actions.lock())
    }

    /// Removes and returns the records of decisions.
    #[must_use]
    pub fn take_decisions(&self) -> Vec<GrantRecord> {
        std::mem::take(&mut self.decisions.lock())
    }
}

impl AuditSink for MemoryAudit {
    fn record(&self, record: AuditRecord) {
        self.calls.lock().push(record);
    }

    fn record_grant(&self, record: GrantRecord) {
        self.decisions.lock().push(record);
    }

    fn accepts_starts(&self) -> bool {
        true
    }

    fn record_start(&self, start: CallStart) -> Result<(), String> {
        self.starts.lock().push(start);
        Ok(())
    }

    fn record_request(&self, request: RequestRecord) {
        self.requests.lock().push(request);
    }

    fn record_action(&self, action: ActionRecord) {
        self.actions.lock().push(action);
    }
}
