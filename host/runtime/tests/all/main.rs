//! All integration tests of the embedding API in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

mod agent;
mod native_tools;
