//! The audit of all replicas as one file.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Error, Result};
use toolbay_shared::audit::{AuditReadError, read_forwarded};
use toolbay_shared::nats::Connection;

use super::shared::connection_error;
use crate::output::host_failure;

/// Writes the forwarded lines into a new file, each with the name of its replica and its number there.
pub(crate) async fn download(connection: &Connection, file: &Path) -> Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let opened = opened.with_context(|| format!("`{}`", file.display())).map_err(host_failure)?;
    let mut lines = BufWriter::new(opened);
    let read = read_forwarded(connection, |forwarded| {
        let replica = serde_json::to_string(&forwarded.replica)?;
        match forwarded.line.trim_end().strip_suffix('}') {
            Some(start) => {
                writeln!(lines, "{start},\"server\":{replica},\"sequence\":{}}}", forwarded.sequence)
            }
            // It is no JSON object, so the reader counts it as broken.
            None => writeln!(lines, "{}", forwarded.line.trim_end()),
        }
    });
    read.await.map_err(|error| match error {
        AuditReadError::Connection(error) => connection_error(error),
        error => host_failure(Error::new(error)),
    })?;
    lines.flush().map_err(host_failure)
}
