//! The items in the store: `next`, the last used number, and `item/<number>` for each item.

use toolbay_sdk::kv::{self, Scope};
use toolbay_sdk::prelude::*;

/// The longest text of an item, in characters.
pub(crate) const MAX_TEXT: usize = 2000;
/// How often a change is retried after a concurrent change.
const TRIES: usize = 100;
const NEXT: &str = "next";
const PREFIX: &str = "item/";

/// An item of the list.
#[data]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TodoItem {
    /// The number, which is never reused.
    pub id: u64,
    /// The text.
    pub text: String,
    /// Whether the item is done.
    pub done: bool,
}

impl TodoItem {
    /// The item as a line of a list.
    pub(crate) fn line(&self) -> String {
        format!("{} [{}] {}\n", self.id, if self.done { 'x' } else { ' ' }, self.text)
    }
}

/// Keys that sort by number.
fn key(id: u64) -> String {
    format!("{PREFIX}{id:020}")
}

fn missing(id: u64) -> Error {
    Error::failed(format!("there is no item {id}; list shows what there is")).at("not-found")
}

/// Refuses an empty text.
pub(crate) fn check(text: &str) -> Result<()> {
    if text.trim().is_empty() {
        return Err(Error::input("the text is empty").at("/text"));
    }
    Ok(())
}

/// Adds an item under a new number.
pub(crate) fn create(text: String) -> Result<TodoItem> {
    let number = kv::increment(Scope::Plugin, NEXT, 1)?;
    let id = u64::try_from(number).map_err(|_| Error::failed("the numbers of the list are damaged"))?;
    let item = TodoItem { id, text, done: false };
    kv::set_json(Scope::Plugin, &key(id), &item, None)?;
    Ok(item)
}

/// Changes the current version of an item.
pub(crate) fn change(id: u64, change: impl Fn(&mut TodoItem)) -> Result<TodoItem> {
    for _ in 0..TRIES {
        let old = kv::get(Scope::Plugin, &key(id))?.ok_or_else(|| missing(id))?;
        let mut item: TodoItem = toolbay_sdk::serde_json::from_slice(&old)?;
        change(&mut item);
        let new = toolbay_sdk::serde_json::to_vec(&item)?;
        if new == old || kv::replace(Scope::Plugin, &key(id), Some(&old), &new)? {
            return Ok(item);
        }
    }
    Err(Error::failed(format!("item {id} is being changed by others all the time; try again")))
}

/// Removes an item and returns it.
pub(crate) fn take(id: u64) -> Result<TodoItem> {
    let item = kv::get_json(Scope::Plugin, &key(id))?.ok_or_else(|| missing(id))?;
    kv::remove(Scope::Plugin, &key(id))?;
    Ok(item)
}

/// The items after a number, oldest first, until `enough` returns true.
pub(crate) fn each(after: u64, mut enough: impl FnMut(TodoItem) -> bool) -> Result<()> {
    let mut last = key(after);
    loop {
        let keys = kv::keys(Scope::Plugin, PREFIX, Some(&last), 500)?;
        let Some(end) = keys.last().cloned() else { return Ok(()) };
        for key in keys {
            // Another call may have removed it since the listing.
            if let Some(item) = kv::get_json(Scope::Plugin, &key)?
                && enough(item)
            {
                return Ok(());
            }
        }
        last = end;
    }
}
