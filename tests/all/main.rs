//! All integration tests, in one binary: real guests, compiled from source, in the real host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, fixtures included: a failure is to stop them"
)]

mod attack_found;
mod attack_held;
mod attack_wasi;
mod bad_input;
mod calls;
mod cap_files;
mod cap_wasi_fs;
mod directory;
mod hostile;
mod metadata;
mod plugins;
mod reducers;
