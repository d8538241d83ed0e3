//! How a tool's results are given out: as whose words, and cut in which way. Set for a host, a plugin or a tool.

use serde::{Deserialize, Serialize};

use crate::budget::Truncation;
use crate::tool::{ToolDef, ToolSource};

/// What one level of settings says; `None`: nothing, the next wider level decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Delivery {
    /// Whether results hold text that others wrote, and are marked as such ([`crate::untrusted`]).
    pub untrusted: Option<bool>,
    /// Which part of a long text stays.
    pub truncate: Option<Truncation>,
    /// Whether long runs of encoded bytes are taken out of texts ([`crate::blobs`]).
    pub strip_blobs: Option<bool>,
    /// Whether models read the lines of the policy that would allow what was refused ([`crate::refusal`]).
    pub policy_hints: Option<bool>,
}

/// What holds for a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Results are marked as text that others wrote.
    pub untrusted: bool,
    /// Which part of a long text stays.
    pub truncate: Truncation,
    /// Long runs of encoded bytes are taken out of texts.
    pub strip_blobs: bool,
    /// Models read the lines of the policy that would allow what was refused.
    pub policy_hints: bool,
}

impl Delivery {
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

    /// What holds for a tool. Where nothing is set, a tool that says so is untrusted, and so is what comes from other
    /// servers.
    #[must_use]
    pub fn rules(self, tool: &ToolDef) -> Rules {
        let foreign = match *tool.source {
            ToolSource::Builtin | ToolSource::Plugin { .. } => false,
            ToolSource::Mcp { .. } | ToolSource::OpenApi { .. } => true,
        };
        Rules {
            untrusted: self.untrusted.unwrap_or(foreign || tool.traits.untrusted_output),
            truncate: self.truncate.unwrap_or_default(),
            strip_blobs: self.strip_blobs.unwrap_or(false),
            policy_hints: self.policy_hints.unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::native_tool;

    #[test]
    fn the_narrower_level_wins_and_other_servers_are_not_trusted() {
        let wide =
            Delivery { untrusted: Some(true), truncate: Some(Truncation::HeadTail), ..Delivery::default() };
        let narrow = Delivery { untrusted: Some(false), ..Delivery::default() };
        let mut tool = (*native_tool("t").def).clone();
        assert_eq!(
            narrow.or(wide).rules(&tool),
            Rules {
                untrusted: false,
                truncate: Truncation::HeadTail,
                strip_blobs: false,
                policy_hints: false
            }
        );
        assert!(!Delivery::default().rules(&tool).untrusted);
        tool.traits.untrusted_output = true;
        assert!(Delivery::default().rules(&tool).untrusted && !narrow.rules(&tool).untrusted);
        tool.traits.untrusted_output = false;
        tool.source = ToolSource::Mcp { server: "github".into(), version: None }.into();
        assert!(Delivery::default().rules(&tool).untrusted && !narrow.rules(&tool).untrusted);
    }
}
