//! The syntax of tools in Rust: a function, its doc comments, its arguments, the options of `#[tool(…)]`, and
//! `offers.json`.
//!
//! Two macro crates read it: `toolbay-sdk-macros` for plugins and `toolbay-macros` for native tools of a host. This
//! crate parses and checks; what each crate generates is its own.

pub mod argument;
#[rustfmt::skip]
pub mod contract;
pub mod docs;
pub mod limits;
pub mod methods;
pub mod offers;
pub mod options;
pub mod signature;
pub mod suggestion;
