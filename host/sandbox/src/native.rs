//! Maps compiled code, and returns freed memory. The only file of the host with `unsafe`.

#![allow(
    unsafe_code,
    reason = "the only ways to load compiled code and to reach the allocator; the proofs are below"
)]

use std::path::Path;

use wasmtime::component::Component;

use crate::engine::Engine;

/// Maps a compiled component.
///
/// # Errors
/// When the file was compiled by another version or with other settings.
pub fn map(engine: &Engine, file: &Path) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize_file` requires that the file contains the output of `Component::serialize` and that nothing
    // changes it while it is mapped. The function has two callers. `cache::Cache::code` has just checked that only this
    // user can write to the file, and that the file's SHA-256 is the one recorded when a host of this user wrote the
    // file; `cache::Cache::open` checked the same of the folder. Files of the cache are never changed in place: a host
    // writes a new file and renames it.
    // `compiler::map_code` has just written the file itself, into a new folder that only this user can enter, and
    // removes both afterwards. Its content came over a private pipe from a process that runs the program which the
    // embedder named as its compile worker, and its SHA-256 is the one which that process sent; or this process
    // compiled it, with functions from the cache whose SHA-256 is the one recorded when a host of this user wrote them.
    // Only this user could interfere, and this user could replace the host program as well. Guests and their programs act as
    // this user, too: a host denies them writes to its own cache and to the user's default one, and the operator keeps a
    // folder that was named for another program outside of what policies grant (docs/how-to/operators.md, "Cache").
    unsafe { Component::deserialize_file(&engine.wasmtime, file) }
}

/// Returns freed memory of the C library's heaps to the system. Does nothing with another C library.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes a number and no pointer, locks the heaps itself, and changes no memory in use
    // (malloc_trim(3): MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}
