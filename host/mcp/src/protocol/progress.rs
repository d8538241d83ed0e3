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

/// The total of percentages.
const TOTAL: f64 = 100.0;

/// Turns percentages as a guest gives them into numbers that always grow, as MCP demands, and never past their total:
/// `percent` of 100 where there is one, a count where there is none.
#[derive(Debug, Default)]
pub(crate) struct ProgressScale {
    last: f64,
    percent: bool,
}

impl ProgressScale {
    /// Returns `progress` and `total` of the next event; `None`: no number is left for it, since all is done.
    pub(crate) fn next(&mut self, percent: Option<f32>) -> Option<(f64, Option<f64>)> {
        let percent = percent.map(f64::from).filter(|p| p.is_finite()).map(|p| p.clamp(0.0, TOTAL));
        // What was counted past the total cannot become a percentage any more.
        self.percent |= percent.is_some() && self.last < TOTAL;
        if !self.percent {
            self.last += 1.0;
            return Some((self.last, None));
        }
        let next = match percent {
            Some(percent) if percent > self.last => percent,
            // Half of what is left, where that is less.
            _ => self.last + NUDGE.min((TOTAL - self.last) / 2.0),
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
    fn the_number_always_grows() {
        for events in [
            vec![None, None, Some(50.0), Some(20.0), None, Some(100.0), Some(100.0)],
            vec![Some(f32::NAN), Some(-1.0), Some(1e9), None],
            vec![Some(0.0), Some(0.0), Some(100.0)],
            [vec![Some(99.999)], vec![None; 100]].concat(),
            [vec![None; 150], vec![Some(50.0), Some(100.0), None]].concat(),
        ] {
            let mut meter = ProgressScale::default();
            let all: Vec<_> = events.iter().filter_map(|percent| meter.next(*percent)).collect();
            assert!(all.is_sorted_by(|one, next| one.0 < next.0), "{all:?}");
            assert!(
                all.iter().all(|(progress, total)| total.is_none_or(|total| *progress <= total)),
                "{all:?}"
            );
            // Once it is said, the total stays.
            assert!(all.iter().skip_while(|one| one.1.is_none()).all(|one| one.1 == Some(TOTAL)), "{all:?}");
        }
        let mut meter = ProgressScale::default();
        assert_eq!(meter.next(None), Some((1.0, None)));
        assert_eq!(meter.next(Some(50.0)), Some((50.0, Some(100.0))));
        assert_eq!(meter.next(Some(100.0)), Some((100.0, Some(100.0))));
        assert_eq!(
            (meter.next(None), meter.next(Some(100.0)), meter.next(Some(f32::MAX))),
            (None, None, None)
        );
    }
}
