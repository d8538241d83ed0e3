//! What `wit-bindgen` writes from the contract in `wit/`, one module per world, kept here: a plugin is built without the
//! generator and the sixty crates it is made of. A test compares (`tests/bindings`).
//!
//! The worlds with one export each are what lets a component have just the exports its author listed. They share the
//! types of `imports`, so that a tool's output and a reducer's input are the same Rust type.

#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "generated code: the calling convention of components is raw pointers"
)]

#[rustfmt::skip]
pub mod about_world;
#[cfg(feature = "async-tools")]
#[rustfmt::skip]
pub mod async_tools_world;
#[rustfmt::skip]
pub mod availability_world;
#[rustfmt::skip]
pub mod imports;
#[rustfmt::skip]
pub mod reducers_world;
#[rustfmt::skip]
pub mod tools_world;
