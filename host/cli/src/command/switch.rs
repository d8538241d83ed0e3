//! `toolbay enable` and `toolbay disable`.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use serde::Serialize;
use serde_json::json;
use toolbay::{FileSwitches, Host};
use toolbay_core::registry::{Catalog, Registry, TagSelector, UnknownNameError};
use toolbay_policy::similar::{did_you_mean, similar_names};
use toolbay_policy::text::one_line;

use crate::command::args::{SetupArgs, SwitchArgs};
use crate::command::control;
use crate::command::setup::{self, HostPurpose, ReportLevel};
use crate::{CommandStatus, output};

/// Most characters of a name in an error.
const MAX_NAME: usize = 100;

/// Disables tools.
pub(crate) async fn disable(
    args: &SetupArgs,
    which: &SwitchArgs,
    reason: &str,
    json: bool,
) -> Result<CommandStatus> {
    change(args, json, |host| {
        let registry = host.registry();
        for tool in &which.tools {
            registry.disable(tool, reason)?;
        }
        for namespace in &which.namespace {
            registry.disable_namespace(namespace, reason)?;
        }
        if !which.tag.is_empty() {
            registry.disable_tagged(tags(which), reason)?;
        }
        Ok(())
    })
    .await
}

/// Enables tools.
pub(crate) async fn enable(args: &SetupArgs, which: &SwitchArgs, json: bool) -> Result<CommandStatus> {
    change(args, json, |host| {
        let registry = host.registry();
        for namespace in &which.namespace {
            registry.enable_namespace(namespace)?;
        }
        if !which.tag.is_empty() {
            registry.enable_tagged(tags(which))?;
        }
        for tool in &which.tools {
            if let Some(reason) = registry.enable(tool)? {
                output::print_note(&format!("`{tool}` is still disabled with its namespace: {reason}"));
            }
        }
        Ok(())
    })
    .await
}

fn tags(which: &SwitchArgs) -> TagSelector<'_> {
    if which.all_tags { TagSelector::All(&which.tag) } else { TagSelector::Any(&which.tag) }
}

/// Changes the switches. If a name is unknown, nothing changes.
async fn change(
    args: &SetupArgs,
    json: bool,
    edit: impl FnOnce(&Host) -> Result<(), UnknownNameError>,
) -> Result<CommandStatus> {
    let host = setup::load_host(args, ReportLevel::Problems, HostPurpose::Inspect).await?;
    let (before, after) = setup::switches(args)?
        .update(|switches| {
            // Another process may have changed the switches meanwhile.
            host.registry().set_switches(switches);
            let before = host.registry().snapshot();
            edit(&host).map_err(|unknown| SwitchError(unknown_name(&unknown, &before)))?;
            let after = host.registry().snapshot();
            *switches = after.settings().switches();
            Ok((before, after))
        })
        .map_err(|SwitchError(text)| anyhow!(text))?;
    let changes = changed_tools(&before, &after);
    if !changes.is_empty() {
        control::reload_servers(args).await?;
    }
    if json {
        output::print_json(&json!({ "changed": changes }))?;
    } else {
        report_changes(&changes);
    }
    Ok(CommandStatus::Success)
}

/// Disables a tool of a running server with a reason, or enables it without one.
pub(crate) fn switch_tool(
    switches: &FileSwitches,
    registry: &Registry,
    tool: &str,
    disabled: Option<&str>,
) -> Result<(), String> {
    let edited = switches.update(|switches| {
        // Another process may have changed the switches meanwhile.
        registry.set_switches(switches);
        let changed = match disabled {
            Some(reason) => registry.disable(tool, reason),
            None => registry.enable(tool).map(drop),
        };
        changed.map_err(|unknown| SwitchError(unknown_name(&unknown, &registry.snapshot())))?;
        *switches = registry.snapshot().settings().switches();
        Ok(())
    });
    edited.map_err(|SwitchError(text)| text)
}

struct SwitchError(String);

impl From<String> for SwitchError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// The error for an unknown name, with similar names.
pub(crate) fn unknown_name(unknown: &UnknownNameError, catalog: &Catalog) -> String {
    let known: BTreeSet<&str> = match unknown.what {
        "namespace" => catalog.namespaces(),
        "tag" => catalog.tools().flat_map(|entry| entry.tags()).map(|tag| &**tag).collect(),
        _ => catalog.tools().map(|entry| entry.def.name.as_str()).collect(),
    };
    let near = similar_names(&unknown.name, known);
    let said = match unknown.what {
        "tool" => format!("there is no tool `{}`", one_line(&unknown.name, MAX_NAME)),
        _ => unknown.to_string(),
    };
    match did_you_mean(&near) {
        Some(suggestion) => format!("{said}; {suggestion}"),
        None => format!("{said}; see `toolbay status --tools`"),
    }
}

/// A tool whose state changed.
#[derive(Debug, Serialize)]
struct ChangedTool {
    tool: String,
    /// The reason of a disabled tool; `None`: it is enabled.
    disabled_reason: Option<Arc<str>>,
}

/// The tools whose state changed.
fn changed_tools(before: &Catalog, after: &Catalog) -> Vec<ChangedTool> {
    let off = |catalog: &Catalog, name: &str| {
        catalog.get(name).and_then(|entry| entry.availability.disabled.clone())
    };
    let changed = after.tools().filter_map(|entry| {
        let name = entry.def.name.as_str();
        let disabled_reason = off(after, name);
        (off(before, name) != disabled_reason).then(|| ChangedTool { tool: name.to_owned(), disabled_reason })
    });
    changed.collect()
}

fn report_changes(changes: &[ChangedTool]) {
    for ChangedTool { tool, disabled_reason } in changes {
        match disabled_reason {
            Some(reason) => output::print_note(&format!("disabled `{tool}`: {reason}")),
            None => output::print_note(&format!("enabled `{tool}`")),
        }
    }
    if changes.is_empty() {
        output::print_note("nothing changed");
    }
}
