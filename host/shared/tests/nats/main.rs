//! Replicas with a real NATS server. `cargo xtask replicas` installs it and names it in `TOOLBAY_NATS_SERVER`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

mod access;
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
