//! The domain of Toolbay: tools, registry, views, sessions and the call pipeline.
//!
//! This crate does no I/O, does not depend on wasmtime and reads no clock but the monotonic one. It reaches the outside
//! through ports: [`call::invoke::Invoke`] runs a tool, [`call::reduce::Reduce`] shortens a result,
//! [`audit::AuditSink`] receives audit records, and [`call::ProgressSink`] receives progress. The package `toolbay`
//! implements the first two with wasmtime.
//!
//! Read [`pipeline`] for the stages of a call, [`registry::view`] for the order of the gates, and the crate
//! `toolbay_policy` for grants.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod approval;
pub mod audit;
pub mod call;
pub mod http_challenge;
pub mod neutral_text;
pub mod output;
pub mod pipeline;
mod random;
pub mod registry;
pub mod session;
pub mod tool;
