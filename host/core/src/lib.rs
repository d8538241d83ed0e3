//! The domain of Toolbay: tools, names, capabilities, policy, registry, views and the call pipeline.
//!
//! This crate does no I/O, knows no wasm and reads no clock but the monotonic one. It speaks to the world through
//! ports: [`invoke::Invoke`] runs a tool, [`reduce::Reduce`] shrinks a result, [`audit::AuditSink`] keeps records,
//! [`call::ProgressSink`] takes progress. The package `toolbay` implements the first two with wasmtime.
//!
//! Read [`pipeline`] to see the way of a call, [`view`] for the order of the gates, [`policy`] for what is granted.

pub mod attachment;
pub mod audit;
pub mod audit_policy;
pub mod blobs;
pub mod budget;
pub mod call;
pub mod call_log;
pub mod canonical;
pub mod capability;
pub mod consent;
pub mod content;
pub mod delivery;
pub mod dialog;
pub mod diff;
pub mod discovery;
pub mod environment;
pub mod event;
pub mod fault;
pub mod floor;
mod glob;
pub mod intercept;
pub mod invoke;
pub mod invoke_rule;
pub mod json;
pub mod kv;
mod lane;
pub mod limits;
pub mod manifest;
pub mod mcp_server;
pub mod memory;
pub mod name;
pub mod native;
pub mod net;
pub mod offer;
pub mod outside;
pub mod permission;
pub mod pipeline;
pub mod policy;
pub mod portable;
pub mod program;
pub mod quantity;
pub mod reach;
pub mod read_output;
pub mod reason;
pub mod redact;
pub mod reduce;
pub mod refusal;
pub mod refusals;
pub mod registry;
pub mod rule;
pub mod schema;
pub mod search;
pub mod secret;
pub mod serve;
pub mod session;
pub mod spool;
pub mod tags;
pub mod text;
pub mod timestamp;
pub mod tool;
pub mod untrusted;
pub mod vendor;
pub mod view;
mod wildcard;
pub mod wording;

#[cfg(test)]
mod testing;
