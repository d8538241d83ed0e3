//! Serial tools: a serial queue runs one call at a time, in the order of arrival.
//!
//! Tools with the same queue name share a queue, across all callers and across reloads of their plugin. An empty queue
//! takes no memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use toolbay_policy::limits::HostLimits;
use toolbay_policy::limits::{LimitHit, LimitSetting};
use toolbay_policy::quantity;

use crate::tool::fault::{Fault, FaultKind};

/// The time after which a call that found its queue full should be retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The serial queues of a host. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct SerialQueues {
    queues: Arc<Mutex<HashMap<Arc<str>, SerialQueue>>>,
    most: u32,
    patience: Duration,
}

/// A queue with at least one call.
#[derive(Debug, Default)]
struct SerialQueue {
    running: u64,
    next: u64,
    waiting: VecDeque<(u64, Arc<Notify>)>,
}

/// A position in a queue. Dropping it lets the next call run.
#[derive(Debug)]
pub(crate) struct SerialPermit {
    queues: Arc<Mutex<HashMap<Arc<str>, SerialQueue>>>,
    name: Arc<str>,
    number: u64,
}

impl Drop for SerialPermit {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.name) else { return };
        if queue.running != self.number {
            queue.waiting.retain(|(number, _)| *number != self.number);
        } else if let Some((number, wake)) = queue.waiting.pop_front() {
            queue.running = number;
            wake.notify_one();
        } else {
            queues.remove(&self.name);
        }
    }
}

impl SerialQueues {
    /// Queues with the host's limits: at most `queued_calls` calls wait in each queue, for at most `queue_timeout`.
    pub(crate) fn new(limits: &HostLimits) -> Self {
        Self { queues: Arc::default(), most: limits.queued_calls, patience: limits.queue_timeout }
    }

    /// Waits until the call is at the head of the queue.
    pub(crate) async fn acquire(
        &self,
        name: &Arc<str>,
        cancel: &CancellationToken,
    ) -> Result<SerialPermit, Fault> {
        let (permit, wake) = self.join(name)?;
        let Some(wake) = wake else { return Ok(permit) };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran")),
            () = wake.notified() => Ok(permit),
            () = tokio::time::sleep(self.patience) => {
                let waited = quantity::show_duration(self.patience);
                let why = format!("the call did not start within {waited}");
                Err(self.busy_fault(name, &why, "queue_timeout", waited))
            }
        }
    }

    /// Joins the queue. Returns the notification to wait for, unless the call is at the head.
    fn join(&self, name: &Arc<str>) -> Result<(SerialPermit, Option<Arc<Notify>>), Fault> {
        let mut queues = self.queues.lock();
        let permit =
            |number| SerialPermit { queues: Arc::clone(&self.queues), name: Arc::clone(name), number };
        let Some(queue) = queues.get_mut(name) else {
            queues.insert(Arc::clone(name), SerialQueue { next: 1, ..SerialQueue::default() });
            return Ok((permit(0), None));
        };
        if queue.waiting.len() >= self.most as usize {
            let why = format!("{} calls wait for it", self.most);
            return Err(self.busy_fault(name, &why, "queued_calls", self.most.to_string()));
        }
        let (number, wake) = (queue.next, Arc::new(Notify::new()));
        queue.next += 1;
        queue.waiting.push_back((number, Arc::clone(&wake)));
        Ok((permit(number), Some(wake)))
    }

    fn busy_fault(&self, queue: &str, why: &str, name: &'static str, value: String) -> Fault {
        let setting = LimitSetting::key("host", name);
        let what = format!("busy: calls of `{queue}` run one after the other (`serial`), and {why}");
        Fault::by_limit(FaultKind::Busy, &what, LimitHit { name, value, setting }).retry_after(RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(most: u32) -> SerialQueues {
        SerialQueues::new(&HostLimits { queued_calls: most, ..HostLimits::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_first_in_first_out_and_removed_when_empty() {
        let (queues, cancel, seen) = (bounded(100), CancellationToken::new(), Arc::new(Mutex::new(vec![])));
        let name: Arc<str> = "p__t".into();
        let first = queues.acquire(&name, &cancel).await.unwrap();
        let other = queues.acquire(&"p__other".into(), &cancel).await.unwrap();
        let mut tasks = vec![];
        for n in 0..5 {
            let (queues, name, seen) = (queues.clone(), Arc::clone(&name), Arc::clone(&seen));
            let cancel = if n == 2 { cancel.clone() } else { CancellationToken::new() };
            tasks.push(tokio::spawn(async move {
                let permit = queues.acquire(&name, &cancel).await?;
                seen.lock().push(n);
                tokio::time::sleep(Duration::from_millis(10)).await;
                seen.lock().push(n);
                drop(permit);
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
        assert_eq!(*seen.lock(), [0, 0, 1, 1, 3, 3, 4, 4]);
        assert!(queues.queues.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_and_a_blocked_queue_are_busy() {
        let (queues, cancel, name) = (bounded(1), CancellationToken::new(), Arc::from("p__t"));
        let first = queues.acquire(&name, &cancel).await.unwrap();
        let (second, third) = tokio::join!(queues.acquire(&name, &cancel), queues.acquire(&name, &cancel));
        let (second, third) = (second.unwrap_err(), third.unwrap_err());
        assert_eq!((second.kind, third.kind), (FaultKind::Busy, FaultKind::Busy));
        assert!(
            second.hint().is_some_and(|hint| hint.to_string().contains("[host] queue_timeout")),
            "{second}"
        );
        assert!(third.hint().is_some_and(|hint| hint.to_string().contains("[host] queued_calls")), "{third}");
        assert!(!third.message.contains("[host]"), "{third}");
        drop(first);
        queues.acquire(&name, &cancel).await.unwrap();
        assert!(queues.queues.lock().is_empty());
    }
}
