//! The place of the compiler in a build without the feature `compiler`: there is none, so a host needs a compile worker.

use std::path::PathBuf;

use crate::compile::CompileError;
use crate::compile::cache::Cache;
use crate::compile::compiler::{CompiledComponent, Compiler, NoCompiler};
use crate::engine::Engine;

/// The compiler of this process, which does not exist.
#[derive(Debug)]
pub(crate) enum InProcess {}

impl InProcess {
    pub(crate) fn new(_base: Option<PathBuf>) -> Result<Self, NoCompiler> {
        Err(NoCompiler)
    }

    pub(crate) async fn compile(
        &self,
        _compiler: &Compiler,
        _engine: &Engine,
        _cache: Option<&Cache>,
        _bytes: Vec<u8>,
    ) -> Result<CompiledComponent, CompileError> {
        match *self {}
    }
}

/// Fails: this program cannot compile.
///
/// # Errors
/// Always.
pub fn run_compile_worker() -> std::io::Result<()> {
    Err(std::io::Error::other(NoCompiler))
}
