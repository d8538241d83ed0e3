//! The output rules of a tool, from the settings of the host, the plugin and the tool.

use toolbay_policy::output::{OutputSettings, Truncation};

use crate::tool::{ToolDef, ToolSource};

/// The output rules of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputRules {
    /// Whether results are marked as untrusted.
    pub untrusted: bool,
    /// The part of a long text that is kept.
    pub truncate: Truncation,
    /// Whether long runs of encoded data are removed from texts.
    pub strip_blobs: bool,
    /// Whether models may read the policy lines that would allow a refused operation.
    pub policy_hints: bool,
}

impl OutputRules {
    /// The rules for a tool. By default, a tool is untrusted if its traits say so or if it comes from an MCP server or
    /// an OpenAPI service.
    #[must_use]
    pub fn for_tool(settings: OutputSettings, tool: &ToolDef) -> Self {
        let is_foreign = match *tool.source {
            ToolSource::Builtin | ToolSource::Plugin { .. } => false,
            ToolSource::Mcp { .. } | ToolSource::OpenApi { .. } => true,
        };
        Self {
            untrusted: settings.untrusted.unwrap_or(is_foreign || tool.traits.untrusted_output),
            truncate: settings.truncate.unwrap_or_default(),
            strip_blobs: settings.strip_blobs.unwrap_or(false),
            policy_hints: settings.policy_hints.unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::fixture::native_def;

    #[test]
    fn the_most_specific_setting_applies_and_other_servers_are_untrusted() {
        let wide = OutputSettings {
            untrusted: Some(true),
            truncate: Some(Truncation::HeadTail),
            ..OutputSettings::default()
        };
        let narrow = OutputSettings { untrusted: Some(false), ..OutputSettings::default() };
        let mut tool = native_def("t");
        assert_eq!(
            OutputRules::for_tool(narrow.or(wide), &tool),
            OutputRules {
                untrusted: false,
                truncate: Truncation::HeadTail,
                strip_blobs: false,
                policy_hints: false
            }
        );
        assert!(!OutputRules::for_tool(OutputSettings::default(), &tool).untrusted);
        tool.traits.untrusted_output = true;
        assert!(
            OutputRules::for_tool(OutputSettings::default(), &tool).untrusted
                && !OutputRules::for_tool(narrow, &tool).untrusted
        );
        tool.traits.untrusted_output = false;
        tool.source = ToolSource::Mcp { server: "github".into(), version: None }.into();
        assert!(
            OutputRules::for_tool(OutputSettings::default(), &tool).untrusted
                && !OutputRules::for_tool(narrow, &tool).untrusted
        );
    }
}
