//! The one place with `unsafe`: mapping code that this host compiled earlier.

#![allow(unsafe_code, reason = "the only way to load compiled code; the proof is below")]

use std::path::Path;

use wasmtime::component::Component;

use crate::engine::Engine;

/// Maps a compiled component.
///
/// # Errors
/// When the file was compiled by another version or with other settings.
pub(crate) fn map(engine: &Engine, file: &Path) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize_file` asks that the file holds what `Component::serialize` wrote and is not changed while
    // it is mapped. It has two callers. `cache::Cache::code` has checked just before that the folder and the file
    // belong to this user and that nobody else may write to either, and that the file's SHA-256 is the one recorded
    // when this host wrote it. Files of the cache are never changed in place: they are written beside and renamed.
    // `compiler::map` has just written the file itself, into a new folder that only this user can enter, and removes
    // both afterwards; what it wrote came over a private pipe from a process that runs the program which the embedder
    // named as its own compile worker, and its SHA-256 is the one which that process gave.
    // Who can write there in spite of that is this user, who could as well replace this program.
    unsafe { Component::deserialize_file(&engine.wasmtime, file) }
}
