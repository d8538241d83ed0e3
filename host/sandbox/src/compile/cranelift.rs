//! The compiler itself, behind the feature `compiler`: in the compile worker, or in threads of the host.

mod compiled_functions;
mod in_process;
mod worker_process;

use toolbay_policy::excerpt::one_line;
use wasmparser::{Validator, WasmFeatures};
use wasmtime::component::Component;

pub(crate) use in_process::InProcess;
pub use worker_process::run_compile_worker;

use crate::compile::CompileError;
use crate::engine::{ASYNC_FEATURES, Engine};

/// Stack size of a compile thread: the default of spawned threads, independent of the embedder's settings.
const STACK: usize = 8 << 20;
/// Maximum length of a validator's message, in characters.
const MAX_REASON: usize = 400;

/// Compiles a component. Takes seconds of CPU time for large components, and more for hostile ones.
fn compile(engine: &Engine, bytes: &[u8]) -> Result<Component, CompileError> {
    Component::new(&engine.wasmtime, bytes).map_err(|error| compile_error(bytes, &error))
}

/// Compiles a component to the form that the cache stores. See [`compile`].
fn precompile(engine: &Engine, bytes: &[u8]) -> Result<Vec<u8>, CompileError> {
    engine.wasmtime.precompile_component(bytes).map_err(|error| compile_error(bytes, &error))
}

fn compile_error(bytes: &[u8], error: &wasmtime::Error) -> CompileError {
    let features = refused_features(bytes);
    if features.is_empty() {
        CompileError::Invalid(one_line(&format!("{error:#}"), MAX_REASON))
    } else {
        CompileError::UnsupportedFeature(features.join(", "))
    }
}

/// The proposals that a component uses and this host does not allow, by name. Empty if the component is invalid for
/// another reason. Called only after a failed compilation.
fn refused_features(bytes: &[u8]) -> Vec<String> {
    let valid = |features: WasmFeatures| Validator::new_with_features(features).validate_all(bytes).is_ok();
    if valid(ASYNC_FEATURES) || !valid(WasmFeatures::all()) {
        return Vec::new();
    }
    WasmFeatures::all()
        .difference(ASYNC_FEATURES)
        .iter_names()
        .filter(|(_, feature)| !valid(WasmFeatures::all().difference(*feature)))
        .map(|(name, _)| name.to_ascii_lowercase().replace('_', "-"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{AsyncSupport, EngineKind, Metering};

    #[test]
    fn a_disabled_proposal_is_named() {
        let kind = EngineKind { metering: Metering::Fuel, async_support: AsyncSupport::On };
        for (text, name) in [
            ("(component (core module (memory i64 1)))", "memory64"),
            ("(component (core module (type (struct))))", "gc"),
            ("(component (core module (memory 1 1 shared)))", "threads"),
            ("(component (core module (tag)))", "exceptions"),
            ("(component (type (map string u8)))", "cm-map"),
        ] {
            let bytes = wat::parse_str(text).unwrap();
            let names = refused_features(&bytes);
            assert!(names.iter().any(|n| n == name), "{text}: {names:?}");
            let engine = Engine::for_compiling(kind).unwrap();
            assert!(compile(&engine, &bytes).is_err(), "{text} compiles");
        }
        assert!(
            refused_features(&wat::parse_str("(component (core module (memory 1)))").unwrap()).is_empty()
        );
        assert!(refused_features(b"\0asm\x0d\0\x01\0garbage").is_empty());
    }
}
