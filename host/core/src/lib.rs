//! The domain of Toolbay: tools, names, capabilities, policy, registry, views and the call pipeline.
//!
//! This crate does no I/O, knows no wasm and reads no clock but the monotonic one. It speaks to the world through
//! ports: [`invoke::Invoke`] runs a tool, [`reduce::Reduce`] shrinks a result, [`audit::AuditSink`] keeps records,
//! [`call::ProgressSink`] takes progress. The package `toolbay` implements the first two with wasmtime.
//!
//! Read [`pipeline`] to see the way of a call, [`view`] for the order of the gates, [`policy`] for what is granted.

pub mod audit;
pub mod budget;
pub mod call;
pub mod capability;
pub mod content;
pub mod fault;
pub mod invoke;
pub mod json;
pub mod limits;
pub mod name;
pub mod pipeline;
pub mod policy;
pub mod quantity;
pub mod reach;
pub mod reduce;
pub mod registry;
pub mod schema;
pub mod text;
pub mod tool;
pub mod view;

#[cfg(test)]
mod testing;
