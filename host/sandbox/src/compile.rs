//! Compiles components: within limits, in a worker process if there is one, and only once if there is a cache.

pub mod cache;
pub mod compiler;
pub mod complexity;
#[cfg(feature = "compiler")]
mod cranelift;
#[cfg(not(feature = "compiler"))]
#[path = "compile/no_cranelift.rs"]
mod cranelift;
mod mount;
pub mod worker;

pub use cranelift::run_compile_worker;

/// Maximum size of a component, in bytes. CPython has 18 MB.
pub const MAX_COMPONENT_BYTES: u64 = 64 << 20;

/// Why a component was not compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The bytes are not a WebAssembly component.
    #[error("{0}")]
    NotAComponent(&'static str),
    /// The component uses WebAssembly proposals that this host does not allow.
    #[error("uses WebAssembly features that this host does not allow: {0}")]
    UnsupportedFeature(String),
    /// The component exceeds a limit on its complexity.
    #[error("is too complex: it has {0}")]
    TooComplex(String),
    /// Compilation exceeded its limit on time or memory.
    #[error("was not compiled: {0}")]
    Failed(String),
    /// The component is not valid.
    #[error("is not a valid component: {0}")]
    Invalid(String),
    /// The host failed while it compiled the component.
    #[error("the host failed: {0}")]
    Host(String),
}

/// Rejects bytes that are not a component.
pub(crate) fn check_header(bytes: &[u8]) -> Result<(), CompileError> {
    match bytes {
        [] => Err(CompileError::NotAComponent("is empty")),
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(CompileError::NotAComponent(
            "is a core module, not a component: build it for wasm32-wasip2, or wrap it with `wasm-tools component new`",
        )),
        [0, b'a', b's', b'm', ..] => Err(CompileError::NotAComponent(
            "is truncated, or of a WebAssembly version this host does not know",
        )),
        _ => Err(CompileError::NotAComponent("is not WebAssembly")),
    }
}
