//! What one session may use up (`[session]`).

use serde::Deserialize;

use crate::limits;
use crate::quantity;

/// Most bytes of results that a session may be told to keep.
pub const MAX_CACHE_BYTES: u64 = 1 << 30;

/// What one session may use up (`[session]`). What is absent is not bounded. The policy has such limits for all
/// sessions; a session may have its own beside them, and the stricter holds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionLimits {
    /// Calls in all.
    pub max_calls: Option<u64>,
    /// Calls of one tool with the same arguments.
    pub max_identical_calls: Option<u64>,
    /// US dollars that tools say their calls cost. Once so much is spent, no further call begins.
    pub max_cost_usd: Option<f64>,
    /// Calls in one turn.
    pub max_calls_per_turn: Option<u64>,
    /// Calls of one tool with the same arguments in one turn.
    pub max_identical_calls_per_turn: Option<u64>,
    /// Results that are kept for tools with a `cache`.
    pub cache_entries: usize,
    /// Bytes of them, keys included.
    #[serde(deserialize_with = "limits::read_bytes")]
    pub cache_bytes: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            max_calls: None,
            max_identical_calls: None,
            max_cost_usd: None,
            max_calls_per_turn: None,
            max_identical_calls_per_turn: None,
            // A conversation comes back to a few dozen files; a result has some kilobytes.
            cache_entries: 256,
            cache_bytes: 4 << 20,
        }
    }
}

impl SessionLimits {
    /// Checks the values.
    ///
    /// # Errors
    /// A zero that would stop every call, dollars that are no amount, or more memory than [`MAX_CACHE_BYTES`].
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("max_calls", self.max_calls),
            ("max_identical_calls", self.max_identical_calls),
            ("max_calls_per_turn", self.max_calls_per_turn),
            ("max_identical_calls_per_turn", self.max_identical_calls_per_turn),
        ];
        if let Some((key, _)) = counts.into_iter().find(|(_, most)| *most == Some(0)) {
            return Err(format!("`{key}` of zero would stop every call"));
        }
        if self.max_cost_usd.is_some_and(|most| !most.is_finite() || most <= 0.0) {
            return Err("`max_cost_usd` is an amount above zero".to_owned());
        }
        if self.cache_bytes > MAX_CACHE_BYTES {
            return Err(format!("`cache_bytes` can be at most {}", quantity::show_bytes(MAX_CACHE_BYTES)));
        }
        Ok(())
    }
}
