//! The circuit breaker of one tool (or one reducer): after `breaker_faults` faults in a row it is not called for
//! `breaker_pause`, twice as long after each failed attempt, up to 64 times.
//!
//! It is a tool's and not a plugin's: each call has an instance of its own, so a tool's faults say nothing of its
//! neighbours, and whoever makes a model call the one bad tool must not thereby switch off the good ones. A tool's own
//! errors, `busy` and cancelled calls are no faults of the guest and do not count. A reload makes new breakers.
//!
//! | state | a call is | and then |
//! |---|---|---|
//! | closed | let through | the `breaker_faults`th fault in a row opens it; anything else but a fault starts the count anew |
//! | open | refused at once | after the pause the next call is a probe |
//! | probing | refused at once | the probe's success closes it, its fault opens it for twice the time |

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_policy::limits::HostLimits;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::quantity;

/// Most times the pause doubles: 64 times as long.
const MOST_DOUBLINGS: u32 = 6;

/// Counts the faults of one tool.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// What is refused, as a message names it.
    what: String,
    most: u32,
    pause: Duration,
    /// Faults in a row while closed.
    faults: AtomicU32,
    /// Whether `open` has to be asked.
    tripped: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// `None`: closed.
    until: Option<Instant>,
    doublings: u32,
    probing: bool,
    last: Option<FaultKind>,
}

/// A call that was let through. Told how it went, or dropped if it never ran to its end.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    breaker: &'a Breaker,
    probe: bool,
    told: bool,
}

impl Breaker {
    /// A breaker for what a message calls `what`.
    pub(crate) fn new(what: String, limits: &HostLimits) -> Self {
        Self {
            what,
            most: limits.breaker_faults,
            pause: limits.breaker_pause,
            faults: AtomicU32::new(0),
            tripped: AtomicBool::new(false),
            open: Mutex::default(),
        }
    }

    /// Refuses what would be refused now, so that it need not wait for a place.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if !self.tripped.load(Ordering::Acquire) {
            return Ok(());
        }
        self.refused(&self.open.lock()).map_or(Ok(()), Err)
    }

    /// Lets a call through, or refuses it.
    pub(crate) fn pass(&self) -> Result<Pass<'_>, Fault> {
        let mut probe = false;
        if self.tripped.load(Ordering::Acquire) {
            let mut open = self.open.lock();
            if let Some(fault) = self.refused(&open) {
                return Err(fault);
            }
            probe = open.until.is_some();
            open.probing = probe;
        }
        Ok(Pass { breaker: self, probe, told: false })
    }

    fn refused(&self, open: &Open) -> Option<Fault> {
        let left = open.until?.saturating_duration_since(Instant::now());
        if left.is_zero() && !open.probing {
            return None;
        }
        // Nobody knows how long a probe takes; a pause is a fair guess.
        let left = if left.is_zero() { self.pause } else { left };
        let left = Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1));
        let last = open.last.map_or("fault", FaultKind::as_str);
        let what = format!(
            "{} faulted {} times in a row, the last time with `{last}`; it is not called for another {}",
            self.what,
            self.most,
            quantity::show_duration(left),
        );
        let limit = LimitHit {
            name: "breaker_faults",
            value: self.most.to_string(),
            setting: "[host] breaker_faults = …".to_owned(),
        };
        Some(Fault::by_limit(FaultKind::Suspended, &what, limit).retry_after(left))
    }

    fn faulted(&self, kind: FaultKind, probe: bool) {
        let count = self.faults.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        if self.most == 0 || (!probe && count < self.most) {
            return;
        }
        let mut open = self.open.lock();
        // Calls that were under way when it opened do not prolong the pause.
        if open.until.is_some() && !probe {
            return;
        }
        if probe {
            open.doublings = (open.doublings + 1).min(MOST_DOUBLINGS);
        }
        let pause = self.pause.saturating_mul(1 << open.doublings);
        open.until = Some(Instant::now() + pause);
        open.probing = false;
        open.last = Some(kind);
        self.tripped.store(true, Ordering::Release);
        tracing::warn!(what = %self.what, fault = kind.as_str(), ?pause, "too many faults in a row; it is not called for a while");
    }

    fn went_well(&self, probe: bool) {
        // First, whatever was counted: calls that end while it opens count, too.
        if probe {
            *self.open.lock() = Open::default();
            self.faults.store(0, Ordering::Release);
            self.tripped.store(false, Ordering::Release);
        }
        if self.faults.load(Ordering::Acquire) == 0 {
            return;
        }
        // While it is open the probe alone decides.
        if !self.tripped.load(Ordering::Acquire) {
            self.faults.store(0, Ordering::Release);
        }
    }
}

impl Pass<'_> {
    /// Tells how the call ended: `None` for anything that is no fault.
    pub(crate) fn ended(mut self, fault: Option<FaultKind>) {
        match fault {
            None => self.breaker.went_well(self.probe),
            Some(FaultKind::Busy | FaultKind::Cancelled | FaultKind::Suspended) => return,
            Some(
                kind @ (FaultKind::Trap
                | FaultKind::OutOfFuel
                | FaultKind::Deadline
                | FaultKind::OutOfMemory
                | FaultKind::OutputTooLarge
                | FaultKind::BadOutput),
            ) => self.breaker.faulted(kind, self.probe),
        }
        self.told = true;
    }
}

impl Drop for Pass<'_> {
    /// A probe that never came to an end says nothing: the next call is the probe.
    fn drop(&mut self) {
        if self.probe && !self.told {
            self.breaker.open.lock().probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAP: Option<FaultKind> = Some(FaultKind::Trap);

    fn breaker(faults: u32, pause: Duration) -> Breaker {
        let limits = HostLimits { breaker_faults: faults, breaker_pause: pause, ..HostLimits::default() };
        Breaker::new("tool `p__t`".to_owned(), &limits)
    }

    /// Lets the pause pass.
    fn wait(breaker: &Breaker) {
        let mut open = breaker.open.lock();
        assert!(open.until.is_some(), "it is open");
        open.until = Some(Instant::now());
    }

    fn left(breaker: &Breaker) -> u64 {
        breaker.check().unwrap_err().retry_after_ms.unwrap()
    }

    #[test]
    fn faults_in_a_row_open_it_and_a_good_probe_closes_it() {
        let breaker = breaker(3, Duration::from_secs(10));
        for fault in [TRAP, TRAP, None, TRAP, Some(FaultKind::Busy), TRAP, Some(FaultKind::Cancelled)] {
            breaker.pass().unwrap().ended(fault);
        }
        breaker.check().unwrap();
        breaker.pass().unwrap().ended(Some(FaultKind::Deadline));
        let fault = breaker.pass().unwrap_err();
        assert_eq!(fault.kind, FaultKind::Suspended);
        assert!(
            fault.message.contains("tool `p__t` faulted 3 times in a row, the last time with `deadline`"),
            "{fault}"
        );
        assert!(fault.hint().is_some_and(|hint| hint.contains("[host] breaker_faults = …")), "{fault}");
        assert!((9_000..=10_000).contains(&left(&breaker)));
        wait(&breaker);
        breaker.check().unwrap();
        let probe = breaker.pass().unwrap();
        assert!(breaker.pass().is_err() && breaker.check().is_err(), "one probe at a time");
        probe.ended(None);
        breaker.pass().unwrap().ended(TRAP);
        breaker.pass().unwrap().ended(TRAP);
        breaker.check().expect("the count began anew");
    }

    #[test]
    fn each_bad_probe_doubles_the_pause_up_to_64_times() {
        let breaker = breaker(1, Duration::from_secs(1));
        breaker.pass().unwrap().ended(TRAP);
        for factor in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            assert!((factor * 900..=factor * 1000).contains(&left(&breaker)), "{factor}: {}", left(&breaker));
            wait(&breaker);
            breaker.pass().unwrap().ended(TRAP);
        }
        wait(&breaker);
        breaker.pass().unwrap().ended(None);
        breaker.pass().unwrap().ended(TRAP);
        assert!(left(&breaker) <= 1000, "after a success it begins with the shortest");
    }

    #[test]
    fn a_probe_that_never_ran_leaves_the_next_to_be_one() {
        let breaker = breaker(1, Duration::from_secs(1));
        breaker.pass().unwrap().ended(TRAP);
        wait(&breaker);
        drop(breaker.pass().unwrap());
        breaker.pass().unwrap().ended(Some(FaultKind::Cancelled));
        breaker.pass().unwrap().ended(None);
        breaker.check().unwrap();
    }

    #[test]
    fn calls_under_way_neither_prolong_nor_close() {
        let breaker = breaker(1, Duration::from_secs(1));
        let (slow, good) = (breaker.pass().unwrap(), breaker.pass().unwrap());
        breaker.pass().unwrap().ended(TRAP);
        wait(&breaker);
        slow.ended(TRAP);
        good.ended(None);
        let probe = breaker.pass().unwrap();
        assert!(breaker.check().is_err());
        probe.ended(None);
    }

    #[test]
    fn a_success_that_comes_while_it_opens_does_not_keep_it_open() {
        let breaker = breaker(1, Duration::from_secs(1));
        breaker.pass().unwrap().ended(TRAP);
        // What a call does that ended well between the count and the opening.
        breaker.faults.store(0, Ordering::Release);
        wait(&breaker);
        breaker.pass().unwrap().ended(None);
        breaker.check().expect("the probe closed it");
        breaker.pass().unwrap().ended(None);
    }

    #[test]
    fn none_means_never() {
        let breaker = breaker(0, Duration::from_secs(1));
        (0..1000).for_each(|_| breaker.pass().unwrap().ended(TRAP));
        breaker.check().unwrap();
    }
}
