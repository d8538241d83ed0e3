//! `toolbay search`: what `tool_search` finds for a model.

use anyhow::{Error, Result};
use toolbay_policy::excerpt::first_sentence;
use toolbay_policy::excerpt::one_line;

use crate::CommandStatus;
use crate::command::args::SetupArgs;
use crate::command::setup::ReportLevel;
use crate::output::table::{Cell, TextTable};
use crate::output::{self, DIM, NAME};

/// Fails without a match, as `grep` does.
pub(crate) async fn run(args: &SetupArgs, query: &str, limit: usize, json: bool) -> Result<CommandStatus> {
    let (_host, view) = super::load_view_with_servers(args, ReportLevel::Problems).await?;
    let hits = toolbay_discovery::search(&view, query, limit).map_err(Error::msg)?;
    if json {
        output::print_json(&toolbay_discovery::format_hits(&hits))?;
    } else {
        show(&hits)?;
    }
    if hits.is_empty() {
        output::print_note(&format!("no tool matches `{}`", one_line(query, 100)));
    }
    Ok(if hits.is_empty() { CommandStatus::Failed } else { CommandStatus::Success })
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
