//! The domain of Toolbay: tools, registry, views, sessions and the call pipeline.
//!
//! This crate does no I/O, knows no wasm and reads no clock but the monotonic one. It speaks to the world through
//! ports: [`call::invoke::Invoke`] runs a tool, [`output::reduce::Reduce`] shrinks a result, [`audit::AuditSink`] keeps records,
//! [`call::ProgressSink`] takes progress. The package `toolbay` implements the first two with wasmtime.
//!
//! Read [`pipeline`] to see the way of a call, [`registry::view`] for the order of the gates, and the crate `toolbay_policy` for what
//! is granted.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod audit;
pub mod call;
pub mod output;
pub mod pipeline;
pub mod registry;
pub mod session;
pub mod tool;

#[cfg(test)]
mod testing;
