//! A to-do list: add, list, update, complete, remove.
//!
//! Each item is a separate entry under a number that is never reused. Concurrent additions all succeed, and concurrent
//! changes of one item happen one after the other. All sessions share the list.

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
