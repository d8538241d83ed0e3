//! `toolbay prompts` and `toolbay resources`: what plugins ship beside tools, as a client sees it.

use anyhow::Result;
use serde_json::{Value, json};
use toolbay::View;
use toolbay_core::tool::prompts_and_resources::{DocumentArgument, Prompt, Resource, ResourceTemplate};
use toolbay_policy::excerpt::first_sentence;

use crate::output::{self, Cell, CommandStatus, DIM, NAME, Printer, TextTable};
use crate::setup::{self, HostPurpose, ReportLevel, SetupArgs, servers};

/// One line of a list.
struct CatalogRow<'a> {
    /// The name or the address by which clients know it.
    name: &'a str,
    /// What it takes, or what it is.
    kind: String,
    description: &'a str,
    value: Value,
}

pub(crate) async fn prompts(args: &SetupArgs) -> Result<CommandStatus> {
    let view = view(args).await?;
    let all = view.prompts_and_resources().into_iter().flat_map(|offers| &offers.prompts);
    print(
        args.printer,
        ["PROMPT", "ARGUMENTS", "DESCRIPTION"],
        all.map(|(name, prompt)| prompt_row(name, prompt)).collect(),
    )
}

pub(crate) async fn resources(args: &SetupArgs) -> Result<CommandStatus> {
    let view = view(args).await?;
    let offers = view.prompts_and_resources();
    let resources = offers.iter().flat_map(|offers| &offers.resources);
    let templates = offers.iter().flat_map(|offers| &offers.templates);
    let rows = resources
        .map(|(uri, resource)| resource_row(uri, resource))
        .chain(templates.map(|(uri, (_, template))| template_row(uri, template)));
    print(args.printer, ["RESOURCE", "TYPE", "DESCRIPTION"], rows.collect())
}

/// What a client sees under the profile of the command line: prompts and resources of plugins with a callable tool.
async fn view(args: &SetupArgs) -> Result<View> {
    let host = setup::load_host(args, ReportLevel::Warnings, HostPurpose::Inspect).await?;
    servers::view(args, &host)
}

fn prompt_row<'a>(name: &'a str, prompt: &'a Prompt) -> CatalogRow<'a> {
    let shown =
        |one: &DocumentArgument| if one.required { one.name.clone() } else { format!("[{}]", one.name) };
    let argument = |one: &DocumentArgument| {
        json!({
            "name": one.name,
            "title": one.title,
            "description": one.description,
            "required": one.required,
            "values": one.values,
        })
    };
    CatalogRow {
        name,
        kind: prompt.arguments.iter().map(shown).collect::<Vec<_>>().join(" "),
        description: &prompt.description,
        value: json!({
            "name": name,
            "title": prompt.title,
            "description": prompt.description,
            "arguments": prompt.arguments.iter().map(argument).collect::<Vec<_>>(),
        }),
    }
}

fn resource_row<'a>(uri: &'a str, resource: &'a Resource) -> CatalogRow<'a> {
    let bytes = format!("{} bytes", resource.size());
    let kind = resource.mime_type.iter().map(String::as_str).chain([&*bytes]).collect::<Vec<_>>().join(", ");
    CatalogRow {
        name: uri,
        kind,
        description: resource.description.as_deref().unwrap_or(&resource.name),
        value: json!({
            "uri": uri,
            "name": resource.name,
            "description": resource.description,
            "mime_type": resource.mime_type,
            "bytes": resource.size(),
        }),
    }
}

fn template_row<'a>(uri: &'a str, template: &'a ResourceTemplate) -> CatalogRow<'a> {
    let kind =
        template.mime_type.iter().map(String::as_str).chain(["template"]).collect::<Vec<_>>().join(", ");
    CatalogRow {
        name: uri,
        kind,
        description: template.description.as_deref().unwrap_or(&template.name),
        value: json!({
            "uri_template": uri,
            "name": template.name,
            "description": template.description,
            "mime_type": template.mime_type,
        }),
    }
}

fn print(
    printer: Printer,
    header: [&'static str; 3],
    mut rows: Vec<CatalogRow<'_>>,
) -> Result<CommandStatus> {
    rows.sort_by_key(|row| row.name);
    if printer.is_json() {
        let values: Vec<Value> = rows.into_iter().map(|row| row.value).collect();
        return Ok(output::print_json(&values)?);
    }
    if rows.is_empty() {
        printer.note(&format!("no plugin with a callable tool has a {}", header[0].to_lowercase()));
    }
    let mut table = TextTable::new(header);
    for row in rows {
        let kind = Cell::styled(DIM, row.kind);
        table.push([Cell::styled(NAME, row.name), kind, first_sentence(row.description).into()]);
    }
    table.print()?;
    Ok(CommandStatus::Success)
}
