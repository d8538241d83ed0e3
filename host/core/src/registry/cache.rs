//! What is derived from a part of the registry on first use.

use std::fmt;

/// A cache inside a value. A copy of the value starts with an empty cache, since the copy may change.
#[derive(Default)]
pub(super) struct Cache<T>(pub(super) T);

impl<T: Default> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}
