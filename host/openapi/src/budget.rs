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
/// The number of steps between two reads of the clock, a power of two.
const CLOCK_SHIFT: u32 = 10;

/// What is left to be done for a document.
#[derive(Debug)]
pub(crate) struct ParseBudget {
    steps_used: AtomicU64,
    max_steps: u64,
    deadline: Option<Instant>,
}

impl Default for ParseBudget {
    fn default() -> Self {
        Self { steps_used: AtomicU64::new(0), max_steps: MAX_STEPS, deadline: None }
    }
}

impl Clone for ParseBudget {
    fn clone(&self) -> Self {
        Self { steps_used: AtomicU64::new(self.steps_used.load(Ordering::Relaxed)), ..*self }
    }
}

impl ParseBudget {
    /// The same, which has to be done by a time.
    pub(crate) fn with_deadline(self, until: Instant) -> Self {
        Self { deadline: Some(until), ..self }
    }

    /// With fewer steps than anybody needs.
    #[cfg(test)]
    pub(crate) fn most(most: u64) -> Self {
        Self { max_steps: most, ..Self::default() }
    }

    /// Takes steps.
    ///
    /// # Errors
    /// There are none left, or no time.
    pub(crate) fn spend(&self, steps: usize) -> Result<(), String> {
        let steps = steps as u64;
        let before = self.steps_used.fetch_add(steps, Ordering::Relaxed);
        let after = before.saturating_add(steps);
        let way_out = "choose some operations with `include`";
        if after > self.max_steps {
            // It stays over.
            self.steps_used.store(self.max_steps.saturating_add(1), Ordering::Relaxed);
            return Err(format!("the document takes more than {} steps to read: {way_out}", self.max_steps));
        }
        let looks = steps == 0 || before >> CLOCK_SHIFT != after >> CLOCK_SHIFT;
        if looks && self.deadline.is_some_and(|until| Instant::now() >= until) {
            self.steps_used.store(self.max_steps.saturating_add(1), Ordering::Relaxed);
            return Err(format!("the document takes too long to read: {way_out}"));
        }
        Ok(())
    }

    /// Takes the steps of all parts of a value and all texts in it.
    ///
    /// # Errors
    /// As [`Work::spend`]; no more is gone through than there are steps.
    pub(crate) fn spend_value(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.spend(1),
            Value::String(text) => self.spend(1 + text.len() / TEXT_STEP),
            Value::Array(items) => {
                self.spend(1)?;
                items.iter().try_for_each(|item| self.spend_value(item))
            }
            Value::Object(map) => {
                self.spend(1)?;
                map.iter().try_for_each(|(key, value)| {
                    self.spend(key.len() / TEXT_STEP)?;
                    self.spend_value(value)
                })
            }
        }
    }

    /// Takes the steps of what stands in an object itself: its texts, and one for each entry.
    ///
    /// # Errors
    /// As [`Work::spend`].
    pub(crate) fn spend_entries(&self, map: &serde_json::Map<String, Value>) -> Result<(), String> {
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
        let work = ParseBudget::most(10);
        assert_eq!(work.spend(10), Ok(()));
        assert!(work.spend(1).unwrap_err().contains("more than 10 steps"));
        assert!(work.spend(0).is_err() && work.clone().spend(0).is_err());
        let late = ParseBudget::default().with_deadline(Instant::now());
        assert!(late.spend(0).unwrap_err().contains("too long"));
        assert!(late.spend(0).unwrap_err().contains("steps"), "and says so again");
    }

    #[test]
    fn a_value_weighs_what_is_in_it() {
        let weigh = |value: &Value| {
            let work = ParseBudget::default();
            work.spend_value(value).unwrap();
            work.steps_used.load(Ordering::Relaxed)
        };
        assert_eq!(weigh(&json!(7)), 1);
        assert_eq!(weigh(&json!({"a": [1, 2], "b": "x".repeat(640)})), 1 + 3 + 11);
        let work = ParseBudget::most(100);
        assert!(work.spend_value(&json!(vec![0; 1000])).is_err());
        assert!(work.steps_used.load(Ordering::Relaxed) <= 101, "no more is gone through");
    }
}
