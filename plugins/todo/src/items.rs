//! The items in the store: `next`, the last number that was given, and `item/<number>`, one for each.

use toolbay_sdk::kv::{self, Scope};
use toolbay_sdk::prelude::*;

/// Most characters of an item's text.
pub(crate) const MAX_TEXT: usize = 2000;
/// How often a change is tried again because another call was faster.
const TRIES: usize = 100;
const NEXT: &str = "next";
const PREFIX: &str = "item/";

/// One thing to do.
#[data]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its number, which stays its own, also after it is removed.
    pub id: u64,
    /// What to do.
    pub text: String,
    /// Whether it is done.
    pub done: bool,
}

impl Item {
    /// The item as a line of a list.
    pub(crate) fn line(&self) -> String {
        format!("{} [{}] {}\n", self.id, if self.done { 'x' } else { ' ' }, self.text)
    }
}

/// Keys in the order of the numbers.
fn key(id: u64) -> String {
    format!("{PREFIX}{id:020}")
}

fn missing(id: u64) -> Error {
    Error::failed(format!("there is no item {id}; list shows what there is")).at("not-found")
}

/// Refuses a text that says nothing.
pub(crate) fn check(text: &str) -> Result<()> {
    if text.trim().is_empty() {
        return Err(Error::input("the text is empty").at("/text"));
    }
    Ok(())
}

/// Adds an item under a new number.
pub(crate) fn create(text: String) -> Result<Item> {
    let number = kv::increment(Scope::Plugin, NEXT, 1)?;
    let id = u64::try_from(number).map_err(|_| Error::failed("the numbers of the list are damaged"))?;
    let item = Item { id, text, done: false };
    kv::set_json(Scope::Plugin, &key(id), &item, None)?;
    Ok(item)
}

/// Changes an item, on what it is at that moment.
pub(crate) fn change(id: u64, change: impl Fn(&mut Item)) -> Result<Item> {
    for _ in 0..TRIES {
        let old = kv::get(Scope::Plugin, &key(id))?.ok_or_else(|| missing(id))?;
        let mut item: Item = toolbay_sdk::serde_json::from_slice(&old)?;
        change(&mut item);
        let new = toolbay_sdk::serde_json::to_vec(&item)?;
        if new == old || kv::replace(Scope::Plugin, &key(id), Some(&old), &new)? {
            return Ok(item);
        }
    }
    Err(Error::failed(format!("item {id} is being changed by others all the time; try again")))
}

/// Takes an item out and returns it.
pub(crate) fn take(id: u64) -> Result<Item> {
    let item = kv::get_json(Scope::Plugin, &key(id))?.ok_or_else(|| missing(id))?;
    kv::remove(Scope::Plugin, &key(id))?;
    Ok(item)
}

/// The items after a number, oldest first, until `enough` says so.
pub(crate) fn each(after: u64, mut enough: impl FnMut(Item) -> bool) -> Result<()> {
    let mut last = key(after);
    loop {
        let keys = kv::keys(Scope::Plugin, PREFIX, Some(&last), 500)?;
        let Some(end) = keys.last().cloned() else { return Ok(()) };
        for key in keys {
            // It may have been removed since it was listed.
            if let Some(item) = kv::get_json(Scope::Plugin, &key)?
                && enough(item)
            {
                return Ok(());
            }
        }
        last = end;
    }
}
