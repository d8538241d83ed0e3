//! The circuit breaker of one tool or reducer. After `breaker_faults` consecutive faults, it refuses calls for
//! `breaker_pause`. Each failed probe doubles the pause, up to 64 times.
//!
//! Each tool has its own breaker, because each call has its own instance and the faults of one tool say nothing about
//! the others. An attacker who makes a model call one bad tool must not disable the good ones. Tool errors, `busy` and
//! cancelled calls are not faults of the guest and do not count. A reload creates new breakers.
//!
//! | state | a call is | transition |
//! |---|---|---|
//! | closed | admitted | the `breaker_faults`th consecutive fault opens it; a success resets the count |
//! | open | refused | after the pause, the next call is a probe |
//! | probing | refused | a successful probe closes it; a failed one opens it for twice the time |

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::limits::HostLimits;
use toolbay_policy::limits::{LimitHit, LimitSetting};
use toolbay_policy::quantity;

/// How often the pause doubles at most: 64 times the initial pause.
const MAX_DOUBLINGS: u32 = 6;

/// Counts the faults of one tool.
#[derive(Debug)]
pub struct CircuitBreaker {
    /// The tool or reducer, as messages name it.
    subject: String,
    max_faults: u32,
    pause: Duration,
    /// Consecutive faults while closed.
    faults: AtomicU32,
    /// Whether `open` must be checked. Saves the lock while the breaker is closed.
    tripped: AtomicBool,
    open: Mutex<OpenCircuit>,
}

#[derive(Debug, Default)]
struct OpenCircuit {
    /// The end of the pause; `None` while closed.
    until: Option<Instant>,
    doublings: u32,
    probing: bool,
    last_fault: Option<FaultKind>,
}

/// The permit of an admitted call. Record the result with [`BreakerPermit::record`], or drop the permit if the call did
/// not finish.
#[derive(Debug)]
pub struct BreakerPermit<'a> {
    breaker: &'a CircuitBreaker,
    probe: bool,
    recorded: bool,
}

impl CircuitBreaker {
    /// Creates a closed breaker for the tool or reducer that messages call `subject`.
    pub fn new(subject: String, limits: &HostLimits) -> Self {
        Self {
            subject,
            max_faults: limits.breaker_faults,
            pause: limits.breaker_pause,
            faults: AtomicU32::new(0),
            tripped: AtomicBool::new(false),
            open: Mutex::default(),
        }
    }

    /// Refuses a call that the breaker would refuse now, before the call waits for a run permit.
    pub fn check(&self) -> Result<(), Fault> {
        if !self.tripped.load(Ordering::Acquire) {
            return Ok(());
        }
        self.refusal(&self.open.lock()).map_or(Ok(()), Err)
    }

    /// Admits a call, or refuses it.
    pub fn try_acquire(&self) -> Result<BreakerPermit<'_>, Fault> {
        let mut probe = false;
        if self.tripped.load(Ordering::Acquire) {
            let mut open = self.open.lock();
            if let Some(fault) = self.refusal(&open) {
                return Err(fault);
            }
            probe = open.until.is_some();
            open.probing = probe;
        }
        Ok(BreakerPermit { breaker: self, probe, recorded: false })
    }

    fn refusal(&self, open: &OpenCircuit) -> Option<Fault> {
        let left = open.until?.saturating_duration_since(Instant::now());
        if left.is_zero() && !open.probing {
            return None;
        }
        // The duration of a probe is unknown; the pause is an estimate.
        let left = if left.is_zero() { self.pause } else { left };
        let left = Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1));
        let last = open.last_fault.map_or("fault", FaultKind::as_str);
        let what = format!(
            "{} faulted {} times in a row, the last time with `{last}`; it is not called for another {}",
            self.subject,
            self.max_faults,
            quantity::show_duration(left),
        );
        let limit = LimitHit {
            name: "breaker_faults",
            value: self.max_faults.to_string(),
            setting: LimitSetting::key("host", "breaker_faults"),
        };
        Some(Fault::by_limit(FaultKind::Suspended, &what, limit).retry_after(left))
    }

    fn record_fault(&self, kind: FaultKind, probe: bool) {
        let count = self.faults.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        if self.max_faults == 0 || (!probe && count < self.max_faults) {
            return;
        }
        let mut open = self.open.lock();
        // Calls that were in flight when the breaker opened do not extend the pause.
        if open.until.is_some() && !probe {
            return;
        }
        if probe {
            open.doublings = (open.doublings + 1).min(MAX_DOUBLINGS);
        }
        let pause = self.pause.saturating_mul(1 << open.doublings);
        open.until = Some(Instant::now() + pause);
        open.probing = false;
        open.last_fault = Some(kind);
        self.tripped.store(true, Ordering::Release);
        tracing::warn!(
            what = %self.subject, fault = kind.as_str(), ?pause,
            "too many consecutive faults; calls are refused during the pause"
        );
    }

    fn record_success(&self, probe: bool) {
        // Before the check of the count: a call that succeeded while the breaker opened may have reset it.
        if probe {
            *self.open.lock() = OpenCircuit::default();
            self.faults.store(0, Ordering::Release);
            self.tripped.store(false, Ordering::Release);
        }
        if self.faults.load(Ordering::Acquire) == 0 {
            return;
        }
        // While the breaker is open, only the probe decides.
        if !self.tripped.load(Ordering::Acquire) {
            self.faults.store(0, Ordering::Release);
        }
    }
}

impl BreakerPermit<'_> {
    /// Records how the call ended; `None` means without a fault.
    pub fn record(mut self, fault: Option<FaultKind>) {
        match fault {
            None => self.breaker.record_success(self.probe),
            Some(
                FaultKind::Busy | FaultKind::Cancelled | FaultKind::OutcomeUnknown | FaultKind::Suspended,
            ) => return,
            Some(
                kind @ (FaultKind::Trap
                | FaultKind::OutOfFuel
                | FaultKind::Deadline
                | FaultKind::OutOfMemory
                | FaultKind::OutputTooLarge
                | FaultKind::BadOutput),
            ) => self.breaker.record_fault(kind, self.probe),
        }
        self.recorded = true;
    }
}

impl Drop for BreakerPermit<'_> {
    /// A probe that did not finish has no result, so the next call becomes the probe.
    fn drop(&mut self) {
        if self.probe && !self.recorded {
            self.breaker.open.lock().probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAP: Option<FaultKind> = Some(FaultKind::Trap);

    fn breaker(faults: u32, pause: Duration) -> CircuitBreaker {
        let limits = HostLimits { breaker_faults: faults, breaker_pause: pause, ..HostLimits::default() };
        CircuitBreaker::new("tool `p__t`".to_owned(), &limits)
    }

    /// Ends the pause.
    fn wait(breaker: &CircuitBreaker) {
        let mut open = breaker.open.lock();
        assert!(open.until.is_some(), "the breaker is open");
        open.until = Some(Instant::now());
    }

    fn left(breaker: &CircuitBreaker) -> u64 {
        breaker.check().unwrap_err().retry_after_ms.unwrap()
    }

    #[test]
    fn consecutive_faults_open_it_and_a_successful_probe_closes_it() {
        let breaker = breaker(3, Duration::from_secs(10));
        for fault in [TRAP, TRAP, None, TRAP, Some(FaultKind::Busy), TRAP, Some(FaultKind::Cancelled)] {
            breaker.try_acquire().unwrap().record(fault);
        }
        breaker.check().unwrap();
        breaker.try_acquire().unwrap().record(Some(FaultKind::Deadline));
        let fault = breaker.try_acquire().unwrap_err();
        assert_eq!(fault.kind, FaultKind::Suspended);
        assert!(
            fault.message.contains("tool `p__t` faulted 3 times in a row, the last time with `deadline`"),
            "{fault}"
        );
        assert!(
            fault.hint().is_some_and(|hint| hint.to_string().contains("[host] breaker_faults = …")),
            "{fault}"
        );
        assert!((9_000..=10_000).contains(&left(&breaker)));
        wait(&breaker);
        breaker.check().unwrap();
        let probe = breaker.try_acquire().unwrap();
        assert!(breaker.try_acquire().is_err() && breaker.check().is_err(), "one probe at a time");
        probe.record(None);
        breaker.try_acquire().unwrap().record(TRAP);
        breaker.try_acquire().unwrap().record(TRAP);
        breaker.check().expect("the count was reset");
    }

    #[test]
    fn each_failed_probe_doubles_the_pause_up_to_64_times() {
        let breaker = breaker(1, Duration::from_secs(1));
        breaker.try_acquire().unwrap().record(TRAP);
        for factor in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            assert!((factor * 900..=factor * 1000).contains(&left(&breaker)), "{factor}: {}", left(&breaker));
            wait(&breaker);
            breaker.try_acquire().unwrap().record(TRAP);
        }
        wait(&breaker);
        breaker.try_acquire().unwrap().record(None);
        breaker.try_acquire().unwrap().record(TRAP);
        assert!(left(&breaker) <= 1000, "a success resets the pause");
    }

    #[test]
    fn after_a_probe_that_never_ran_the_next_call_is_the_probe() {
        let breaker = breaker(1, Duration::from_secs(1));
        breaker.try_acquire().unwrap().record(TRAP);
        wait(&breaker);
        drop(breaker.try_acquire().unwrap());
        breaker.try_acquire().unwrap().record(Some(FaultKind::Cancelled));
        breaker.try_acquire().unwrap().record(None);
        breaker.check().unwrap();
    }

    #[test]
    fn calls_in_flight_neither_extend_the_pause_nor_close_it() {
        let breaker = breaker(1, Duration::from_secs(1));
        let (slow, good) = (breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap());
        breaker.try_acquire().unwrap().record(TRAP);
        wait(&breaker);
        slow.record(TRAP);
        good.record(None);
        let probe = breaker.try_acquire().unwrap();
        assert!(breaker.check().is_err());
        probe.record(None);
    }

    #[test]
    fn a_success_while_it_opens_does_not_keep_it_open() {
        let breaker = breaker(1, Duration::from_secs(1));
        breaker.try_acquire().unwrap().record(TRAP);
        // A call that succeeded between the count and the opening resets the count.
        breaker.faults.store(0, Ordering::Release);
        wait(&breaker);
        breaker.try_acquire().unwrap().record(None);
        breaker.check().expect("the probe closed it");
        breaker.try_acquire().unwrap().record(None);
    }

    #[test]
    fn zero_faults_disables_the_breaker() {
        let breaker = breaker(0, Duration::from_secs(1));
        (0..1000).for_each(|_| breaker.try_acquire().unwrap().record(TRAP));
        breaker.check().unwrap();
    }
}
