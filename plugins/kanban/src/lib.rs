//! A board of tasks: list, add, move, done.
//!
//! Each task is an entry of its own, under a number that is never given twice: calls that add at once all keep theirs, and
//! two that move one task do it one after the other. The board is shared by all sessions. `kanban_list` answers with the JSON
//! array that the reducer of that name knows how to shorten.

pub mod add;
pub mod change;
pub mod list;
mod tasks;
mod time;

use toolbay_sdk::prelude::*;

/// What the operator may set.
#[data]
#[derive(Debug)]
pub struct Settings {
    /// The columns of the board, in their order; `done` is always one.
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
    config: Settings,
}
