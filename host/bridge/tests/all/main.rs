//! The bridge as a language uses it, without an interpreter.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

mod bad_input;
mod calls;
mod event_loop;
