//! Things to do: add, list, update, complete, remove.
//!
//! Each item is an entry of its own, under a number that is never given twice: two calls that add at once both keep
//! theirs, and two that change one item at once do it one after the other. The list is shared by all sessions.

pub mod add;
pub mod change;
mod items;
pub mod list;

toolbay_sdk::plugin! {
    tools: [
        add::add,
        list::list,
        change::update,
        change::complete,
        change::remove,
    ],
}
