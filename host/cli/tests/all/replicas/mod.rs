//! Several servers that share their state in real NATS servers, which `cargo xtask servers` installs.

mod balancer;
mod budgets;
mod calls;
mod cluster;
mod decisions;
mod faults;
#[path = "../../../../shared/tests/nats/process.rs"]
#[allow(dead_code, reason = "the tests of `toolbay-shared` use the rest")]
mod process;
mod proxy;
mod sessions;
