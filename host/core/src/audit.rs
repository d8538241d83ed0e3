//! What is recorded of each call. No argument, no result, no text of a guest is in it.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::limits::Usage;
use crate::tool::ToolSource;

/// One call.
#[derive(Debug, Clone, Serialize)]
pub struct AuditRecord {
    /// The caller's id of the call.
    pub call_id: String,
    /// The name that was called, cut to 100 characters; it may name no tool at all.
    pub tool: String,
    /// Where the tool comes from; absent when no tool was found.
    pub source: Option<ToolSource>,
    /// The session, if the caller told.
    pub session_id: Option<String>,
    /// `ok`, an error code, a fault, or `host_failed`.
    pub outcome: &'static str,
    /// What the guest used; all zero when nothing ran.
    pub usage: Usage,
    /// From the call's arrival to its result, in microseconds.
    pub duration_us: u64,
    /// Characters of the text that was delivered.
    pub delivered_chars: usize,
    /// Characters before it was cut, if it was.
    pub cut_from_chars: Option<usize>,
    /// What became of the reducer, if there was one.
    pub reducer: Option<&'static str>,
}

/// Takes records.
pub trait AuditSink: Send + Sync + fmt::Debug {
    /// Takes one record. Called at the end of each call: must not block for long.
    fn record(&self, record: AuditRecord);
}

/// Writes records to the log, target `toolbay::audit`.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogAudit;

impl AuditSink for LogAudit {
    fn record(&self, record: AuditRecord) {
        if tracing::enabled!(target: "toolbay::audit", tracing::Level::INFO) {
            let line = serde_json::to_string(&record).unwrap_or_default();
            tracing::info!(target: "toolbay::audit", "{line}");
        }
    }
}

/// Keeps records in memory, for tests and embedders that want them all.
#[derive(Debug, Default)]
pub struct MemoryAudit(Mutex<Vec<AuditRecord>>);

impl MemoryAudit {
    /// Takes out what was recorded so far.
    #[must_use]
    pub fn take(&self) -> Vec<AuditRecord> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AuditSink for MemoryAudit {
    fn record(&self, record: AuditRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }
}
