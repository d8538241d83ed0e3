//! The operator's input: policies, grants, limits and consent, parsed and checked.
//!
//! This crate does no I/O and has no types for tools or calls. [`Policy`] is a parsed policy file. [`capability`] has
//! the rules of each kind of capability, [`limits`] the limits, and [`consent`] the records of what an operator
//! agreed to.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod admin;
pub mod audit_policy;
pub mod capability;
pub mod consent;
pub mod excerpt;
pub mod hidden_chars;
pub mod hint;
pub mod limits;
pub mod mcp_server;
pub mod name;
pub mod name_list;
pub mod output;
pub mod permission;
mod policy;
pub mod problem;
pub mod quantity;
pub mod refusal;
pub mod registry;
pub mod route;
pub mod rule;
mod schema;
#[cfg(test)]
mod sdk_tests;
pub mod serve;
pub mod session;
pub mod shared;
pub mod similar;
pub mod telemetry;
pub mod trust;
pub mod unchecked;
mod url_parts;
pub mod wildcard;

pub use capability::unusable_target;
pub use policy::{
    AccessQuery, Advice, ApprovalMode, DocumentLocation, Feature, FileContent, GrantDecision, GrantKey,
    Grants, KnownNames, KnownPlugin, KnownService, KnownTool, LimitRow, MAX_FINDINGS, MAX_OPENAPI_NAME,
    MAX_OPENAPI_QUALIFIED, MAX_REUSE, Machine, NamedTool, OpenApiService, OpenApiToolSettings, PathKind,
    Policy, PolicyCheck, PolicyError, PolicyFinding, PolicyReview, Profile, ProgramRefusal, ProgramSection,
    ProposedLine, ReducerBinding, ServiceHeader, Severity,
};
