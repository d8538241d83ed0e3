//! What the project's tasks and the build script of `guest-artifacts` share: how wasm is built here.

pub mod wasm;
