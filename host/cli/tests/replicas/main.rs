//! Several servers that share their state in real NATS servers. `cargo xtask replicas` installs NATS and names it in
//! `TOOLBAY_NATS_SERVER`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

mod balancer;
mod budgets;
mod calls;
mod cluster;
mod decisions;
mod faults;
#[path = "../fixture/mod.rs"]
mod fixture;
#[path = "../../../shared/tests/nats/process.rs"]
#[allow(dead_code, reason = "the tests of `toolbay-shared` use the rest")]
mod process;
mod proxy;
mod sessions;
