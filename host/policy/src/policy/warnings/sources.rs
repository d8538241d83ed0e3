//! What sections name in their sources: operations and tools that are not there, and content that differs from a pin.

use std::collections::BTreeSet;

use super::super::OpenApiService;
use super::{CheckInput, CheckReport, KnownService};
use crate::mcp_server::McpServer;
use crate::problem::{PolicyProblem, suggest_name};
use crate::wildcard::text_matches;

/// Adds a problem for each entry of a section that its source does not have.
pub(super) fn check_sources(input: &CheckInput<'_>, report: &mut CheckReport) {
    for (id, own) in &input.policy.plugins {
        let known = input.known.plugins.as_ref().and_then(|plugins| plugins.get(id.as_str()));
        if own.section.reuse > 1 && known.is_some_and(|plugin| plugin.ignores_reuse) {
            let message =
                "the plugin does not declare that an instance may run several calls, so each gets a new one";
            report.warn(["plugins", id.as_str(), "reuse"], message.to_owned(), "remove it".to_owned());
        }
        let found = known.and_then(|plugin| plugin.sha256.as_deref());
        check_pin(["plugins", id.as_str()], own.section.sha256.as_deref(), found, report);
    }
    for service in input.policy.openapi_services() {
        match input.known.services.get(service.name.as_str()) {
            Some(known) => check_service(service, known, report),
            None if names_operations(service) => {
                report.not_compared.insert(format!("openapi:{}", service.name));
            }
            None => {}
        }
    }
    for (name, why) in &input.known.broken_services {
        report.warn(["openapi", name, "document"], format!("the service has no tools: {why}"), None);
    }
    for server in input.policy.mcp_servers() {
        check_selection(server, report);
        match input.known.servers.get(server.name.as_str()) {
            Some(tools) => check_server(server, tools, report),
            None if names_tools(server) => {
                report.not_compared.insert(format!("mcp:{}", server.name));
            }
            None => {}
        }
    }
}

fn check_pin(table: [&str; 2], pinned: Option<&str>, found: Option<&str>, report: &mut CheckReport) {
    let (Some(pinned), Some(found)) = (pinned, found) else { return };
    if pinned != found {
        let message = format!("the content has another digest, `{found}`, and is not loaded");
        let help = "if you trust the new content, write its digest".to_owned();
        report.warn(table.into_iter().chain(["sha256"]), message, help);
    }
}

fn names_operations(service: &OpenApiService) -> bool {
    !(service.tools.is_empty() && service.include.is_empty() && service.exclude.is_empty())
}

fn names_tools(server: &McpServer) -> bool {
    !(server.tool_overrides.is_empty() && server.tools.is_none() && server.exclude.is_empty())
}

fn check_service(service: &OpenApiService, known: &KnownService, report: &mut CheckReport) {
    let name = service.name.as_str();
    check_pin(["openapi", name], service.sha256.as_deref(), known.sha256.as_deref(), report);
    for (key, entry) in &known.unmatched {
        let what = match *key {
            "secrets" => "security scheme",
            "variables" => "variable of a server",
            _ => "operation that fits",
        };
        let message = format!("`{entry}`: the document has no such {what}");
        // An operation that a mistyped line was to leave out must not become a tool.
        let help = (*key == "exclude")
            .then(|| "the service has no tools until each line of `exclude` matches one".to_owned());
        let problem = PolicyProblem { help, ..PolicyProblem::at_keys(["openapi", name, *key], message) };
        let is_table = matches!(*key, "secrets" | "variables");
        report.push(if is_table { problem.in_key(entry) } else { problem.in_text(entry) });
    }
    check_operations(name, known, report);
    for tool in service.tools.keys().filter(|tool| !known.tools.contains(tool.as_str())) {
        let message = format!("the service `{name}` has no tool `{tool}`");
        let help = suggest_name(tool.as_str(), known.tools.iter().map(String::as_str));
        report.warn(["openapi", name, "tools", tool.as_str()], message, help);
    }
}

/// Adds a problem for a service with operations that cannot be called, or without tools.
fn check_operations(name: &str, known: &KnownService, report: &mut CheckReport) {
    let message = match (known.unusable.as_slice(), known.excluded_count) {
        ([], Some(0)) if known.tools.is_empty() => {
            "the service has no tools: its document has no operations".to_owned()
        }
        ([], Some(_)) if known.tools.is_empty() => {
            "the service has no tools: `include` and `exclude` leave no operation".to_owned()
        }
        ([], _) => return,
        ([(operation, why)], _) => format!("one operation cannot be called, `{operation}`: {why}"),
        ([(operation, why), ..], _) => {
            format!("{} operations cannot be called, such as `{operation}`: {why}", known.unusable.len())
        }
    };
    let help = (!known.unusable.is_empty()).then(|| "`exclude` leaves operations out".to_owned());
    let problem = PolicyProblem::at_keys(["openapi", name], message).avoided_by(&["include", "exclude"]);
    report.push(PolicyProblem { help, ..problem });
}

/// Adds a problem for each part of a section that its own `tools` and `exclude` contradict.
fn check_selection(server: &McpServer, report: &mut CheckReport) {
    let name = server.name.as_str();
    let is_lost = |tool: &&str| !tool.contains('*') && !server.includes_tool(tool);
    let listed = server.tools.iter().flatten().map(String::as_str);
    for tool in listed.filter(is_lost) {
        let message = format!("`{tool}` is also in `exclude`, so it is not imported");
        report.push(PolicyProblem::at_keys(["mcp", name, "tools"], message).in_text(tool));
    }
    for tool in server.tool_overrides.keys().map(String::as_str).filter(is_lost) {
        let message = format!("`tools` and `exclude` leave the tool `{tool}` out, so this has no effect");
        report.push(PolicyProblem::at_keys(["mcp", name, "tool", tool], message));
    }
}

fn check_server(server: &McpServer, tools: &BTreeSet<String>, report: &mut CheckReport) {
    let name = server.name.as_str();
    for (key, list) in [("tools", server.tools.as_ref()), ("exclude", Some(&server.exclude))] {
        for pattern in list.into_iter().flatten() {
            if !tools.iter().any(|tool| text_matches(pattern, tool)) {
                let message = format!("`{pattern}`: the server has no such tool");
                let help = suggest_name(pattern, tools.iter().map(String::as_str));
                let problem = PolicyProblem::at_keys(["mcp", name, key], message).in_text(pattern);
                report.push(PolicyProblem { help, ..problem });
            }
        }
    }
    for tool in server.unknown_tools(|tool| tools.contains(tool)) {
        let message = format!("the MCP server `{name}` has no tool `{tool}`");
        let help = suggest_name(tool, tools.iter().map(String::as_str));
        report.warn(["mcp", name, "tool", tool], message, help);
    }
}
