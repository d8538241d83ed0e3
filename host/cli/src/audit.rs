//! Audit records as JSON lines in a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use toolbay_core::audit::{AuditRecord, AuditSink};

/// Appends to a file; each record is written whole, in one system call.
#[derive(Debug)]
pub(crate) struct JsonLines(Mutex<File>);

#[derive(Serialize)]
struct Line<'a> {
    time_ms: u128,
    #[serde(flatten)]
    record: &'a AuditRecord,
}

impl JsonLines {
    pub(crate) fn append(path: &Path) -> std::io::Result<Self> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(|file| Self(Mutex::new(file)))
    }
}

impl AuditSink for JsonLines {
    fn record(&self, record: AuditRecord) {
        let time_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_millis());
        let Ok(mut line) = serde_json::to_vec(&Line { time_ms, record: &record }) else { return };
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&line) {
            tracing::error!(%error, "an audit record was not written");
        }
    }
}
