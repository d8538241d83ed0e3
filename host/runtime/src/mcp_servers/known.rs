//! The tools that MCP servers listed last, for the checks of a policy. Starts no server.

use std::path::Path;

use toolbay_core::tool::tags::possible_tags;
use toolbay_mcp::client::{SavedTool, SavedTools};
use toolbay_policy::{KnownNames, KnownTool, Policy, PolicyFinding};

use super::saved_tools;

/// Adds the tools that the servers of a policy had when a host with this state directory last listed them, and returns the
/// findings about their names. Blocks on files.
pub(crate) fn add_saved_tools(
    state_dir: Option<&Path>,
    policy: &Policy,
    known: &mut KnownNames,
) -> Vec<PolicyFinding> {
    let saved = state_dir.map(|dir| saved_tools(dir, policy)).unwrap_or_default();
    saved.iter().for_each(|(server, saved)| add_server(known, server, saved));
    let listed = saved.values().flat_map(|saved| &saved.imported);
    policy.long_name_findings(listed.map(SavedTool::named))
}

/// Adds the tools that an MCP server listed last.
fn add_server(known: &mut KnownNames, server: &str, saved: &SavedTools) {
    known.servers.insert(server.to_owned(), saved.own_names.clone());
    for tool in &saved.imported {
        let known_tool = KnownTool {
            kind: "mcp",
            source: server.to_owned(),
            tags: possible_tags("mcp", &[]).map(str::to_owned).collect(),
            arguments: tool.input_schema.clone(),
        };
        known.add_tool(tool.named().name.to_owned(), known_tool);
    }
}
