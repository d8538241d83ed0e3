//! `toolbay output`.

use std::io::Write;

use anyhow::{Error, Result};
use serde_json::json;
use toolbay::core::session::output_store::query::{self, SearchPattern, TextQuery};
use toolbay::core::session::output_store::{OutputId, OutputQuota, OutputStore, SavedOutput};
use toolbay::policy::excerpt::one_line;
use toolbay::policy::hidden_chars::escape_hidden;
use toolbay::{FileOutputStore, Session};

use crate::args::OutputArgs;
use crate::output::{self, Cell, CommandError, CommandStatus, NAME, Printer, TextTable};
use crate::setup::{self, SetupArgs};

/// Longest name that a message repeats, in characters.
const MAX_NAME: usize = 100;

pub(crate) async fn run(args: &SetupArgs, options: &OutputArgs) -> Result<CommandStatus> {
    let quota = OutputQuota::from(setup::policy(args)?.host());
    let store = FileOutputStore::new(&setup::state_dir(args)?, quota);
    let session = Session::with_name(&options.session);
    let key = session.key().unwrap_or_default();
    let Some(id) = &options.id else {
        let saved = store.list(key).await;
        if saved.is_empty() {
            let text =
                format!("no output is saved for the session `{}`", one_line(&options.session, MAX_NAME));
            let help = "a call with `--session NAME` saves what is too long, for a day by default";
            return Err(CommandError::new("unknown_session", text).with_help(help).into());
        }
        return Ok(list(args.printer, &saved)?);
    };
    let query = parse_query(options).map_err(Error::msg)?;
    let saved = match OutputId::parse(id) {
        Some(id) => store.get(key, &id).await,
        None => None,
    };
    let Some(saved) = saved else {
        let session = &options.session;
        let error = CommandError::new(
            "unknown_output",
            format!("no text `{id}` is saved for the session `{session}`"),
        );
        return Err(error
            .with_help(format!("`toolbay output --session {session}` lists the saved texts"))
            .into());
    };
    let part = query.map(|query| query::answer(&saved.text, &query, usize::MAX));
    let text = part.as_deref().unwrap_or(&saved.text);
    if args.printer.is_json() {
        output::print_json(&json!({"id": id, "tool": &*saved.tool, "text": text}))?;
    } else {
        print(text)?;
    }
    Ok(CommandStatus::Success)
}

/// Prints a text: escaped on a terminal, unchanged in a pipe.
fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if output::stdout_is_terminal() {
        out.write_all(escape_hidden(text).as_bytes())?;
    } else {
        out.write_all(text.as_bytes())?;
    }
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn list(printer: Printer, kept: &[SavedOutput]) -> std::io::Result<CommandStatus> {
    if printer.is_json() {
        let rows: Vec<_> = kept
            .iter()
            .map(|kept| json!({"id": kept.id.as_str(), "tool": &*kept.tool, "bytes": kept.bytes}))
            .collect();
        return output::print_json(&rows);
    }
    let mut table = TextTable::new(["ID", "TOOL", "BYTES"]).with_numbers_in(&[2]);
    for SavedOutput { id, tool, bytes } in kept {
        table.push([Cell::styled(NAME, id.to_string()), (&**tool).into(), bytes.to_string().into()]);
    }
    table.print()?;
    Ok(CommandStatus::Success)
}

/// Parses the query of the command line; `None`: the whole text.
fn parse_query(options: &OutputArgs) -> Result<Option<TextQuery>, String> {
    Ok(Some(match options {
        OutputArgs { head: Some(count), .. } => TextQuery::Head(*count),
        OutputArgs { tail: Some(count), .. } => TextQuery::Tail(*count),
        OutputArgs { range: Some((from, to)), .. } => TextQuery::Lines(*from, *to),
        OutputArgs { chars: Some((from, to)), .. } => TextQuery::Chars(*from, *to),
        OutputArgs { grep: Some(words), regex, ignore_case, around, .. } => {
            let pattern = SearchPattern::new(words, *regex, *ignore_case);
            TextQuery::Grep { pattern: pattern.map_err(|e| format!("--grep: {e}"))?, around: *around }
        }
        OutputArgs { size: true, .. } => TextQuery::Size,
        _ => return Ok(None),
    }))
}
