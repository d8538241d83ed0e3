//! Compiles in threads of this process.

use std::path::PathBuf;

use tokio::sync::oneshot;

use super::compiled_functions::CompiledFunctions;
use crate::compile::CompileError;
use crate::compile::cache::Cache;
use crate::compile::compiler::{CompilePermit, CompiledComponent, Compiler, NoCompiler, map_component};
use crate::engine::Engine;

/// The compiler of this process.
#[derive(Debug)]
pub(crate) struct InProcess {
    /// The component whose functions others reuse.
    base: Option<PathBuf>,
}

impl InProcess {
    pub(crate) fn new(base: Option<PathBuf>) -> Result<Self, NoCompiler> {
        Ok(Self { base })
    }

    /// Compiles a component, with the functions of the base if there is one.
    pub(crate) async fn compile(
        &self,
        compiler: &Compiler,
        engine: &Engine,
        cache: Option<&Cache>,
        bytes: Vec<u8>,
    ) -> Result<CompiledComponent, CompileError> {
        let permit = compiler.acquire_permit().await?;
        let Some(base) = &self.base else {
            let this = engine.clone();
            let work = move || super::compile(&this, &bytes);
            let component = compile_in_thread(compiler, permit, work).await?;
            return Ok(CompiledComponent { component, code: None });
        };
        let (kind, cache, base) = (engine.kind, cache.cloned(), base.clone());
        let read = move || CompiledFunctions::from_base(kind, cache.as_ref(), &base);
        let functions = compile_in_thread(compiler, permit, read).await?;
        let permit = compiler.acquire_permit().await?;
        let work = move || functions.precompile(kind, &bytes);
        map_component(engine, compile_in_thread(compiler, permit, work).await?).await
    }
}

async fn compile_in_thread<T: Send + 'static>(
    compiler: &Compiler,
    permit: CompilePermit,
    work: impl FnOnce() -> Result<T, CompileError> + Send + 'static,
) -> Result<T, CompileError> {
    let (sender, receiver) = oneshot::channel();
    let run = move || {
        let compiled = work();
        drop(permit);
        // The receiver may be gone.
        sender.send(compiled).ok();
    };
    // The thread ends with the compilation, even if the caller has given up.
    std::thread::Builder::new()
        .name("toolbay-compile".to_owned())
        .stack_size(super::STACK)
        .spawn(run)
        .map_err(|e| CompileError::Host(format!("the compile thread could not be started: {e}")))?;
    match tokio::time::timeout(compiler.timeout, receiver).await {
        Ok(Ok(compiled)) => compiled,
        Ok(Err(_)) => Err(CompileError::Failed("the compiler failed; see the log".to_owned())),
        Err(_) => Err(compiler.timeout_error()),
    }
}
