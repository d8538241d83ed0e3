//! How results are delivered, as the policy sets it for the host, a plugin or a tool (`[results]`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which part of a long text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Truncation {
    /// The beginning.
    #[default]
    Head,
    /// The beginning and the end, half of the budget each.
    HeadTail,
}

/// What happens to a result that does not match the output schema of its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchemaMismatch {
    /// The result is delivered with a line that says so.
    #[default]
    Mark,
    /// The call fails.
    Error,
}

/// The output settings of one level. `None` leaves the decision to the next wider level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSettings {
    /// Whether results contain third-party text and are marked as untrusted.
    pub untrusted: Option<bool>,
    /// Which part of a long text is kept.
    pub truncate: Option<Truncation>,
    /// Whether long runs of encoded bytes are removed from texts.
    pub strip_blobs: Option<bool>,
    /// Whether models see the policy lines that would allow a refused use ([`crate::refusal`]).
    pub policy_hints: Option<bool>,
    /// What happens to a result that does not match the output schema of its tool.
    pub schema_mismatch: Option<SchemaMismatch>,
}

impl OutputSettings {
    /// Fills unset settings from a wider level.
    #[must_use]
    pub fn or(self, wider: Self) -> Self {
        Self {
            untrusted: self.untrusted.or(wider.untrusted),
            truncate: self.truncate.or(wider.truncate),
            strip_blobs: self.strip_blobs.or(wider.strip_blobs),
            policy_hints: self.policy_hints.or(wider.policy_hints),
            schema_mismatch: self.schema_mismatch.or(wider.schema_mismatch),
        }
    }
}
