//! The store: records with revisions, in one log. It forgets accounts that are not written, loses its leader, and can go
//! back to an old copy.

use std::collections::BTreeMap;

use toolbay_shared::protocol::{Revision, Written};

/// True time, in milliseconds.
pub(super) type Millis = u64;
/// How long the store keeps an account after its last write. A chunk lives for 3 s.
pub(super) const ACCOUNT_LIFE: Millis = 4_500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// The number of lent units.
    Lent(u64),
    /// The holder of the queue: replica and nonce.
    Holder(usize, u64),
    /// The epoch and what it applies.
    Epoch(u64, u64),
    /// A heartbeat of an incarnation.
    Beat(u64),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Store {
    records: BTreeMap<Key, (Value, Revision, Millis)>,
    last: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Account,
    Queue,
    Epoch,
    Beat(usize),
}

impl Store {
    pub(super) fn read(&self, key: Key) -> Option<(&Value, Revision)> {
        self.records.get(&key).map(|(value, revision, _)| (value, *revision))
    }

    /// Removes the account if it was not written for long. Returns whether it was removed.
    pub(super) fn expire(&mut self, now: Millis) -> bool {
        let is_old = |(_, _, at): &(Value, Revision, Millis)| now >= at + ACCOUNT_LIFE;
        self.records.get(&Key::Account).is_some_and(is_old) && self.records.remove(&Key::Account).is_some()
    }

    /// All records.
    pub(super) fn records(&self) -> impl Iterator<Item = (Key, &Value, Revision)> {
        self.records.iter().map(|(key, (value, revision, _))| (*key, value, *revision))
    }

    pub(super) fn put(&mut self, now: Millis, key: Key, value: Value) -> Revision {
        self.last += 1;
        self.records.insert(key, (value, Revision(self.last), now));
        Revision(self.last)
    }

    pub(super) fn write(
        &mut self,
        now: Millis,
        key: Key,
        expected: Option<Revision>,
        value: Value,
    ) -> Written {
        match self.read(key).map(|(_, revision)| revision) == expected {
            true => Written::Stored(self.put(now, key, value)),
            false => Written::Conflict,
        }
    }

    pub(super) fn remove(&mut self, key: Key, expected: Revision) -> Written {
        if self.read(key).map(|(_, revision)| revision) != Some(expected) {
            return Written::Conflict;
        }
        self.records.remove(&key);
        self.last += 1;
        Written::Stored(Revision(self.last))
    }

    /// The position of the last message.
    pub(super) fn last(&self) -> u64 {
        self.last
    }
}
