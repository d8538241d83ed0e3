//! An open bucket of `wasi:keyvalue`. The generated bindings refer to it.

use crate::bindings::host::kv::Scope;

/// An open bucket.
#[derive(Debug)]
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct OpenBucket {
    pub(crate) scope: Scope,
    /// The cursor of the last page of keys, and the page's last key.
    pub(crate) page: (u64, Option<String>),
}
