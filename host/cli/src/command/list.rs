//! `toolbay list`.

use std::io::{BufWriter, Write};

use anyhow::Result;
use serde_json::{Value, json};
use toolbay_core::registry::Entry;
use toolbay_policy::text::first_sentence;
use toolbay_policy::text::visible;

use crate::Verdict;
use crate::command::args::SetupArgs;
use crate::command::setup::{self, Purpose, Tell};
use crate::output::{self, DIM, NAME, WRONG};

pub(crate) async fn run(args: &SetupArgs, json: bool, all: bool) -> Result<Verdict> {
    let host = setup::loaded(args, Tell::Warnings, Purpose::Look).await?;
    let view = super::view_with_servers(args, &host).await?;
    let entries: Vec<_> = if all { view.catalog().tools().collect() } else { view.discoverable().collect() };
    let hidden = view.catalog().tools().len() - entries.len();
    if json {
        let definitions: Vec<Value> =
            entries.iter().map(|entry| definition(entry, view.why_not(entry).as_deref())).collect();
        output::print_json(&definitions)?;
        return Ok(Verdict::Good);
    }
    let terminal = output::stdout_is_terminal();
    let width = entries.iter().map(|e| e.def.name.as_str().len()).max().unwrap_or(0);
    // Whole pages at a time: there may be thousands of lines.
    let mut out = BufWriter::new(output::out());
    for entry in entries {
        let name = entry.def.name.as_str();
        let summary = visible(first_sentence(&entry.def.description));
        match (view.why_not(entry), terminal) {
            (None, true) => writeln!(out, "{NAME}{name:width$}{NAME:#}  {summary}")?,
            (Some(reason), true) => {
                writeln!(
                    out,
                    "{DIM}{name:width$}{DIM:#}  {WRONG}not available{WRONG:#}: {}",
                    visible(&reason)
                )?;
            }
            (None, false) => writeln!(out, "{name}\t{summary}")?,
            (Some(reason), false) => {
                writeln!(out, "{name}\tnot available: {}", visible(&reason).replace('\n', " "))?;
            }
        }
    }
    out.flush()?;
    if hidden > 0 {
        output::note(&format!("{hidden} more cannot be called here; see them with `toolbay list --all`"));
    }
    Ok(Verdict::Good)
}

/// A definition as JSON, for people and scripts.
pub(crate) fn definition(entry: &Entry, unavailable: Option<&str>) -> Value {
    let def = &entry.def;
    json!({
        "name": def.name.as_str(),
        "title": def.title,
        "description": def.description,
        "input_schema": def.input_schema.value(),
        "output_schema": def.output_schema.as_ref().map(|s| s.value()),
        "toolset": def.keywords.toolset,
        "tags": entry.tags(),
        "flags": entry.flags,
        "traits": def.traits,
        "max_result_chars": def.max_result_chars,
        "capabilities": def.capabilities,
        "source": def.source,
        "unavailable": unavailable,
    })
}
