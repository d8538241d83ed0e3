//! Replicas with a real NATS server, which `cargo xtask servers` installs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

mod access;
mod audit;
mod budgets;
mod calls;
mod contact;
mod kv;
mod outputs;
#[allow(dead_code, reason = "the tests of `toolbay-cli` use the rest")]
mod process;
mod queues;
mod records;
mod server;
