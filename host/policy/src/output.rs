//! How results are given out, as the policy sets it for the host, a plugin or a tool (`[results]`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which part of a long text stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Truncation {
    /// The beginning.
    #[default]
    Head,
    /// The beginning and the end, half of the room each.
    HeadTail,
}

/// What one level of settings says; `None`: nothing, the next wider level decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSettings {
    /// Whether results hold text that others wrote, and are marked as such.
    pub untrusted: Option<bool>,
    /// Which part of a long text stays.
    pub truncate: Option<Truncation>,
    /// Whether long runs of encoded bytes are taken out of texts.
    pub strip_blobs: Option<bool>,
    /// Whether models read the lines of the policy that would allow what was refused ([`crate::refusal`]).
    pub policy_hints: Option<bool>,
}

impl OutputSettings {
    /// These settings, and those of a wider level where there are none.
    #[must_use]
    pub fn or(self, wider: Self) -> Self {
        Self {
            untrusted: self.untrusted.or(wider.untrusted),
            truncate: self.truncate.or(wider.truncate),
            strip_blobs: self.strip_blobs.or(wider.strip_blobs),
            policy_hints: self.policy_hints.or(wider.policy_hints),
        }
    }
}
