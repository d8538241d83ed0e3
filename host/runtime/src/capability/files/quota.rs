//! What one call may still write and make.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_policy::limits::{Limit, Limits};
use toolbay_policy::name::PluginId;

/// What one call has written and made so far. What was begun counts, whether or not it came to an end.
#[derive(Debug)]
pub(crate) struct Meter {
    plugin: PluginId,
    limits: Arc<Limits>,
    bytes: AtomicU64,
    entries: AtomicU64,
    told: AtomicBool,
    hint: OnceLock<String>,
}

impl Meter {
    pub(crate) fn new(plugin: &PluginId, limits: &Arc<Limits>) -> Self {
        Self {
            plugin: plugin.clone(),
            limits: Arc::clone(limits),
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            told: AtomicBool::new(false),
            hint: OnceLock::new(),
        }
    }

    /// What raises the limit that was hit first, for the operator.
    pub(crate) fn hint(&self) -> Option<&String> {
        self.hint.get()
    }

    /// Counts bytes that are about to be written.
    ///
    /// # Errors
    /// Names the limit; then nothing is counted.
    pub(crate) fn write(&self, bytes: u64) -> Result<(), String> {
        take(&self.bytes, bytes, self.limits.file_bytes)
            .ok_or_else(|| self.over("no more may be written", Limit::FileBytes))
    }

    /// Counts a file or a folder that is about to be made.
    ///
    /// # Errors
    /// Names the limit; then nothing is counted.
    pub(crate) fn make(&self) -> Result<(), String> {
        let most = u64::from(self.limits.file_entries);
        take(&self.entries, 1, most)
            .ok_or_else(|| self.over("no more files and folders may be made", Limit::FileEntries))
    }

    fn over(&self, what: &str, limit: Limit) -> String {
        let hit = self.limits.hit(limit, &self.plugin);
        let fault = Fault::by_limit(FaultKind::OutputTooLarge, what, hit);
        // Plain WASI files have no words for it.
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "toolbay::guest", plugin = %self.plugin, "{}", fault.for_operator());
        }
        match fault.hint() {
            Some(hint) => {
                self.hint.get_or_init(|| format!("{}. {hint}", fault.message));
                format!("{}; the operator can raise it", fault.message)
            }
            None => fault.message,
        }
    }
}

fn take(used: &AtomicU64, more: u64, most: u64) -> Option<()> {
    let add = |used: u64| used.checked_add(more).filter(|sum| *sum <= most);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_is_refused_with_the_line() {
        let limits = Limits { file_bytes: 10, file_entries: 1, ..Limits::default() };
        let meter = Meter::new(&PluginId::new("p").unwrap(), &Arc::new(limits));
        assert_eq!(meter.write(6), Ok(()));
        assert!(meter.write(5).unwrap_err().contains("the limit `file_bytes` is 10"));
        assert!(meter.hint().unwrap().contains("[plugins.p.limits] file_bytes"));
        assert!(meter.write(u64::MAX).is_err());
        assert_eq!(meter.write(4), Ok(()));
        assert_eq!((meter.write(0), meter.make()), (Ok(()), Ok(())));
        assert!(meter.make().unwrap_err().contains("the limit `file_entries` is 1"));
    }
}
