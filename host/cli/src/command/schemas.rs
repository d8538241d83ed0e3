//! `toolbay schemas`: the definitions of tools in a vendor's format.

use std::sync::Arc;

use anyhow::{Result, bail};
use serde_json::json;
use toolbay::{Host, View};
use toolbay_core::registry::{Catalog, TagSelector, ToolEntry, UnknownNameError};
use toolbay_policy::excerpt::one_line;
use toolbay_vendor::{Definitions, Vendor, definitions};

use crate::args::SchemasArgs;
use crate::command::switch;
use crate::output::{self, CommandStatus, Printer};
use crate::report::{self, call_error};
use crate::setup::{ReportLevel, SetupArgs, servers};

pub(crate) async fn run(args: &SetupArgs, options: &SchemasArgs) -> Result<CommandStatus> {
    let vendor = options.format;
    if options.strict && matches!(vendor, Vendor::Gemini | Vendor::Mcp) {
        bail!("--strict: the format {} has no strict mode", vendor.as_str());
    }
    let (host, view) = servers::load_view_with_servers(args, ReportLevel::Warnings).await?;
    check_tags(options, &host.registry().snapshot())?;
    let Some(mut tools) = select_tools(args, &host, &view, &options.tools) else {
        return Ok(CommandStatus::Failed);
    };
    tools.retain(|entry| has_selected_tags(options, entry));
    let converted = definitions(vendor, tools.iter().map(|entry| &*entry.def), options.strict);
    if options.report {
        let report =
            json!({"tools": converted.tools, "lost": converted.lost, "not_strict": converted.non_strict});
        output::print_json(&report)?;
    } else {
        output::print_json(&converted.tools)?;
        report_losses(args.printer, &converted);
    }
    Ok(CommandStatus::Success)
}

/// Refuses tags that no tool has.
fn check_tags(options: &SchemasArgs, catalog: &Catalog) -> Result<()> {
    let mut tags = options.tag.iter().chain(&options.exclude_tag);
    match tags.find(|tag| !catalog.tools().any(|entry| entry.has_tag(tag))) {
        Some(tag) => {
            let unknown = UnknownNameError { what: "tag", name: tag.clone() };
            Err(switch::unknown_name(&unknown, catalog).into())
        }
        None => Ok(()),
    }
}

fn has_selected_tags(options: &SchemasArgs, entry: &ToolEntry) -> bool {
    let wanted = match options.all_tags {
        true => TagSelector::All(&options.tag),
        false => TagSelector::Any(&options.tag),
    };
    (options.tag.is_empty() || wanted.matches(entry))
        && !TagSelector::Any(&options.exclude_tag).matches(entry)
}

/// The named tools, or all that a client is listed first; `None`: a name is unknown.
fn select_tools(args: &SetupArgs, host: &Host, view: &View, names: &[String]) -> Option<Vec<Arc<ToolEntry>>> {
    if names.is_empty() {
        return Some(view.definitions().cloned().collect());
    }
    let mut printer = args.printer;
    let find = |name: &String| {
        let error = match view.find(name) {
            Ok(entry) => return Some(Arc::clone(entry)),
            Err(error) => error,
        };
        if view.get(name).is_none() {
            report::unknown_tool(view, name).print(printer);
        } else {
            printer.error(&error.message);
            let help = call_error::help_texts(error.hint.as_slice(), None, name, host, args);
            help.iter().for_each(|help| printer.help(help));
        }
        printer = printer.after_result();
        None
    };
    // Every unknown name is reported, not only the first.
    let found: Vec<Option<Arc<ToolEntry>>> = names.iter().map(find).collect();
    found.into_iter().collect()
}

fn report_losses(printer: Printer, converted: &Definitions) {
    for loss in &converted.lost {
        let (pointer, what) = (one_line(&loss.pointer, 120), &loss.what);
        printer.note(&format!("{}: `{pointer}`: {what}", loss.tool));
    }
    for tool in &converted.non_strict {
        printer.note(&format!("{tool}: not strict, because strict mode cannot express its schema"));
    }
}
