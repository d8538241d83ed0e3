//! Progress of a running call, forwarded to the client, or from another server to its call.
//!
//! Only events that the guest addressed to the user are forwarded. The queue is short, since a slow client must not slow
//! the tool down: when it is full, the newest event is merged into the last one. The order holds, and the last message
//! always arrives before the result.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use toolbay_core::call::{ProgressAudience, ProgressEvent, ProgressSink};

/// Events that wait for a slow client.
const QUEUE_LEN: usize = 32;
/// Increment for an event without a higher percentage.
const MIN_STEP: f64 = 0.001;

/// Progress that was not forwarded yet.
#[derive(Debug)]
pub(crate) struct ProgressUpdate {
    pub(crate) message: String,
    pub(crate) percent: Option<f32>,
}

impl ProgressUpdate {
    /// Merges a newer update. A message or a percentage that it lacks stays.
    fn merge(&mut self, newer: Self) {
        if !newer.message.is_empty() {
            self.message = newer.message;
        }
        self.percent = newer.percent.or(self.percent);
    }
}

/// The progress of a call that was not forwarded yet. As a sink, it takes further events.
#[derive(Debug)]
pub(crate) struct ProgressQueue {
    capacity: usize,
    updates: Mutex<VecDeque<ProgressUpdate>>,
    arrived: Notify,
}

impl ProgressQueue {
    /// Creates an empty queue for the client of a call.
    pub(crate) fn new() -> Arc<Self> {
        Self::with_capacity(QUEUE_LEN)
    }

    /// Creates an empty queue for at most `capacity` updates.
    pub(crate) fn with_capacity(capacity: usize) -> Arc<Self> {
        Arc::new(Self { capacity, updates: Mutex::default(), arrived: Notify::new() })
    }

    /// Adds an update, or merges it into the last one if the queue is full.
    pub(crate) fn push(&self, update: ProgressUpdate) {
        let mut updates = self.updates.lock();
        let is_full = updates.len() >= self.capacity;
        match updates.back_mut().filter(|_| is_full) {
            Some(last) => last.merge(update),
            None => updates.push_back(update),
        }
        drop(updates);
        self.arrived.notify_one();
    }

    /// Takes the next update.
    pub(crate) fn pop(&self) -> Option<ProgressUpdate> {
        self.updates.lock().pop_front()
    }

    /// Waits until an update may be there.
    pub(crate) async fn wait(&self) {
        self.arrived.notified().await;
    }
}

impl ProgressSink for ProgressQueue {
    fn progress(&self, event: ProgressEvent) {
        let ProgressEvent { message, percent, audience, .. } = event;
        match audience {
            ProgressAudience::User => self.push(ProgressUpdate { message, percent }),
            ProgressAudience::Internal | ProgressAudience::Dashboard => {}
        }
    }
}

/// The total when percentages are reported.
const TOTAL: f64 = 100.0;

/// Converts the percentages of a guest into numbers that always increase, as MCP requires, and never exceed their
/// total. Reports `percent` of 100 if the guest sends percentages, else a count.
#[derive(Debug, Default)]
pub(crate) struct ProgressScale {
    last: f64,
    percent: bool,
}

impl ProgressScale {
    /// Returns `progress` and `total` of the next event, or `None` once the total is reached.
    pub(crate) fn next_value(&mut self, percent: Option<f32>) -> Option<(f64, Option<f64>)> {
        let percent = percent.map(f64::from).filter(|p| p.is_finite()).map(|p| p.clamp(0.0, TOTAL));
        // A count above the total can no longer become a percentage.
        self.percent |= percent.is_some() && self.last < TOTAL;
        if !self.percent {
            self.last += 1.0;
            return Some((self.last, None));
        }
        let next = match percent {
            Some(percent) if percent > self.last => percent,
            // At most half of the remaining distance.
            _ => self.last + MIN_STEP.min((TOTAL - self.last) / 2.0),
        };
        if next <= self.last {
            return None;
        }
        self.last = next;
        Some((next, Some(TOTAL)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_do_not_fit_are_merged_into_the_last() {
        let queue = ProgressQueue::new();
        let tell = |message: String, percent: Option<f32>, audience| {
            let (call_id, tool) = ("1".into(), "t".into());
            queue.progress(ProgressEvent { call_id, tool, message, percent, audience });
        };
        for n in 1..=1000_u16 {
            tell(format!("step {n}"), Some(f32::from(n) / 10.0), ProgressAudience::User);
        }
        tell("not for users".to_owned(), None, ProgressAudience::Internal);
        // Events without a message or a percentage keep those of the event before.
        tell(String::new(), None, ProgressAudience::User);
        let all: Vec<ProgressUpdate> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all.len(), QUEUE_LEN);
        assert!(all.is_sorted_by(|one, next| one.percent < next.percent));
        let last = all.last().unwrap();
        assert_eq!((last.message.as_str(), last.percent), ("step 1000", Some(100.0)));
    }

    #[test]
    fn progress_always_grows() {
        for events in [
            vec![None, None, Some(50.0), Some(20.0), None, Some(100.0), Some(100.0)],
            vec![Some(f32::NAN), Some(-1.0), Some(1e9), None],
            vec![Some(0.0), Some(0.0), Some(100.0)],
            [vec![Some(99.999)], vec![None; 100]].concat(),
            [vec![None; 150], vec![Some(50.0), Some(100.0), None]].concat(),
        ] {
            let mut meter = ProgressScale::default();
            let all: Vec<_> = events.iter().filter_map(|percent| meter.next_value(*percent)).collect();
            assert!(all.is_sorted_by(|one, next| one.0 < next.0), "{all:?}");
            assert!(
                all.iter().all(|(progress, total)| total.is_none_or(|total| *progress <= total)),
                "{all:?}"
            );
            // Once reported, the total stays.
            assert!(all.iter().skip_while(|one| one.1.is_none()).all(|one| one.1 == Some(TOTAL)), "{all:?}");
        }
        let mut meter = ProgressScale::default();
        assert_eq!(meter.next_value(None), Some((1.0, None)));
        assert_eq!(meter.next_value(Some(50.0)), Some((50.0, Some(100.0))));
        assert_eq!(meter.next_value(Some(100.0)), Some((100.0, Some(100.0))));
        assert_eq!(
            (meter.next_value(None), meter.next_value(Some(100.0)), meter.next_value(Some(f32::MAX))),
            (None, None, None)
        );
    }
}
