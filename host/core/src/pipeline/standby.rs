//! Tasks that have worked off a batch look for the next one for a moment before they end: a model that works in batches has it
//! by then, and to wake a processor for a new task takes as long as some calls.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id};

/// For how long a task looks. That is what a batch costs a processor at most beyond its own work.
const LOOKS: Duration = Duration::from_micros(50);
/// Tasks that look at once; more processors are woken.
const MOST: usize = 4;

/// Tasks that look for something to do.
pub(super) struct Standby<T> {
    looking: Mutex<Vec<Looking<T>>>,
}

struct Looking<T> {
    /// What a task of one runtime is handed does not end with another runtime.
    runtime: Id,
    place: Arc<Place<T>>,
}

/// Where a task is handed something.
struct Place<T> {
    is_given: AtomicBool,
    given: Mutex<Option<T>>,
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Default for Standby<T> {
    fn default() -> Self {
        Self { looking: Mutex::default() }
    }
}

impl<T> fmt::Debug for Standby<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").field("looking", &lock(&self.looking).len()).finish_non_exhaustive()
    }
}

impl<T> Standby<T> {
    /// Hands something to a task of the current runtime that looks; gives it back if there is none.
    pub(super) fn hand(&self, what: T) -> Result<(), T> {
        let place = {
            let mut looking = lock(&self.looking);
            if looking.is_empty() {
                return Err(what);
            }
            let here = Handle::current().id();
            looking.iter().position(|one| one.runtime == here).map(|at| looking.swap_remove(at).place)
        };
        let Some(place) = place else { return Err(what) };
        *lock(&place.given) = Some(what);
        place.is_given.store(true, Ordering::Release);
        Ok(())
    }

    /// Looks for something, unless enough others do; the thread does nothing else meanwhile.
    pub(super) fn look(&self) -> Option<T> {
        let runtime = Handle::current();
        let place = Arc::new(Place { is_given: AtomicBool::new(false), given: Mutex::new(None) });
        {
            let mut looking = lock(&self.looking);
            if looking.len() >= MOST {
                return None;
            }
            looking.push(Looking { runtime: runtime.id(), place: Arc::clone(&place) });
        }
        let start = Instant::now();
        while !place.is_given.load(Ordering::Acquire) {
            let is_over = start.elapsed() >= LOOKS || runtime.metrics().global_queue_depth() > 0;
            if is_over && self.leave(&place) {
                return None;
            }
            std::hint::spin_loop();
        }
        lock(&place.given).take()
    }

    /// Whether a task does not look any more; else it is about to be handed something.
    fn leave(&self, place: &Arc<Place<T>>) -> bool {
        let mut looking = lock(&self.looking);
        let at = looking.iter().position(|one| Arc::ptr_eq(&one.place, place));
        at.is_some_and(|at| {
            looking.swap_remove(at);
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Runtime;

    #[test]
    fn what_is_handed_over_is_found_by_who_looks_and_by_nobody_else() {
        let (runtime, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
        let standby = Arc::new(Standby::default());
        let _here = runtime.enter();
        assert_eq!(standby.hand(1), Err(1), "nobody looks");
        assert_eq!(standby.look(), None, "nothing comes");
        let found = std::thread::scope(|scope| {
            let finds = scope.spawn(|| {
                let _here = runtime.enter();
                // A moment is short: until one of them is met.
                loop {
                    if let Some(found) = standby.look() {
                        return found;
                    }
                }
            });
            let elsewhere = other.enter();
            assert!((0..1000).all(|_| standby.hand(2).is_err()), "that of another runtime");
            drop(elsewhere);
            while standby.hand(3).is_err() {}
            finds.join().unwrap()
        });
        assert_eq!(found, 3);
        assert!(lock(&standby.looking).is_empty());
    }

    #[test]
    fn a_few_look_and_the_others_end() {
        let runtime = Runtime::new().unwrap();
        let _here = runtime.enter();
        let standby = Standby::<()>::default();
        let place = || Arc::new(Place { is_given: AtomicBool::new(false), given: Mutex::new(None) });
        let looking = || Looking { runtime: Handle::current().id(), place: place() };
        lock(&standby.looking).extend((0..MOST).map(|_| looking()));
        assert_eq!(standby.look(), None);
        assert_eq!(lock(&standby.looking).len(), MOST);
    }
}
