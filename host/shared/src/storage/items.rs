//! What replicas keep for each session: data as objects, and one record that lists the items of the session.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toolbay_state::digest::Digest;

use crate::clock::StoreClock;
use crate::nats::{Objects, ReadError, Records};
use crate::protocol::{Revision, Written};

/// Most attempts to change the list of a session. Each conflict means that another replica changed it.
const MAX_ATTEMPTS: u32 = 50;

/// The items of all sessions. `T` describes an item.
#[derive(Debug, Clone)]
pub(super) struct SessionItems<T> {
    lists: Records,
    data: Objects,
    clock: StoreClock,
    limits: ItemLimits,
    item: std::marker::PhantomData<fn() -> T>,
}

/// What the items of one session may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemLimits {
    /// The start of the names of lists and objects.
    pub(super) name: &'static str,
    /// Most items.
    pub(super) count: usize,
    /// Most bytes. The oldest items make room for a new one.
    pub(super) bytes: u64,
    /// What each item counts besides its data, in bytes.
    pub(super) overhead: u64,
    /// How long an item is kept.
    pub(super) age: Duration,
}

/// The items of a session, the oldest first.
#[derive(Debug, Serialize, Deserialize)]
struct ItemList<T> {
    items: Vec<ListedItem<T>>,
}

/// An item of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ListedItem<T> {
    pub(super) id: String,
    pub(super) about: T,
    /// The bytes of its data.
    pub(super) bytes: u64,
    /// When it was stored, in milliseconds of the store's clock.
    at: u64,
}

/// The reason why an item was not stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum InsertError {
    #[error(transparent)]
    Store(#[from] ReadError),
    #[error("the shared state does not take it")]
    NotTaken,
}

impl<T> Default for ItemList<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

impl<T: Clone + Serialize + DeserializeOwned> SessionItems<T> {
    pub(super) fn new(lists: Records, data: Objects, clock: StoreClock, limits: ItemLimits) -> Self {
        Self { lists, data, clock, limits, item: std::marker::PhantomData }
    }

    /// Stores an item in place of one with the same id. The caller has checked its size.
    pub(super) async fn insert(
        &self,
        session: &str,
        id: &str,
        about: &T,
        data: &[u8],
    ) -> Result<(), InsertError> {
        self.data.write(&self.object(session, id), data).await?;
        for _ in 0..MAX_ATTEMPTS {
            let (mut list, revision) = self.read_list(session).await?;
            list.items.retain(|item| item.id != id);
            let bytes = data.len() as u64;
            let removed = list.make_room(bytes, &self.limits);
            let at = self.clock.now();
            list.items.push(ListedItem { id: id.to_owned(), about: about.clone(), bytes, at });
            match self.lists.write(&self.list_name(session), revision, &list).await {
                Written::Stored(_) => {
                    for old in removed {
                        self.data.remove(&self.object(session, &old.id)).await;
                    }
                    return Ok(());
                }
                Written::Conflict => {}
                Written::Unknown => break,
            }
        }
        Err(InsertError::NotTaken)
    }

    /// The items of a session, the oldest first.
    pub(super) async fn list(&self, session: &str) -> Result<Vec<ListedItem<T>>, ReadError> {
        Ok(self.read_list(session).await?.0.items)
    }

    /// An item and its data.
    pub(super) async fn load(&self, session: &str, id: &str) -> Result<Option<(T, Vec<u8>)>, ReadError> {
        let items = self.list(session).await?;
        let Some(item) = items.into_iter().find(|item| item.id == id) else { return Ok(None) };
        let most = usize::try_from(item.bytes).unwrap_or(usize::MAX);
        let data = self.data.read(&self.object(session, id), most).await?;
        Ok(data.map(|data| (item.about, data)))
    }

    /// The list of a session without expired items, and the revision of its record.
    async fn read_list(&self, session: &str) -> Result<(ItemList<T>, Option<Revision>), ReadError> {
        let found = self.lists.read::<ItemList<T>>(&self.list_name(session)).await?;
        let (mut list, revision) =
            found.map_or_else(Default::default, |record| (record.value, Some(record.revision)));
        let age = u64::try_from(self.limits.age.as_millis()).unwrap_or(u64::MAX);
        let now = self.clock.now();
        list.items.retain(|item| now < item.at.saturating_add(age));
        Ok((list, revision))
    }

    /// The name of a session's list. The key of a session may have any characters and may be secret.
    fn list_name(&self, session: &str) -> String {
        format!("{}.{}", self.limits.name, Digest::of(session.as_bytes()))
    }

    fn object(&self, session: &str, id: &str) -> String {
        format!("{}-{}-{id}", self.limits.name, Digest::of(session.as_bytes()))
    }
}

impl<T> ItemList<T> {
    /// Removes the oldest items until another one fits.
    fn make_room(&mut self, bytes: u64, limits: &ItemLimits) -> Vec<ListedItem<T>> {
        let weight = |bytes: u64| bytes.saturating_add(limits.overhead);
        let of_items: u64 = self.items.iter().map(|item| weight(item.bytes)).sum();
        let mut sum = of_items.saturating_add(weight(bytes));
        let mut count = 0;
        for item in &self.items {
            if sum <= limits.bytes && self.items.len() - count < limits.count {
                break;
            }
            sum = sum.saturating_sub(weight(item.bytes));
            count += 1;
        }
        self.items.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_items_make_room() {
        let limits = ItemLimits { name: "t", count: 3, bytes: 1000, overhead: 10, age: Duration::ZERO };
        let removed = |sizes: &[u64], bytes| {
            let item = |bytes: &u64| ListedItem { id: String::new(), about: (), bytes: *bytes, at: 0 };
            ItemList { items: sizes.iter().map(item).collect() }.make_room(bytes, &limits).len()
        };
        assert_eq!(removed(&[1, 1], 1), 0);
        assert_eq!(removed(&[1, 1, 1], 1), 1, "too many");
        assert_eq!(removed(&[480], 500), 0);
        assert_eq!(removed(&[480, 1], 500), 1, "too large");
        assert_eq!(removed(&[480, 1], 990), 2);
    }
}
