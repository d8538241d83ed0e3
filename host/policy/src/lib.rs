//! What an operator writes: policies, grants, limits and consent, parsed and checked.
//!
//! This crate does no I/O and knows neither tools nor calls. [`Policy`] is a parsed policy file, [`capability`] has
//! the rules of each kind of capability, [`limits`] the limits, [`consent`] what an operator agreed to.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod audit_policy;
pub mod capability;
pub mod consent;
pub mod limits;
pub mod mcp_server;
pub mod name;
pub mod output;
pub mod permission;
mod policy;
pub mod quantity;
pub mod refusal;
pub mod rule;
mod schema;
pub mod serve;
pub mod session;
pub mod similar;
pub mod text;
pub mod wildcard;

pub use capability::unusable_target;
pub use policy::{
    Advice, AdvisedList, ApprovalMode, PolicyCheck, GrantDecision, PolicyFinding, Grants, ServiceHeader, GrantKey, KnownNames, KnownPlugin,
    LimitRow, MAX_FINDINGS, MAX_OPENAPI_NAME, MAX_OPENAPI_QUALIFIED, MAX_REUSE, OpenApiService, OpenApiToolSettings,
    PathKind, DocumentLocation, Policy, PolicyError, Profile, ProposedLine, ReducerBinding, Severity, AccessQuery,
};
