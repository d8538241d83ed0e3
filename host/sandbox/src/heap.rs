//! Returns freed memory to the system.
//!
//! The C library keeps what a program has freed, in one heap for each thread. After a few large results, documents or
//! schemas, a server would keep several times the memory that it uses. The trimmer therefore checks the resident memory
//! from time to time, and asks the C library to return what is free.

use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use super::native;

/// How often the resident memory is read, which takes microseconds.
const INTERVAL: Duration = Duration::from_secs(2);
/// The growth after which memory is returned: a tenth, and at least this many bytes.
const MIN_GROWTH: u64 = 8 << 20;
/// The number of checks after which memory is returned without growth: what was in use last time may be free. With nothing
/// to return, that takes some milliseconds.
const CHECKS_BEFORE_TRIM: u32 = 15;

/// Returns freed memory to the system from time to time, until it is dropped. For programs that own their process, such as
/// `toolbay serve`.
#[must_use = "dropping it ends its work"]
#[derive(Debug)]
pub struct HeapTrimmer {
    _task: AbortOnDropHandle<()>,
}

impl HeapTrimmer {
    /// Starts a task that checks the memory of this process. Needs a tokio runtime with timers.
    pub fn start() -> Self {
        // The `HeapTrimmer` owns the task.
        Self { _task: AbortOnDropHandle::new(tokio::spawn(run())) }
    }
}

async fn run() {
    let mut schedule = TrimSchedule::default();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(resident) = resident_bytes() else { return };
        if schedule.is_due(resident) {
            // It can take some milliseconds, during which other threads may wait for memory.
            if tokio::task::spawn_blocking(native::trim_heap).await.is_err() {
                return;
            }
            schedule.record_trim(resident_bytes().unwrap_or(resident));
        }
    }
}

/// When to return memory.
#[derive(Debug, Default)]
struct TrimSchedule {
    /// The resident memory after the last time.
    after: u64,
    /// The checks since then.
    checks: u32,
}

impl TrimSchedule {
    fn is_due(&mut self, resident: u64) -> bool {
        self.checks += 1;
        let grown = resident > self.after.saturating_add((self.after / 10).max(MIN_GROWTH));
        grown || self.checks >= CHECKS_BEFORE_TRIM
    }

    fn record_trim(&mut self, resident: u64) {
        *self = Self { after: resident, checks: 0 };
    }
}

/// The resident memory of this process, in bytes; `None` where the system does not report it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_after_growth_and_some_time_after_it() {
        const MIB: u64 = 1 << 20;
        let mut schedule = TrimSchedule::default();
        assert!(schedule.is_due(100 * MIB));
        // All of it is in use, and is freed later, without growth.
        schedule.record_trim(100 * MIB);
        let due: Vec<bool> = (0..CHECKS_BEFORE_TRIM).map(|_| schedule.is_due(100 * MIB)).collect();
        assert_eq!(due.iter().filter(|due| **due).count(), 1, "it may be free by now");
        schedule.record_trim(80 * MIB);
        assert!(!schedule.is_due(85 * MIB) && schedule.is_due(200 * MIB));
    }

    #[test]
    fn freed_blocks_of_all_sizes_are_returned() {
        let before = resident_bytes().unwrap();
        let lists: Vec<Vec<u8>> = (0..2_000_000).map(|n: usize| vec![1; 16 + n % 64]).collect();
        let peak = resident_bytes().unwrap();
        assert!(peak > before + (64 << 20));
        drop(lists);
        native::trim_heap();
        let after = resident_bytes().unwrap();
        assert!(after < before + (peak - before) / 2, "{before} {peak} {after}");
    }
}
