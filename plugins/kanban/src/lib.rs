//! A board of tasks: list, add, move, done.
//!
//! Each task is a separate entry under a number that is never reused. Concurrent additions all succeed, and concurrent
//! moves of one task happen one after the other. All sessions share the board. `kanban_list` returns the JSON
//! array that the reducer of the same name shortens.

pub mod add;
pub mod change;
pub mod list;
mod tasks;
mod time;

use toolbay_sdk::prelude::*;

/// The operator's settings.
#[data]
#[derive(Debug)]
pub struct BoardSettings {
    /// The columns of the board, in order; `done` always exists.
    #[schemars(length(max = 50))]
    pub columns: Option<Vec<String>>,
}

plugin! {
    tools: [
        list::kanban_list,
        add::kanban_add,
        change::kanban_move,
        change::kanban_done,
    ],
    config: BoardSettings,
}
