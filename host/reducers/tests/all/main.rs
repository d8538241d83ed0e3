//! All integration tests of the reducers in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, fixtures included: a failure is to stop them"
)]

mod fixtures;
mod laws;
mod seed;
