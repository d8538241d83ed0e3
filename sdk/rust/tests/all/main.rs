//! All integration tests of the SDK in one binary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed fixture is a failed test")]
#![allow(missing_docs, unreachable_pub, reason = "plugins as their authors write them")]

mod compile_errors;
mod enums;
mod pages;
mod plugin;
mod tools;
