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

toolbay_sdk::plugin! {
    tools: [
        list::kanban_list,
        add::kanban_add,
        change::kanban_move,
        change::kanban_done,
    ],
}
