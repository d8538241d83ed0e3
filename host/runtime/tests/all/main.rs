//! All integration tests of the embedding API in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

#[cfg(feature = "macros")]
mod agent;
mod features;
#[cfg(feature = "macros")]
mod native_tools;
