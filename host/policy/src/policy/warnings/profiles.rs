//! Entries of a profile's lists that another list of the same profile leaves out.

use std::collections::BTreeSet;

use super::super::Profile;
use super::{CheckInput, CheckReport, KnownTool};
use crate::problem::PolicyProblem;

/// Adds a problem for each tool that a profile names and does not show.
pub(super) fn check_lists(input: &CheckInput<'_>, report: &mut CheckReport) {
    for profile in input.policy.profiles.values() {
        let name = &**profile.name();
        for tool in profile.tools.iter().flatten() {
            let known = input.known.tools.get(tool);
            if let Some(list) = known.and_then(|known| excluding_list(profile, tool, known)) {
                let message = format!("the profile does not show `{tool}`: its `{list}` leaves the tool out");
                report.push(PolicyProblem::at_keys(["profile", name, "tools"], message).in_text(tool));
            }
        }
        for (server, _) in profile.mcp_tools.iter().flatten() {
            if input.policy.mcp_server(server).is_some() && lacks(profile.mcp_servers.as_ref(), server) {
                let message = format!(
                    "the profile shows no tool of `{server}`: its `mcp_servers` leaves the server out"
                );
                report.warn(["profile", name, "mcp_tools", server], message, None);
            }
        }
    }
}

/// The list of a profile that leaves out a tool.
fn excluding_list(profile: &Profile, name: &str, tool: &KnownTool) -> Option<&'static str> {
    match tool.kind {
        _ if profile.exclude_tools.contains(name) => Some("exclude_tools"),
        "plugin" if lacks(profile.plugins.as_ref(), &tool.source) => Some("plugins"),
        "mcp" if lacks(profile.mcp_servers.as_ref(), &tool.source) => Some("mcp_servers"),
        _ => None,
    }
}

/// Whether a list exists and lacks a name.
fn lacks(list: Option<&BTreeSet<String>>, name: &str) -> bool {
    list.is_some_and(|list| !list.contains(name))
}
