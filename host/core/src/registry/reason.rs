//! Reasons why a tool is disabled or unavailable.

use std::sync::Arc;

use toolbay_policy::excerpt::one_line;

/// Longest stored reason, in characters.
pub const MAX_REASON: usize = 500;
/// The reason if none is given.
const NO_REASON: &str = "no reason was given";

/// Normalizes a reason: one line, at most [`MAX_REASON`] characters, never empty.
pub(super) fn normalize_reason(text: &str) -> Arc<str> {
    match text.trim() {
        "" => NO_REASON.into(),
        text => one_line(text, MAX_REASON).into(),
    }
}
