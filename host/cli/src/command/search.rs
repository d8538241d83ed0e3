//! `toolbay search`: what a model would find.

use std::io::Write;

use anyhow::{Error, Result};
use toolbay_policy::text::first_sentence;
use toolbay_policy::text::{one_line, visible};

use crate::Verdict;
use crate::command::args::SetupArgs;
use crate::command::setup::{self, Purpose, Tell};
use crate::output::{self, DIM, NAME};

/// Good if something was found, as with `grep`.
pub(crate) async fn run(args: &SetupArgs, query: &str, limit: usize, json: bool) -> Result<Verdict> {
    let host = setup::loaded(args, Tell::Problems, Purpose::Look).await?;
    let view = super::view_with_servers(args, &host).await?;
    let hits = toolbay_discovery::search(&view, query, limit).map_err(Error::msg)?;
    if json {
        output::print_json(&toolbay_discovery::found(&hits))?;
    } else {
        show(&hits)?;
    }
    if hits.is_empty() {
        output::note(&format!("no tool fits `{}`", one_line(query, 100)));
    }
    Ok(if hits.is_empty() { Verdict::Bad } else { Verdict::Good })
}

fn show(hits: &[toolbay_discovery::Hit]) -> std::io::Result<()> {
    let terminal = output::stdout_is_terminal();
    let width = hits.iter().map(|hit| hit.entry.def.name.as_str().len()).max().unwrap_or(0);
    let mut out = output::out();
    for hit in hits {
        let (name, score) = (hit.entry.def.name.as_str(), hit.score);
        let summary = visible(first_sentence(&hit.entry.def.description));
        if terminal {
            writeln!(out, "{NAME}{name:width$}{NAME:#}  {DIM}{score:5.1}{DIM:#}  {summary}")?;
        } else {
            writeln!(out, "{name}\t{score:.2}\t{summary}")?;
        }
    }
    out.flush()
}
