//! The keywords of tools' schemas that are not checked, and the clients that refuse a schema.

use std::sync::Arc;

use serde_json::{Value, json};
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::client_compat;

use crate::output::{Cell, NAME, Printer, TextTable};

/// Most rows of keywords. `--json` has more.
const MAX_ROWS: usize = 200;
/// Most incompatibilities that have a line each.
const MAX_FINDINGS: usize = 10;

/// A table with a row for each keyword that is not checked, and one for those that are only counted.
pub(crate) fn table<'a>(tools: impl IntoIterator<Item = &'a Arc<ToolEntry>>) -> TextTable {
    let mut table = TextTable::new(["TOOL", "NOT CHECKED", "REASON"]).with_tag("not_checked");
    let (mut rows, mut left_out) = (0, 0);
    for entry in tools {
        for (schema, dropped) in entry.def.dropped_keywords() {
            let shown = dropped.listed().len().min(MAX_ROWS - rows);
            rows += shown;
            for one in dropped.listed().iter().take(shown) {
                let pointer = if one.pointer.is_empty() { "(root)" } else { &one.pointer };
                let name = Cell::styled(NAME, entry.def.name.as_str());
                table.push([name, format!("{schema} {pointer}").into(), one.reason.as_str().into()]);
            }
            let more = dropped.count() - shown;
            if more > 0 && rows < MAX_ROWS {
                let name = Cell::styled(NAME, entry.def.name.as_str());
                table.push([name, format!("{schema}: {more} more").into(), "".into()]);
            } else {
                left_out += more;
            }
        }
    }
    if left_out > 0 {
        table.push(["".into(), format!("{left_out} more").into(), "".into()]);
    }
    table
}

/// The keywords that are not checked, by tool.
pub(crate) fn to_json<'a>(tools: impl IntoIterator<Item = &'a Arc<ToolEntry>>) -> Value {
    let tools = tools.into_iter().filter(|entry| entry.def.dropped_keywords().next().is_some());
    tools.map(|entry| (entry.def.name.as_str().to_owned(), of_tool(entry))).collect()
}

/// The keywords of one tool that are not checked, by schema: `input` or `output`.
pub(crate) fn of_tool(entry: &ToolEntry) -> Value {
    let dropped = entry.def.dropped_keywords();
    dropped
        .map(|(schema, dropped)| {
            (schema.to_owned(), json!({"count": dropped.count(), "keywords": dropped.listed()}))
        })
        .collect()
}

/// Whether some clients refuse a schema of these tools.
pub(crate) fn has_refused<'a>(tools: impl IntoIterator<Item = &'a Arc<ToolEntry>>) -> bool {
    tools.into_iter().any(|entry| !client_compat::schema_findings(&entry.def).is_empty())
}

/// Warns about schemas that clients refuse, since they have no form that all accept.
pub(crate) fn report_refused<'a>(printer: Printer, tools: impl IntoIterator<Item = &'a Arc<ToolEntry>>) {
    let all = tools.into_iter().flat_map(|entry| client_compat::schema_findings(&entry.def));
    let texts: Vec<String> = all.map(|finding| finding.text).collect();
    printer.warnings(&texts, MAX_FINDINGS, |more| format!("{more} more schemas that some clients refuse"));
}
