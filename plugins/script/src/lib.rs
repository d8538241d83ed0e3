//! Programs that call tools: one JavaScript program in place of twenty calls.
//!
//! The program runs in an engine that is itself in the sandbox, and reaches nothing but the tools of whoever called this
//! one, as far as the operator granted them. Calls that it makes without waiting in between are made at once.

mod bridge;
mod engine;
pub mod run;

toolbay_sdk::plugin! { tools: [run::run] }
