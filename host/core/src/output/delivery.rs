//! How a tool's results are given out: as whose words, and cut in which way. Set for a host, a plugin or a tool.

use toolbay_policy::output::{Delivery, Truncation};

use crate::tool::{ToolDef, ToolSource};

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

impl Rules {
    /// What holds for a tool. Where nothing is set, a tool that says so is untrusted, and so is what comes from other
    /// servers.
    #[must_use]
    pub fn of(settings: Delivery, tool: &ToolDef) -> Self {
        let foreign = match *tool.source {
            ToolSource::Builtin | ToolSource::Plugin { .. } => false,
            ToolSource::Mcp { .. } | ToolSource::OpenApi { .. } => true,
        };
        Self {
            untrusted: settings.untrusted.unwrap_or(foreign || tool.traits.untrusted_output),
            truncate: settings.truncate.unwrap_or_default(),
            strip_blobs: settings.strip_blobs.unwrap_or(false),
            policy_hints: settings.policy_hints.unwrap_or(false),
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
            Rules::of(narrow.or(wide), &tool),
            Rules {
                untrusted: false,
                truncate: Truncation::HeadTail,
                strip_blobs: false,
                policy_hints: false
            }
        );
        assert!(!Rules::of(Delivery::default(), &tool).untrusted);
        tool.traits.untrusted_output = true;
        assert!(Rules::of(Delivery::default(), &tool).untrusted && !Rules::of(narrow, &tool).untrusted);
        tool.traits.untrusted_output = false;
        tool.source = ToolSource::Mcp { server: "github".into(), version: None }.into();
        assert!(Rules::of(Delivery::default(), &tool).untrusted && !Rules::of(narrow, &tool).untrusted);
    }
}
