//! Progress of a running call, on its way to the client.
//!
//! Only what the guest addressed to the person goes out. The queue is short and drops what does not fit: a client
//! that reads slowly must not slow the tool down, and the newest percentages matter more than all of them.

use std::sync::Arc;

use tokio::sync::mpsc;
use toolbay_core::call::{Audience, Progress, ProgressSink};

/// Events that may wait for a slow client.
const QUEUE: usize = 32;
/// How far the number moves for an event that brings no higher percentage.
const NUDGE: f64 = 0.001;

/// A sink for a call, and the events that came through it.
pub(crate) fn channel() -> (Arc<dyn ProgressSink>, mpsc::Receiver<Progress>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Arc::new(Queue(sender)), receiver)
}

#[derive(Debug)]
struct Queue(mpsc::Sender<Progress>);

impl ProgressSink for Queue {
    fn progress(&self, event: Progress) {
        match event.audience {
            Audience::User => {
                if self.0.try_send(event).is_err() {
                    tracing::trace!("a progress event was dropped: the client reads too slowly");
                }
            }
            Audience::Internal | Audience::Dashboard => {}
        }
    }
}

/// Turns percentages as a guest gives them into numbers that always grow, as MCP demands: `percent` of 100 where
/// there is one, a count where there is none.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    last: f64,
    percent: bool,
}

impl Meter {
    /// Returns `progress` and `total` of the next event.
    pub(crate) fn next(&mut self, percent: Option<f32>) -> (f64, Option<f64>) {
        let percent = percent.map(f64::from).filter(|p| (0.0..=100.0).contains(p));
        self.percent |= percent.is_some();
        self.last = match percent {
            Some(percent) if percent > self.last => percent,
            _ if self.percent => self.last + NUDGE,
            _ => self.last + 1.0,
        };
        (self.last, (self.percent && self.last < 101.0).then_some(100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_always_grows() {
        for events in [
            vec![None, None, Some(50.0), Some(20.0), None, Some(100.0), Some(100.0)],
            vec![Some(f32::NAN), Some(-1.0), Some(1e9), None],
            vec![Some(0.0), Some(0.0), Some(100.0)],
        ] {
            let mut meter = Meter::default();
            let numbers: Vec<f64> = events.iter().map(|percent| meter.next(*percent).0).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        }
        let mut meter = Meter::default();
        assert_eq!(meter.next(None), (1.0, None));
        assert_eq!(meter.next(Some(50.0)), (50.0, Some(100.0)));
    }
}
