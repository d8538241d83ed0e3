//! The stages of a call, in their order. Each takes what the stage before it has made.

pub(super) mod resolve;
pub(super) mod validate;

pub(super) mod admit;
mod ruling;

mod check;
mod idempotency;
mod interception;
pub(super) mod invoke;
mod nested;
mod oversize;

pub(super) mod shape;
