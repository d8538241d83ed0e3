//! State that several replicas share (`[shared]`): what they require of it, and how long they act without news.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::problem::PolicyProblem;
use crate::quantity::unit::{OptionalQuantity, Time, Unit as _};

/// Shortest and longest `stale_after`: a heartbeat takes some milliseconds, and a revocation may take this long.
const STALE: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(60);
/// Longest `queue_wait`.
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(3600);

/// `[shared]`: what replicas (`--shared`) require of their shared state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SharedPolicy {
    /// The number of servers of NATS that keep each record: 1, 3 or 5. Default: 1.
    #[schemars(range(min = 1, max = 5))]
    pub replicas: usize,
    /// How long a replica acts without news from the shared state. Then it refuses calls and cancels those that run.
    /// Default: `2s`.
    #[serde(deserialize_with = "Time::read")]
    #[schemars(with = "OptionalQuantity<Duration, Time>")]
    pub stale_after: Duration,
    /// How long a call waits while another replica runs a call of the same serial queue. Default: `30s`.
    #[serde(deserialize_with = "Time::read")]
    #[schemars(with = "OptionalQuantity<Duration, Time>")]
    pub queue_wait: Duration,
    /// Whether a call with an idempotency key runs again if its tool is idempotent and the result of the first call is
    /// not known: its replica died, for example. Default: `false`.
    pub rerun_idempotent: bool,
}

impl Default for SharedPolicy {
    fn default() -> Self {
        Self {
            replicas: 1,
            stale_after: Duration::from_secs(2),
            queue_wait: Duration::from_secs(30),
            rerun_idempotent: false,
        }
    }
}

impl SharedPolicy {
    /// Checks the values.
    pub(crate) fn check(&self) -> Result<(), PolicyProblem> {
        let wrong = |key: &str, message: &str| Err(PolicyProblem::at_keys([key], message));
        if !matches!(self.replicas, 1 | 3 | 5) {
            let message = format!("`replicas` is {}: NATS keeps 1, 3 or 5 copies", self.replicas);
            return wrong("replicas", &message);
        }
        if !STALE.contains(&self.stale_after) {
            return wrong("stale_after", "`stale_after`: write a time between `500ms` and `60s`");
        }
        if self.queue_wait > MAX_QUEUE_WAIT {
            return wrong("queue_wait", "`queue_wait`: write a time up to `1h`");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SharedPolicy, String> {
        let parsed: SharedPolicy = toml::from_str(text).map_err(|error| error.to_string())?;
        parsed.check().map(|()| parsed).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_shared_table_is_checked() {
        assert_eq!(parse("").unwrap(), SharedPolicy::default());
        let full =
            parse("replicas = 3\nstale_after = '5s'\nqueue_wait = '1m'\nrerun_idempotent = true").unwrap();
        let times = (full.stale_after.as_secs(), full.queue_wait.as_secs());
        assert_eq!((full.replicas, times, full.rerun_idempotent), (3, (5, 60), true));
        for (text, part) in [
            ("replicas = 2", "1, 3 or 5"),
            ("replicas = 0", "1, 3 or 5"),
            ("stale_after = '100ms'", "between `500ms`"),
            ("stale_after = '61s'", "between `500ms`"),
            ("stale_after = 2", "a time as a string"),
            ("queue_wait = '61m'", "up to `1h`"),
            ("url = 'nats://h'", "unknown field"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
