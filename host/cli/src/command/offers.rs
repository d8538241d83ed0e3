//! `toolbay prompts` and `toolbay resources`: what plugins ship beside tools, as a client is shown it.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};
use toolbay::View;
use toolbay_core::tool::offer::{Argument, Prompt, Resource, Template};
use toolbay_policy::text::first_sentence;
use toolbay_policy::text::visible;

use crate::Verdict;
use crate::command::args::SetupArgs;
use crate::command::setup::{self, Purpose, Tell};
use crate::output::{self, DIM, NAME};

/// One line of a list.
struct Row<'a> {
    /// The name or the address by which clients know it.
    name: &'a str,
    /// What it takes, or what it is.
    kind: String,
    description: &'a str,
    value: Value,
}

pub(crate) async fn prompts(args: &SetupArgs, json: bool) -> Result<Verdict> {
    let view = view(args).await?;
    let all = view.offers().into_iter().flat_map(|offers| &offers.prompts);
    print(all.map(|(name, prompt)| of_prompt(name, prompt)).collect(), json)
}

pub(crate) async fn resources(args: &SetupArgs, json: bool) -> Result<Verdict> {
    let view = view(args).await?;
    let offers = view.offers();
    let resources = offers.iter().flat_map(|offers| &offers.resources);
    let templates = offers.iter().flat_map(|offers| &offers.templates);
    let rows = resources
        .map(|(uri, resource)| of_resource(uri, resource))
        .chain(templates.map(|(uri, (_, template))| of_template(uri, template)));
    print(rows.collect(), json)
}

/// What a client sees under the profile of the command line: of plugins of which it may call a tool.
async fn view(args: &SetupArgs) -> Result<View> {
    let host = setup::loaded(args, Tell::Warnings, Purpose::Look).await?;
    super::view(args, &host)
}

fn of_prompt<'a>(name: &'a str, prompt: &'a Prompt) -> Row<'a> {
    let shown = |one: &Argument| if one.required { one.name.clone() } else { format!("[{}]", one.name) };
    let argument = |one: &Argument| {
        json!({
            "name": one.name,
            "title": one.title,
            "description": one.description,
            "required": one.required,
            "values": one.values,
        })
    };
    Row {
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

fn of_resource<'a>(uri: &'a str, resource: &'a Resource) -> Row<'a> {
    let bytes = format!("{} bytes", resource.size());
    let kind = resource.mime_type.iter().map(String::as_str).chain([&*bytes]).collect::<Vec<_>>().join(", ");
    Row {
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

fn of_template<'a>(uri: &'a str, template: &'a Template) -> Row<'a> {
    let kind =
        template.mime_type.iter().map(String::as_str).chain(["template"]).collect::<Vec<_>>().join(", ");
    Row {
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

fn print(mut rows: Vec<Row<'_>>, json: bool) -> Result<Verdict> {
    rows.sort_by_key(|row| row.name);
    if json {
        let values: Vec<Value> = rows.into_iter().map(|row| row.value).collect();
        output::print_json(&values)?;
        return Ok(Verdict::Good);
    }
    let mut out = output::out();
    let terminal = output::stdout_is_terminal();
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    for row in rows {
        let (name, kind) = (visible(row.name), visible(&row.kind));
        let summary = visible(first_sentence(row.description)).replace('\n', " ");
        match (terminal, kind.is_empty()) {
            (true, true) => writeln!(out, "{NAME}{name:width$}{NAME:#}  {summary}")?,
            (true, false) => writeln!(out, "{NAME}{name:width$}{NAME:#}  {DIM}{kind}{DIM:#}  {summary}")?,
            (false, _) => writeln!(out, "{name}\t{kind}\t{summary}")?,
        }
    }
    out.flush()?;
    Ok(Verdict::Good)
}
