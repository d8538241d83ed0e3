//! What a command did with a plugin of the lock, or found out about it.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use toolbay::PluginId;
use toolbay_distribution::lock::LockedPlugin;

use super::verification::VerifyProblem;
use crate::output::{self, Cell, CommandStatus, DIM, FAILURE, NAME, Printer, SUCCESS, TextTable};

/// What became of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PluginStatus {
    /// The store has what the lock names.
    Present,
    /// The store lacks something that the lock names.
    Missing,
    /// It was downloaded.
    Fetched,
    /// The store has it, and its signature meets the policy.
    Verified,
    /// The verification found a problem.
    Unverified(VerifyProblem),
    /// The lock has it already.
    Unchanged,
    /// It is locked now, from an archive.
    Imported,
    /// It could be locked; nothing was changed.
    Available,
    /// A newer version is locked now.
    Updated,
    /// There is no newer version.
    Current,
    /// There is a newer version.
    Outdated,
    /// Its tag is no version.
    Unversioned,
    /// The operator has to agree to its changes.
    Held(String),
    /// The command failed for it.
    Failed(String),
}

impl PluginStatus {
    /// The word for programs and tables.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Missing => "missing",
            Self::Fetched => "fetched",
            Self::Verified => "verified",
            Self::Unverified(problem) => problem.word(),
            Self::Unchanged => "unchanged",
            Self::Imported => "imported",
            Self::Available => "available",
            Self::Updated => "updated",
            Self::Current => "current",
            Self::Outdated => "outdated",
            Self::Unversioned => "unversioned",
            Self::Held(_) => "held",
            Self::Failed(_) => "failed",
        }
    }

    /// Why the command did not succeed for the plugin, if there is a reason beside the word.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Self::Held(error) | Self::Failed(error) => Some(error),
            Self::Unverified(problem) => Some(problem.message()),
            _ => None,
        }
    }

    /// Whether the operator has something to do.
    fn is_failure(&self) -> bool {
        matches!(self, Self::Missing | Self::Outdated) || self.error().is_some()
    }

    /// What the operator does next, with `toolbay grant`.
    fn next_step(&self) -> Option<&'static str> {
        match self {
            Self::Held(_) => Some("review and accept the changes with"),
            Self::Imported => Some("grant what it asks for with"),
            _ => None,
        }
    }

    /// The cells that begin the row of a plugin: its id and its status.
    fn cells(&self, id: &PluginId) -> [Cell; 2] {
        let style = match self {
            _ if self.is_failure() => FAILURE,
            Self::Unchanged | Self::Unversioned => DIM,
            _ => SUCCESS,
        };
        [Cell::styled(NAME, id.as_str()), Cell::styled(style, self.word())]
    }
}

/// A plugin, what became of it, and what else a command found out about it.
pub(crate) struct PluginRow<D = ()> {
    pub(crate) id: PluginId,
    pub(crate) plugin: LockedPlugin,
    pub(crate) status: PluginStatus,
    pub(crate) details: D,
}

/// A row for programs.
#[derive(Serialize)]
struct JsonRow<'a> {
    plugin: &'a str,
    status: &'a str,
    error: Option<&'a str>,
    #[serde(flatten)]
    details: Value,
}

/// Prints the rows of a command, as JSON or as a table with the errors below it, or a note if there are none. `describe`
/// has the cells of a row after the id and the status, and its further members in JSON.
pub(crate) fn print_rows<D>(
    printer: Printer,
    rows: &[PluginRow<D>],
    mut table: TextTable,
    empty_note: &str,
    describe: impl Fn(&PluginRow<D>) -> (Vec<Cell>, Value),
) -> Result<CommandStatus> {
    let status = CommandStatus::from_success(!rows.iter().any(|row| row.status.is_failure()));
    if printer.is_json() {
        let rows = rows.iter().map(|row| {
            let (plugin, status, error) = (row.id.as_str(), row.status.word(), row.status.error());
            JsonRow { plugin, status, error, details: describe(row).1 }
        });
        output::print_json(&rows.collect::<Vec<_>>())?;
        return Ok(status);
    }
    for row in rows {
        table.push(row.status.cells(&row.id).into_iter().chain(describe(row).0));
    }
    table.print()?;
    for PluginRow { id, status, .. } in rows {
        status.error().iter().for_each(|error| printer.error(&format!("`{id}`: {error}")));
    }
    if rows.is_empty() {
        printer.note(empty_note);
    }
    for PluginRow { id, status, .. } in rows {
        let next = status.next_step();
        next.iter().for_each(|next| printer.help(&format!("{next} `toolbay grant {id}`")));
    }
    Ok(status)
}
