//! Calls that must not run side by side: each lane lets one through at a time, in the order in which they came.
//!
//! A lane has a name; tools with the same one share it, whoever calls them, also when their plugin was replaced in
//! between. A lane that nobody is in takes no memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use toolbay_policy::limits::HostLimits;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::quantity;

use crate::call::fault::{Fault, FaultKind};

/// When a call that finds its lane full may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The lanes of a host. All clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Lanes {
    lanes: Arc<Mutex<HashMap<Arc<str>, Lane>>>,
    most: u32,
    patience: Duration,
}

/// One lane while somebody is in it.
#[derive(Debug, Default)]
struct Lane {
    running: u64,
    next: u64,
    waiting: VecDeque<(u64, Arc<Notify>)>,
}

/// A place in a lane; dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Turn {
    lanes: Arc<Mutex<HashMap<Arc<str>, Lane>>>,
    name: Arc<str>,
    number: u64,
}

type Map = HashMap<Arc<str>, Lane>;

fn lock(lanes: &Mutex<Map>) -> MutexGuard<'_, Map> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lanes = lock(&self.lanes);
        let Some(lane) = lanes.get_mut(&self.name) else { return };
        if lane.running != self.number {
            lane.waiting.retain(|(number, _)| *number != self.number);
        } else if let Some((number, wake)) = lane.waiting.pop_front() {
            lane.running = number;
            wake.notify_one();
        } else {
            lanes.remove(&self.name);
        }
    }
}

impl Lanes {
    /// Lanes in each of which as many may wait as the host lets wait for a place, and as long.
    pub(crate) fn new(limits: &HostLimits) -> Self {
        Self { lanes: Arc::default(), most: limits.queued_calls, patience: limits.queue_timeout }
    }

    /// Waits until it is its turn in a lane.
    pub(crate) async fn enter(&self, name: &Arc<str>, cancel: &CancellationToken) -> Result<Turn, Fault> {
        let (turn, wake) = self.join(name)?;
        let Some(wake) = wake else { return Ok(turn) };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran")),
            () = wake.notified() => Ok(turn),
            () = tokio::time::sleep(self.patience) => {
                let waited = quantity::show_duration(self.patience);
                let why = format!("its turn did not come within {waited}");
                Err(self.busy(name, &why, "queue_timeout", waited))
            }
        }
    }

    /// A place in the lane, and what wakes it if it is not its turn yet.
    fn join(&self, name: &Arc<str>) -> Result<(Turn, Option<Arc<Notify>>), Fault> {
        let mut lanes = lock(&self.lanes);
        let turn = |number| Turn { lanes: Arc::clone(&self.lanes), name: Arc::clone(name), number };
        let Some(lane) = lanes.get_mut(name) else {
            lanes.insert(Arc::clone(name), Lane { next: 1, ..Lane::default() });
            return Ok((turn(0), None));
        };
        if lane.waiting.len() >= self.most as usize {
            let why = format!("{} calls wait for it", self.most);
            return Err(self.busy(name, &why, "queued_calls", self.most.to_string()));
        }
        let (number, wake) = (lane.next, Arc::new(Notify::new()));
        lane.next += 1;
        lane.waiting.push_back((number, Arc::clone(&wake)));
        Ok((turn(number), Some(wake)))
    }

    fn busy(&self, lane: &str, why: &str, name: &'static str, value: String) -> Fault {
        let setting = format!("[host] {name} = …");
        let what = format!("busy: calls of `{lane}` run one after the other (`serial`), and {why}");
        Fault::by_limit(FaultKind::Busy, &what, LimitHit { name, value, setting }).retry_after(RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(most: u32) -> Lanes {
        Lanes::new(&HostLimits { queued_calls: most, ..HostLimits::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_is_first_come_first_served_and_forgotten_when_empty() {
        let (lanes, cancel, seen) = (lanes(100), CancellationToken::new(), Arc::new(Mutex::new(vec![])));
        let name: Arc<str> = "p__t".into();
        let first = lanes.enter(&name, &cancel).await.unwrap();
        let other = lanes.enter(&"p__other".into(), &cancel).await.unwrap();
        let mut tasks = vec![];
        for n in 0..5 {
            let (lanes, name, seen) = (lanes.clone(), Arc::clone(&name), Arc::clone(&seen));
            let cancel = if n == 2 { cancel.clone() } else { CancellationToken::new() };
            tasks.push(tokio::spawn(async move {
                let turn = lanes.enter(&name, &cancel).await?;
                seen.lock().unwrap().push(n);
                tokio::time::sleep(Duration::from_millis(10)).await;
                seen.lock().unwrap().push(n);
                drop(turn);
                Ok::<_, Fault>(())
            }));
            tokio::task::yield_now().await;
        }
        cancel.cancel();
        drop((first, other));
        for (n, task) in tasks.into_iter().enumerate() {
            let ended = task.await.unwrap().map_err(|fault| fault.kind);
            assert_eq!(ended, if n == 2 { Err(FaultKind::Cancelled) } else { Ok(()) });
        }
        assert_eq!(*seen.lock().unwrap(), [0, 0, 1, 1, 3, 3, 4, 4]);
        assert!(lock(&lanes.lanes).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_lane_and_one_that_does_not_move_are_busy() {
        let (lanes, cancel, name) = (lanes(1), CancellationToken::new(), Arc::from("p__t"));
        let first = lanes.enter(&name, &cancel).await.unwrap();
        let (second, third) = tokio::join!(lanes.enter(&name, &cancel), lanes.enter(&name, &cancel));
        let (second, third) = (second.unwrap_err(), third.unwrap_err());
        assert_eq!((second.kind, third.kind), (FaultKind::Busy, FaultKind::Busy));
        assert!(second.hint().is_some_and(|hint| hint.contains("[host] queue_timeout")), "{second}");
        assert!(third.hint().is_some_and(|hint| hint.contains("[host] queued_calls")), "{third}");
        assert!(!third.message.contains("[host]"), "{third}");
        drop(first);
        lanes.enter(&name, &cancel).await.unwrap();
        assert!(lock(&lanes.lanes).is_empty());
    }
}
