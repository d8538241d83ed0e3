//! Names of tools that some client refuses. Clients put their own prefix before a name, and model APIs refuse names of more
//! than 64 characters; [`NameBudget`] leaves room for the prefix.

use super::Policy;
use super::check::{PolicyFinding, Severity};
use crate::excerpt::one_line;
use crate::permission::SourceLabel;
use crate::problem::PolicyProblem;
use crate::serve::NameBudget;

/// Most warnings of one policy with a line each.
const MAX_WARNINGS: usize = 20;
/// Longest name that a warning repeats, in characters.
const MAX_SHOWN: usize = 256;

/// A tool with its names.
#[derive(Debug, Clone, Copy)]
pub struct NamedTool<'a> {
    /// The qualified name.
    pub name: &'a str,
    /// The name that its source uses.
    pub own_name: &'a str,
    /// Its source.
    pub source: SourceLabel<'a>,
}

impl NamedTool<'_> {
    /// The table of its source in the policy.
    fn table(&self) -> Option<[&str; 2]> {
        match self.source.kind {
            "mcp" => Some(["mcp", self.source.name]),
            "openapi" => Some(["openapi", self.source.name]),
            "plugin" => Some(["plugins", self.source.name]),
            _ => None,
        }
    }

    /// What the operator can write for a shorter name.
    fn advice(&self) -> String {
        let SourceLabel { kind, name } = self.source;
        let own = one_line(self.own_name, MAX_SHOWN);
        match kind {
            "mcp" => format!("; for a shorter one, write `name` in [mcp.{name}.tool.{own:?}]"),
            "openapi" => format!("; for a shorter one, write `name` in [openapi.{name}.tools.{own}]"),
            "plugin" => {
                format!("; for a shorter one, shorten the plugin's id `{name}`, the name of its file")
            }
            _ => String::new(),
        }
    }
}

impl Policy {
    /// What is wrong with the length of a tool's name. `None` if it is within `[serve] name_budget`.
    #[must_use]
    pub fn long_name_warning(&self, tool: NamedTool<'_>) -> Option<String> {
        let NameBudget(budget) = self.serve().name_budget;
        let length = tool.name.chars().count();
        (length > budget).then(|| {
            let name = one_line(tool.name, MAX_SHOWN);
            format!(
                "the name `{name}` has {length} characters, and some clients refuse more than {budget} besides their own \
                 prefix{}",
                tool.advice()
            )
        })
    }

    /// The warnings about the lengths of names, at the tables of their sources.
    #[must_use]
    pub fn long_name_findings<'a>(
        &self,
        tools: impl IntoIterator<Item = NamedTool<'a>>,
    ) -> Vec<PolicyFinding> {
        let warnings = tools.into_iter().filter_map(|tool| {
            let text = self.long_name_warning(tool)?;
            Some(PolicyProblem::at_keys(tool.table().into_iter().flatten(), text))
        });
        self.source.findings(Severity::Warning, warnings.take(MAX_WARNINGS).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn policy(text: &str) -> Policy {
        Policy::parse(&format!("version = 1\n{text}"), Path::new("/"), None).unwrap()
    }

    #[test]
    fn a_long_name_is_warned_about_with_the_key_that_shortens_it() {
        let server = "[mcp.s]\ncommand = [\"/bin/s\"]\n";
        let long = format!("mcp__s__{}", "x".repeat(43));
        let tool =
            |kind, name| NamedTool { name: &long, own_name: "list/all", source: SourceLabel { kind, name } };
        for (kind, name, part) in [
            ("mcp", "s", "[mcp.s.tool.\"list/all\"]"),
            ("openapi", "s", "[openapi.s.tools.list/all]"),
            ("plugin", "s", "the plugin's id `s`"),
            ("builtin", "", "51 characters"),
        ] {
            let text = policy(server).long_name_warning(tool(kind, name)).unwrap();
            assert!(text.contains(part) && text.contains("more than 50"), "{text}");
        }
        let wide = policy(&format!("[serve]\nname_budget = 51\n{server}"));
        assert_eq!(wide.long_name_warning(tool("mcp", "s")), None);
        let names: Vec<String> = (0..30).map(|n| format!("{long}_{n}")).collect();
        let tools = names.iter().map(|name| NamedTool { name, ..tool("mcp", "s") });
        let found = policy(server).long_name_findings(tools);
        assert_eq!((found.len(), found[0].line), (MAX_WARNINGS, 2));
    }
}
