//! `toolbay enable` and `toolbay disable`.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Error, Result, anyhow};
use serde::Serialize;
use serde_json::json;
use toolbay::{FileSwitches, Host};
use toolbay_core::registry::{Catalog, Registry, TagSelector, UnknownNameError};
use toolbay_policy::name::NAME_SEPARATOR;

use crate::args::SwitchArgs;
use crate::output::findings::FileFindings;
use crate::output::{self, CommandError, CommandStatus, Printer};
use crate::setup::servers::{self, ServerConnections};
use crate::setup::{self, HostPurpose, ReportLevel, SetupArgs, running_servers};

/// Disables tools.
pub(crate) async fn disable(args: &SetupArgs, selection: &SwitchArgs, reason: &str) -> Result<CommandStatus> {
    let host = load_for_disable(args, selection).await?;
    change(args, &host, selection, |registry| {
        for tool in &selection.tools {
            registry.disable(tool, reason)?;
        }
        for namespace in &selection.namespace {
            registry.disable_namespace(namespace, reason)?;
        }
        if !selection.tag.is_empty() {
            registry.disable_tagged(tags(selection), reason)?;
        }
        Ok(())
    })
    .await
}

/// Enables tools.
pub(crate) async fn enable(args: &SetupArgs, selection: &SwitchArgs) -> Result<CommandStatus> {
    let host = setup::load_host(args, ReportLevel::Problems, HostPurpose::Inspect).await?;
    change(args, &host, selection, |registry| {
        for namespace in &selection.namespace {
            registry.enable_namespace(namespace)?;
        }
        if !selection.tag.is_empty() {
            registry.enable_tagged(tags(selection))?;
        }
        for tool in &selection.tools {
            if let Some(reason) = registry.enable(tool)? {
                args.printer.note(&format!("`{tool}` is still disabled with its namespace: {reason}"));
            }
        }
        Ok(())
    })
    .await
}

/// Loads the tools to disable. With an invalid policy, these are the tools of plugins: an operator who must stop one cannot
/// correct a policy first. Tags depend on the grants of the policy.
async fn load_for_disable(args: &SetupArgs, selection: &SwitchArgs) -> Result<Host> {
    let policy = setup::policy(args).or_else(|error| {
        if !selection.tag.is_empty() {
            return Err(error);
        }
        let invalid = error.downcast::<FileFindings>()?;
        args.printer.warning(&format!(
            "only the tools of plugins are known, because the policy is invalid: {invalid}"
        ));
        setup::plugin_names(args)
    })?;
    let host = setup::host_for(args, policy, HostPurpose::Inspect)?;
    setup::load(args, &host, ReportLevel::Problems).await?;
    Ok(host)
}

fn tags(selection: &SwitchArgs) -> TagSelector<'_> {
    if selection.all_tags { TagSelector::All(&selection.tag) } else { TagSelector::Any(&selection.tag) }
}

/// Changes the switches. If a name is unknown, nothing changes.
async fn change(
    args: &SetupArgs,
    host: &Host,
    selection: &SwitchArgs,
    edit: impl FnOnce(&Registry) -> Result<(), UnknownNameError>,
) -> Result<CommandStatus> {
    let servers = connect(args, host, selection).await;
    let edited = setup::switches(args).map(|switches| edit_switches(&switches, host.registry(), edit));
    servers.close().await;
    let (before, after) = edited?.map_err(SwitchError::into_error)?;
    let changes = changed_tools(&before, &after);
    running_servers::apply_decision(args, !changes.is_empty()).await?;
    if args.printer.is_json() {
        output::print_json(&json!({ "changed": changes }))?;
    } else {
        report_changes(args.printer, &changes);
    }
    Ok(CommandStatus::Success)
}

/// Connects to the servers whose tools are named. The tools of a server are known while it is connected.
async fn connect(args: &SetupArgs, host: &Host, selection: &SwitchArgs) -> ServerConnections {
    let namespaces: Vec<String> =
        selection.namespace.iter().map(|name| format!("{name}{NAME_SEPARATOR}")).collect();
    let names: Vec<&str> = selection.tools.iter().chain(&namespaces).map(String::as_str).collect();
    servers::connect_for(args, host, &names).await
}

/// Edits the switches, and returns the catalogs before and after.
fn edit_switches(
    switches: &FileSwitches,
    registry: &Registry,
    edit: impl FnOnce(&Registry) -> Result<(), UnknownNameError>,
) -> Result<(Arc<Catalog>, Arc<Catalog>), SwitchError> {
    switches.update(|switches| {
        // Another process may have changed the switches meanwhile.
        registry.set_switches(switches);
        let before = registry.snapshot();
        edit(registry).map_err(|unknown| unknown_name(&unknown, &before))?;
        let after = registry.snapshot();
        *switches = after.settings().switches();
        Ok((before, after))
    })
}

/// Disables a tool of a running server with a reason, or enables it without one.
pub(crate) fn switch_tool(
    switches: &FileSwitches,
    registry: &Registry,
    tool: &str,
    disabled: Option<&str>,
) -> Result<(), String> {
    let edited = edit_switches(switches, registry, |registry| match disabled {
        Some(reason) => registry.disable(tool, reason),
        None => registry.enable(tool).map(drop),
    });
    edited.map(drop).map_err(|error| match error {
        SwitchError::UnknownName(error) => error.to_line(),
        SwitchError::File(text) => text,
    })
}

/// Why switches were not changed.
enum SwitchError {
    /// There is no such tool, namespace or tag.
    UnknownName(CommandError),
    /// The file of the switches cannot be read or written.
    File(String),
}

impl SwitchError {
    fn into_error(self) -> Error {
        match self {
            Self::UnknownName(error) => error.into(),
            Self::File(text) => anyhow!(text),
        }
    }
}

impl From<String> for SwitchError {
    fn from(text: String) -> Self {
        Self::File(text)
    }
}

impl From<CommandError> for SwitchError {
    fn from(error: CommandError) -> Self {
        Self::UnknownName(error)
    }
}

/// The error for an unknown name, with similar names.
pub(crate) fn unknown_name(unknown: &UnknownNameError, catalog: &Catalog) -> CommandError {
    let known: BTreeSet<&str> = match unknown.what {
        "namespace" => catalog.namespaces(),
        "tag" => catalog.tools().flat_map(|entry| entry.tags()).map(|tag| &**tag).collect(),
        _ => catalog.tools().map(|entry| entry.def.name.as_str()).collect(),
    };
    let (code, what) = match unknown.what {
        "namespace" => ("unknown_namespace", "namespace"),
        "tag" => ("unknown_tag", "tag"),
        _ => ("unknown_tool", "tool"),
    };
    let error = CommandError::unknown(code, what, &unknown.name, known);
    if error.has_help() { error } else { error.with_help("see `toolbay status --tools`") }
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

fn report_changes(printer: Printer, changes: &[ChangedTool]) {
    for ChangedTool { tool, disabled_reason } in changes {
        match disabled_reason {
            Some(reason) => printer.note(&format!("disabled `{tool}`: {reason}")),
            None => printer.note(&format!("enabled `{tool}`")),
        }
    }
    if changes.is_empty() {
        printer.note("nothing changed");
    }
}
