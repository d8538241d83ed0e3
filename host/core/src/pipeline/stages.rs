//! The stages of a call, in their order. Each takes the result of the stage before it.

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
