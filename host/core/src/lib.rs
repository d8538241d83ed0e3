//! The domain of Toolbay: tools, registry, views, sessions and the call pipeline.
//!
//! This crate does no I/O, knows no wasm and reads no clock but the monotonic one. It speaks to the world through
//! ports: [`invoke::Invoke`] runs a tool, [`reduce::Reduce`] shrinks a result, [`audit::AuditSink`] keeps records,
//! [`call::ProgressSink`] takes progress. The package `toolbay` implements the first two with wasmtime.
//!
//! Read [`pipeline`] to see the way of a call, [`view`] for the order of the gates, and the crate `toolbay_policy` for what
//! is granted.

pub mod approval;
pub mod attachment;
pub mod audit;
pub mod blobs;
pub mod budget;
pub mod call;
pub mod call_log;
pub mod canonical;
pub mod content;
pub mod delivery;
pub mod dialog;
pub mod diff;
pub mod discovery;
pub mod event;
pub mod fault;
pub mod intercept;
pub mod invoke;
pub mod json;
pub mod kv;
mod lane;
pub mod manifest;
pub mod memory;
pub mod native;
pub mod offer;
pub mod outside;
pub mod pipeline;
pub mod portable;
pub mod read_output;
pub mod reason;
pub mod redact;
pub mod reduce;
pub mod refusals;
pub mod registry;
pub mod schema;
pub mod search;
pub mod session;
pub mod spool;
pub mod tags;
pub mod timestamp;
pub mod tool;
pub mod untrusted;
pub mod vendor;
pub mod view;
pub mod wording;

#[cfg(test)]
mod testing;
