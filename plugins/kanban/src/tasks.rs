//! The tasks in the store: `next`, the last used number, and `task/<number>` for each task.

use toolbay_sdk::kv::{self, Scope};
use toolbay_sdk::prelude::*;
use toolbay_sdk::serde_json::Value;
use toolbay_sdk::{config, serde_json};

use crate::time;

/// How often a change is retried after a concurrent change.
const TRIES: usize = 100;
const NEXT: &str = "next";
const PREFIX: &str = "task/";
/// The default columns of a board.
const COLUMNS: [&str; 4] = ["todo", "doing", "review", "done"];
/// The column of finished tasks. The reducer of `kanban_list` knows this name.
pub(crate) const DONE: &str = "done";

/// One task.
#[data]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardTask {
    /// The id for the other tools: `t7`.
    pub id: String,
    /// The title.
    pub title: String,
    /// The column.
    pub status: String,
    /// The description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// The time of the last change, in Unix milliseconds.
    #[serde(rename = "updatedAt")]
    pub updated_at: u64,
}

impl BoardTask {
    /// Reads a stored task, whose time may be a text.
    fn from_stored(stored: &[u8]) -> Result<Self> {
        let mut task: Value = serde_json::from_slice(stored)?;
        if let Some(time) = task.get_mut("updatedAt") {
            *time = time::from_stored(time).into();
        }
        Ok(serde_json::from_value(task)?)
    }
}

/// The columns of the board, in order.
pub(crate) fn columns() -> Result<Vec<String>> {
    let mut columns =
        config::get::<Vec<String>>("columns")?.unwrap_or_else(|| COLUMNS.map(str::to_owned).to_vec());
    if !columns.iter().any(|column| column == DONE) {
        columns.push(DONE.to_owned());
    }
    Ok(columns)
}

/// Refuses an unknown column.
pub(crate) fn check_column(status: &str, argument: &str) -> Result<()> {
    let columns = columns()?;
    if columns.iter().any(|column| column == status) {
        return Ok(());
    }
    Err(Error::input(format!("there is no column `{status}`; the board has {}", columns.join(", ")))
        .at(argument))
}

fn key(number: u64) -> String {
    format!("{PREFIX}{number:020}")
}

/// The number of `t7`.
fn number(id: &str) -> Result<u64> {
    let number = id.strip_prefix('t').and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| Error::input("a task's id is `t` and a number").at("/id"))
}

fn missing(id: &str) -> Error {
    Error::failed(format!("there is no task {id}; kanban_list shows what there is")).at("not-found")
}

/// Adds a task under a new number.
pub(crate) fn create(title: String, notes: String, status: String) -> Result<BoardTask> {
    let next = kv::increment(Scope::Plugin, NEXT, 1)?;
    let next = u64::try_from(next).map_err(|_| Error::failed("the numbers of the board are damaged"))?;
    let task = BoardTask { id: format!("t{next}"), title, status, notes, updated_at: time::now() };
    kv::set_json(Scope::Plugin, &key(next), &task, None)?;
    Ok(task)
}

/// Changes the current version of a task.
pub(crate) fn change(id: &str, change: impl Fn(&mut BoardTask)) -> Result<BoardTask> {
    let key = key(number(id)?);
    for _ in 0..TRIES {
        let old = kv::get(Scope::Plugin, &key)?.ok_or_else(|| missing(id))?;
        let before = BoardTask::from_stored(&old)?;
        let mut task = before.clone();
        change(&mut task);
        if task == before {
            return Ok(task);
        }
        task.updated_at = time::now();
        if kv::replace(Scope::Plugin, &key, Some(&old), &serde_json::to_vec(&task)?)? {
            return Ok(task);
        }
    }
    Err(Error::failed(format!("task {id} is being changed by others all the time; try again")))
}

/// The tasks after a number, oldest first, until `enough` returns true.
pub(crate) fn each(after: Option<&str>, mut enough: impl FnMut(BoardTask) -> bool) -> Result<()> {
    let mut last = key(after.map_or(Ok(0), number)?);
    loop {
        let keys = kv::keys(Scope::Plugin, PREFIX, Some(&last), 500)?;
        let Some(end) = keys.last().cloned() else { return Ok(()) };
        for key in keys {
            if let Some(stored) = kv::get(Scope::Plugin, &key)?
                && enough(BoardTask::from_stored(&stored)?)
            {
                return Ok(());
            }
        }
        last = end;
    }
}
