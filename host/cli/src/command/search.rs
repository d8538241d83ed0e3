//! `toolbay search`: what `tool_search` finds for a model.

use anyhow::{Error, Result};
use toolbay_policy::excerpt::first_sentence;
use toolbay_policy::excerpt::one_line;

use crate::output::{self, Cell, CommandStatus, DIM, NAME, TextTable};
use crate::setup::{ReportLevel, SetupArgs, servers};

/// Fails without a match, as `grep` does.
pub(crate) async fn run(args: &SetupArgs, query: &str, limit: usize) -> Result<CommandStatus> {
    let (_host, view) = servers::load_view_with_servers(args, ReportLevel::Problems).await?;
    let hits = toolbay_discovery::search(&view, query, limit).map_err(Error::msg)?;
    if args.printer.is_json() {
        output::print_json(&toolbay_discovery::format_hits(&hits))?;
    } else {
        show(&hits)?;
    }
    if hits.is_empty() {
        args.printer.note(&format!("no tool matches `{}`", one_line(query, 100)));
    }
    Ok(CommandStatus::from_success(!hits.is_empty()))
}

fn show(hits: &[toolbay_discovery::ToolHit]) -> std::io::Result<()> {
    let mut table = TextTable::new(["TOOL", "SCORE", "DESCRIPTION"]).with_numbers_in(&[1]);
    for hit in hits {
        let def = &hit.entry.def;
        let name = Cell::styled(NAME, def.name.as_str());
        let score = Cell::styled(DIM, format!("{:.2}", hit.score));
        table.push([name, score, first_sentence(&def.description).into()]);
    }
    table.print()
}
