//! `toolbay list`.

use std::io::Write;

use serde_json::{Value, json};
use toolbay_core::registry::Entry;
use toolbay_core::text::visible;

use crate::args::SetupArgs;
use crate::output::{self, DIM, NAME, WRONG};
use crate::setup::{self, Tell};
use crate::{Stop, Verdict};

pub(crate) async fn run(args: &SetupArgs, json: bool, all: bool) -> Result<Verdict, Stop> {
    let host = setup::loaded(args, Tell::Warnings).await?;
    let view = super::view(&host);
    let entries: Vec<_> = if all { view.catalog().tools().collect() } else { view.definitions().collect() };
    let hidden = view.catalog().tools().len() - entries.len();
    if json {
        let definitions: Vec<Value> = entries.iter().map(|entry| definition(entry)).collect();
        serde_json::to_writer_pretty(output::out(), &definitions).map_err(std::io::Error::from)?;
        writeln!(output::out())?;
        return Ok(Verdict::Good);
    }
    let terminal = output::stdout_is_terminal();
    let width = entries.iter().map(|e| e.def.name.as_str().len()).max().unwrap_or(0);
    let mut out = output::out();
    for entry in entries {
        let name = entry.def.name.as_str();
        let summary = visible(first_sentence(&entry.def.description));
        match (&entry.unavailable, terminal) {
            (None, true) => writeln!(out, "{NAME}{name:width$}{NAME:#}  {summary}")?,
            (Some(reason), true) => {
                writeln!(
                    out,
                    "{DIM}{name:width$}{DIM:#}  {WRONG}not available{WRONG:#}: {}",
                    visible(reason)
                )?;
            }
            (None, false) => writeln!(out, "{name}\t{summary}")?,
            (Some(reason), false) => {
                writeln!(out, "{name}\tnot available: {}", visible(reason).replace('\n', " "))?;
            }
        }
    }
    out.flush()?;
    if hidden > 0 {
        output::note(&format!("{hidden} more can not be called here; see them with `toolbay list --all`"));
    }
    Ok(Verdict::Good)
}

/// A definition as JSON, for people and scripts.
pub(crate) fn definition(entry: &Entry) -> Value {
    let def = &entry.def;
    json!({
        "name": def.name.as_str(),
        "title": def.title,
        "description": def.description,
        "input_schema": def.input_schema.value(),
        "output_schema": def.output_schema.as_ref().map(|s| s.value()),
        "toolset": def.toolset,
        "tags": def.tags,
        "traits": def.traits,
        "max_result_chars": def.max_result_chars,
        "capabilities": def.capabilities,
        "source": def.source,
        "unavailable": entry.unavailable,
    })
}

/// The first sentence of a description, on one line.
pub(crate) fn first_sentence(text: &str) -> &str {
    let line = text.trim_start().lines().next().unwrap_or_default();
    line.find(". ").and_then(|end| line.get(..=end)).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_description_is_cut_to_its_first_sentence() {
        for (text, sentence) in [
            ("Read a file. Supports much.", "Read a file."),
            ("No end", "No end"),
            ("\n A.\nB", " A."),
            ("", ""),
        ] {
            assert_eq!(super::first_sentence(text).trim(), sentence.trim(), "{text:?}");
        }
    }
}
