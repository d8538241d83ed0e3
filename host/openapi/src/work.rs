//! How much is done for one document. It is written by somebody else, who may have one large part meant by many others:
//! what each part costs by itself is bounded, and what all of them cost together is bounded here, and in time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::Value;

/// Most steps for one document: each is a part that is looked at, or [`TEXT_STEP`] bytes of a text. The largest that are
/// published take a few millions.
const MAX_STEPS: u64 = 50_000_000;
/// Bytes of text that are one step.
pub(crate) const TEXT_STEP: usize = 64;
/// The clock is looked at once in so many steps, as a power of two.
const CLOCK: u32 = 10;

/// What is left to be done for a document.
#[derive(Debug)]
pub(crate) struct Work {
    done: AtomicU64,
    most: u64,
    until: Option<Instant>,
}

impl Default for Work {
    fn default() -> Self {
        Self { done: AtomicU64::new(0), most: MAX_STEPS, until: None }
    }
}

impl Clone for Work {
    fn clone(&self) -> Self {
        Self { done: AtomicU64::new(self.done.load(Ordering::Relaxed)), ..*self }
    }
}

impl Work {
    /// The same, which has to be done by a time.
    pub(crate) fn until(self, until: Instant) -> Self {
        Self { until: Some(until), ..self }
    }

    /// With fewer steps than anybody needs.
    #[cfg(test)]
    pub(crate) fn most(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// Takes steps.
    ///
    /// # Errors
    /// There are none left, or no time.
    pub(crate) fn spend(&self, steps: usize) -> Result<(), String> {
        let steps = steps as u64;
        let before = self.done.fetch_add(steps, Ordering::Relaxed);
        let after = before.saturating_add(steps);
        let way_out = "choose some operations with `include`";
        if after > self.most {
            // It stays over.
            self.done.store(self.most.saturating_add(1), Ordering::Relaxed);
            return Err(format!("the document takes more than {} steps to read: {way_out}", self.most));
        }
        let looks = steps == 0 || before >> CLOCK != after >> CLOCK;
        if looks && self.until.is_some_and(|until| Instant::now() >= until) {
            self.done.store(self.most.saturating_add(1), Ordering::Relaxed);
            return Err(format!("the document takes too long to read: {way_out}"));
        }
        Ok(())
    }

    /// Takes the steps of all parts of a value and all texts in it.
    ///
    /// # Errors
    /// As [`Work::spend`]; no more is gone through than there are steps.
    pub(crate) fn weigh(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.spend(1),
            Value::String(text) => self.spend(1 + text.len() / TEXT_STEP),
            Value::Array(items) => {
                self.spend(1)?;
                items.iter().try_for_each(|item| self.weigh(item))
            }
            Value::Object(map) => {
                self.spend(1)?;
                map.iter().try_for_each(|(key, value)| {
                    self.spend(key.len() / TEXT_STEP)?;
                    self.weigh(value)
                })
            }
        }
    }

    /// Takes the steps of what stands in an object itself: its texts, and one for each entry.
    ///
    /// # Errors
    /// As [`Work::spend`].
    pub(crate) fn skim(&self, map: &serde_json::Map<String, Value>) -> Result<(), String> {
        let texts = map.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
        self.spend(1 + map.len() + texts.sum::<usize>() / TEXT_STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_over_stays_over() {
        let work = Work::most(10);
        assert_eq!(work.spend(10), Ok(()));
        assert!(work.spend(1).unwrap_err().contains("more than 10 steps"));
        assert!(work.spend(0).is_err() && work.clone().spend(0).is_err());
        let late = Work::default().until(Instant::now());
        assert!(late.spend(0).unwrap_err().contains("too long"));
        assert!(late.spend(0).unwrap_err().contains("steps"), "and says so again");
    }

    #[test]
    fn a_value_weighs_what_is_in_it() {
        let weigh = |value: &Value| {
            let work = Work::default();
            work.weigh(value).unwrap();
            work.done.load(Ordering::Relaxed)
        };
        assert_eq!(weigh(&json!(7)), 1);
        assert_eq!(weigh(&json!({"a": [1, 2], "b": "x".repeat(640)})), 1 + 3 + 11);
        let work = Work::most(100);
        assert!(work.weigh(&json!(vec![0; 1000])).is_err());
        assert!(work.done.load(Ordering::Relaxed) <= 101, "no more is gone through");
    }
}
