//! The work budget of one document. Documents are untrusted: many operations may refer to one large part. Limits bound
//! each part, and this budget bounds their sum, in steps and in time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::Value;

/// The most steps for one document. A step is one part that is visited, or [`TEXT_STEP`] bytes of text. The largest
/// published documents take a few million.
const MAX_STEPS: u64 = 50_000_000;
/// The bytes of text in one step.
pub(crate) const TEXT_STEP: usize = 64;
/// The number of steps between two reads of the clock, a power of two.
const CLOCK_SHIFT: u32 = 10;

/// The remaining budget of a document.
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
    /// The same budget with a deadline.
    pub(crate) fn with_deadline(self, until: Instant) -> Self {
        Self { deadline: Some(until), ..self }
    }

    /// A small budget for tests.
    #[cfg(test)]
    pub(crate) fn most(most: u64) -> Self {
        Self { max_steps: most, ..Self::default() }
    }

    /// Spends steps.
    ///
    /// # Errors
    /// The budget or the time is used up.
    pub(crate) fn spend(&self, steps: usize) -> Result<(), String> {
        let steps = steps as u64;
        let before = self.steps_used.fetch_add(steps, Ordering::Relaxed);
        let after = before.saturating_add(steps);
        let way_out = "choose some operations with `include`";
        if after > self.max_steps {
            // The budget stays exhausted.
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

    /// Spends the steps of all parts and texts of a value.
    ///
    /// # Errors
    /// Like [`ParseBudget::spend`]. The function stops when the budget is used up.
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

    /// Spends the steps of an object without its values: its keys, and one step for each entry.
    ///
    /// # Errors
    /// Like [`ParseBudget::spend`].
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
    fn an_exhausted_budget_stays_exhausted() {
        let work = ParseBudget::most(10);
        assert_eq!(work.spend(10), Ok(()));
        assert!(work.spend(1).unwrap_err().contains("more than 10 steps"));
        assert!(work.spend(0).is_err() && work.clone().spend(0).is_err());
        let late = ParseBudget::default().with_deadline(Instant::now());
        assert!(late.spend(0).unwrap_err().contains("too long"));
        assert!(late.spend(0).unwrap_err().contains("steps"), "and says so again");
    }

    #[test]
    fn a_value_costs_one_step_for_each_part() {
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
