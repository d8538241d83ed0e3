//! Programs that call tools: one JavaScript program instead of twenty calls.
//!
//! The program runs in an engine within the sandbox. It reaches only tools that the caller of `run` may call and the
//! operator granted. Calls that the program starts without awaiting them run in parallel.

mod bridge;
mod engine;
pub mod run;

toolbay_sdk::plugin! { tools: [run::run] }
