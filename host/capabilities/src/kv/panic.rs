//! Contains the panics of redb, which a file that was changed from outside can cause. Each is an error of the store.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::open::KvStoreError;

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the current panic of this thread comes from the key-value store. It becomes an error, which is logged, so a
/// panic hook need not report it.
#[must_use]
pub fn is_store_panic() -> bool {
    CONTAINED.get()
}

/// Runs work on a store. After an error, nothing that the work used may be used again.
pub(super) fn contain<T>(work: impl FnOnce() -> Result<T, KvStoreError>) -> Result<T, KvStoreError> {
    let outer = CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(outer);
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        tracing::debug!(panic = text, "the key-value store panicked");
        Err(KvStoreError::Storage("the file is damaged".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_damage_and_known_to_the_hook() {
        let damaged = contain::<()>(|| {
            assert!(is_store_panic());
            panic!("a page is missing")
        });
        assert!(matches!(damaged, Err(KvStoreError::Storage(_))));
        assert!(!is_store_panic() && contain(|| Ok(1)).is_ok_and(|one| one == 1));
    }
}
