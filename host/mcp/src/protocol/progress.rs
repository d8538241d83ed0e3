//! Progress of a running call, forwarded to the client.
//!
//! Only events that the guest addressed to the user are forwarded. The queue is short and drops events that do not fit:
//! a slow client must not slow the tool down, and the newest percentage matters most.

use std::sync::Arc;

use tokio::sync::mpsc;
use toolbay_core::call::{ProgressAudience, ProgressEvent, ProgressSink};

/// Events that wait for a slow client.
const QUEUE_LEN: usize = 32;
/// Increment for an event without a higher percentage.
const MIN_STEP: f64 = 0.001;

/// Creates a sink for a call, and the receiver of its events.
pub(crate) fn channel() -> (Arc<dyn ProgressSink>, mpsc::Receiver<ProgressEvent>) {
    let (sender, receiver) = mpsc::channel(QUEUE_LEN);
    (Arc::new(ProgressQueue(sender)), receiver)
}

#[derive(Debug)]
struct ProgressQueue(mpsc::Sender<ProgressEvent>);

impl ProgressSink for ProgressQueue {
    fn progress(&self, event: ProgressEvent) {
        match event.audience {
            ProgressAudience::User => {
                if self.0.try_send(event).is_err() {
                    tracing::trace!("dropped a progress event because the client reads too slowly");
                }
            }
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
