//! The file quota of a call: bytes written, and files and folders created.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::hint::Hint;
use toolbay_policy::limits::{CallLimits, Limit};
use toolbay_policy::name::PluginId;

/// The files and bytes that one call has written. An operation that failed half-way counts.
#[derive(Debug)]
pub(crate) struct FileUsage {
    plugin: PluginId,
    limits: Arc<CallLimits>,
    bytes: AtomicU64,
    entries: AtomicU64,
    warned: AtomicBool,
    hint: OnceLock<Hint>,
}

impl FileUsage {
    pub(crate) fn new(plugin: &PluginId, limits: &Arc<CallLimits>) -> Self {
        Self {
            plugin: plugin.clone(),
            limits: Arc::clone(limits),
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            warned: AtomicBool::new(false),
            hint: OnceLock::new(),
        }
    }

    /// The policy line that raises the limit hit first, for the operator.
    pub(crate) fn hint(&self) -> Option<&Hint> {
        self.hint.get()
    }

    /// Counts bytes before they are written.
    ///
    /// # Errors
    /// When the limit is exceeded; the bytes are then not counted.
    pub(crate) fn count_bytes(&self, bytes: u64) -> Result<(), String> {
        try_add(&self.bytes, bytes, self.limits.file_bytes)
            .ok_or_else(|| self.limit_error("no more bytes can be written", Limit::FileBytes))
    }

    /// Counts a file or folder before it is created.
    ///
    /// # Errors
    /// When the limit is exceeded; the entry is then not counted.
    pub(crate) fn count_entry(&self) -> Result<(), String> {
        let max = u64::from(self.limits.file_entries);
        try_add(&self.entries, 1, max)
            .ok_or_else(|| self.limit_error("no more files and folders can be created", Limit::FileEntries))
    }

    fn limit_error(&self, what: &str, limit: Limit) -> String {
        let hit = self.limits.hit(limit, &self.plugin);
        let fault = Fault::by_limit(FaultKind::OutputTooLarge, what, hit);
        // WASI has no error that names the limit, so the log does.
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "toolbay::guest", plugin = %self.plugin, "{}", fault.for_operator());
        }
        match fault.hint() {
            Some(hint) => {
                self.hint.get_or_init(|| hint.with_about(&fault.message));
                format!("{}; the operator can raise it", fault.message)
            }
            None => fault.message,
        }
    }
}

fn try_add(used: &AtomicU64, more: u64, max: u64) -> Option<()> {
    let add = |used: u64| used.checked_add(more).filter(|sum| *sum <= max);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhausted_quota_names_its_policy_line() {
        let limits = CallLimits { file_bytes: 10, file_entries: 1, ..CallLimits::default() };
        let meter = FileUsage::new(&PluginId::new("p").unwrap(), &Arc::new(limits));
        assert_eq!(meter.count_bytes(6), Ok(()));
        assert!(meter.count_bytes(5).unwrap_err().contains("the limit `file_bytes` is 10"));
        assert!(meter.hint().unwrap().to_string().contains("[plugins.p.limits] file_bytes"));
        assert!(meter.count_bytes(u64::MAX).is_err());
        assert_eq!(meter.count_bytes(4), Ok(()));
        assert_eq!((meter.count_bytes(0), meter.count_entry()), (Ok(()), Ok(())));
        assert!(meter.count_entry().unwrap_err().contains("the limit `file_entries` is 1"));
    }
}
