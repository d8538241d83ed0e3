//! Random numbers for ids.

use std::hash::{BuildHasher as _, RandomState};

/// A random number. The keys of hashers alone do not do: those of a forked child repeat those of its parent.
pub(crate) fn number() -> u64 {
    RandomState::new().hash_one(getrandom::u64().ok())
}
