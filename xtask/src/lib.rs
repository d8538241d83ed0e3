//! Builds WebAssembly for the project's tasks and for the build script of `guest-artifacts`.

pub mod wasm;
