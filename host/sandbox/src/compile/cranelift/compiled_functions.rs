//! Compiles a component with the machine code of another one, its base. The two have the same functions and different
//! data, such as an interpreter with two scripts.
//!
//! Only the compilation of the base adds functions. A compilation that uses them adds none, so a plugin cannot change
//! the code of another. The embedder names the base, which must be its own; plugins cannot.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use toolbay_state::digest::Digest;
use toolbay_state::regular::read_regular;
use wasmtime::CacheStore;

use crate::compile::cache::Cache;
use crate::compile::{CompileError, MAX_COMPONENT_BYTES};
use crate::engine::{Engine, EngineKind};

/// The length of a key, a SHA-256, and of the size that follows it, in bytes.
const KEY: usize = 32;
const SIZE: usize = 8;

/// The functions of a base, for reading.
pub(crate) struct CompiledFunctions {
    /// For each function its key, the size of its code, and the code.
    bytes: Vec<u8>,
    ranges: HashMap<[u8; KEY], Range<usize>>,
}

/// Collects the functions of a base while it is compiled.
#[derive(Debug, Default)]
struct FunctionRecorder(Mutex<Vec<u8>>);

impl CompiledFunctions {
    /// The functions of a base, which come from the cache, or are compiled now.
    pub(crate) fn from_base(
        kind: EngineKind,
        cache: Option<&Cache>,
        base: &Path,
    ) -> Result<Self, CompileError> {
        let base = read_regular(base, MAX_COMPONENT_BYTES)
            .map_err(|error| CompileError::Host(format!("`{}` cannot be read: {error}", base.display())))?;
        let digest = functions_digest(kind, &base)?;
        let cached = cache.and_then(|cache| cache.functions(&digest)).and_then(Self::parse);
        if let Some(functions) = cached {
            return Ok(functions);
        }
        let recorder = Arc::new(FunctionRecorder::default());
        precompile(kind, Arc::clone(&recorder) as _, &base)?;
        let bytes = std::mem::take(&mut *recorder.0.lock());
        let damaged = || CompileError::Host("compiled functions are damaged".to_owned());
        let functions = Self::parse(bytes).ok_or_else(damaged)?;
        if let Some(Err(error)) = cache.map(|cache| cache.put_functions(&digest, &functions.bytes)) {
            tracing::warn!(error, "compiled functions could not be cached: each build compiles them");
        }
        Ok(functions)
    }

    /// Compiles a component with these functions.
    pub(crate) fn precompile(self, kind: EngineKind, component: &[u8]) -> Result<Vec<u8>, CompileError> {
        precompile(kind, Arc::new(self), component)
    }

    /// Reads functions in the form that the cache stores. `None`: they are damaged.
    fn parse(bytes: Vec<u8>) -> Option<Self> {
        let (mut ranges, mut at) = (HashMap::new(), 0);
        while at < bytes.len() {
            let (key, rest) = bytes.get(at..)?.split_first_chunk::<KEY>()?;
            let size = usize::try_from(u64::from_le_bytes(*rest.first_chunk::<SIZE>()?)).ok()?;
            let start = at + KEY + SIZE;
            at = start.checked_add(size).filter(|end| *end <= bytes.len())?;
            ranges.insert(*key, start..at);
        }
        Some(Self { bytes, ranges })
    }
}

impl std::fmt::Debug for CompiledFunctions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let functions = self.ranges.len();
        f.debug_struct("CompiledFunctions").field("functions", &functions).finish_non_exhaustive()
    }
}

impl CacheStore for CompiledFunctions {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let range = self.ranges.get(key)?.clone();
        self.bytes.get(range).map(Cow::Borrowed)
    }

    fn insert(&self, _key: &[u8], _value: Vec<u8>) -> bool {
        false
    }
}

impl CacheStore for FunctionRecorder {
    fn get(&self, _key: &[u8]) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        if key.len() != KEY {
            return false;
        }
        let mut bytes = self.0.lock();
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&value);
        true
    }
}

/// Identifies the functions of a base in the cache. Cranelift finds a function only with the target and the settings that it
/// was compiled with, so programs that differ in them (for glibc and for musl) need files of their own.
fn functions_digest(kind: EngineKind, base: &[u8]) -> Result<Digest, CompileError> {
    let engine = Engine::for_compiling(kind).map_err(|error| CompileError::Host(error.to_string()))?;
    let mut settings = DefaultHasher::new();
    engine.wasmtime.precompile_compatibility_hash().hash(&mut settings);
    let base = Digest::of(base);
    Ok(Digest::of(&[&base.as_bytes()[..], &settings.finish().to_le_bytes()].concat()))
}

fn precompile(
    kind: EngineKind,
    functions: Arc<dyn CacheStore>,
    component: &[u8],
) -> Result<Vec<u8>, CompileError> {
    let engine =
        Engine::for_compiling_with(kind, |config| config.enable_incremental_compilation(functions).map(drop));
    super::precompile(&engine.map_err(|error| CompileError::Host(error.to_string()))?, component)
}

#[cfg(test)]
mod tests {
    use toolbay_policy::limits::HostLimits;

    use super::*;
    use crate::compile::cache::CacheLimits;
    use crate::engine::{AsyncSupport, Metering};
    use crate::engines::Engines;

    /// A component with this data, and this code beside that of all.
    fn component(data: &str, code: &str) -> Vec<u8> {
        let text = format!(
            "(component (core module (memory 1) (data (i32.const 0) \"{data}\")
               (func (export \"sum\") (param i32) (result i32) (i32.add (local.get 0) (i32.load (i32.const 0))))
               (func (export \"of\") (result i32) {code})))"
        );
        wat::parse_str(text).unwrap()
    }

    #[test]
    fn code_with_a_base_is_the_code_without_and_only_the_base_adds_functions() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base.wasm");
        std::fs::write(&base, component("aaaa", "i32.const 1")).unwrap();
        let cache = dir.path().join("cache");
        let kind = EngineKind { metering: Metering::Fuel, async_support: AsyncSupport::Off };
        let opened = Cache::open(&cache, kind, CacheLimits::default()).unwrap();
        let engines =
            Engines::<()>::new(&HostLimits::default(), Metering::Fuel, Some(opened), |_, _| Ok(())).unwrap();
        let linked = engines.get_or_create(kind).unwrap();
        let plain = Engine::for_compiling(kind).unwrap();
        let with_base = |component: &[u8]| {
            let functions = CompiledFunctions::from_base(kind, linked.cache.as_ref(), &base).unwrap();
            functions.precompile(kind, component).unwrap()
        };
        let functions = || {
            let files = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
            let file = files.filter(|file| file.extension().is_some_and(|kind| kind == "functions"));
            let file = file.collect::<Vec<_>>().pop().unwrap();
            (std::fs::read(&file).unwrap(), file)
        };
        let mut recorded = Vec::new();
        for (data, code) in [("aaaa", "i32.const 1"), ("bbbb", "i32.const 1"), ("bbbb", "i32.const 2")] {
            let other = component(data, code);
            let compiled = with_base(&other);
            assert!(
                compiled == crate::compile::cranelift::precompile(&plain, &other).unwrap(),
                "{data} {code}"
            );
            let (bytes, _) = functions();
            assert!(recorded.is_empty() || recorded == bytes, "{data} {code} adds functions");
            recorded = bytes;
        }
        assert!(!recorded.is_empty());

        let (mut damaged, file) = functions();
        damaged[KEY + SIZE] ^= 1;
        std::fs::write(&file, &damaged).unwrap();
        let compiled = with_base(&component("bbbb", "i32.const 1"));
        assert!(
            compiled
                == crate::compile::cranelift::precompile(&plain, &component("bbbb", "i32.const 1")).unwrap()
        );
        assert_ne!(functions().0, damaged, "damaged functions are compiled again");
    }

    #[test]
    fn truncated_functions_are_refused() {
        let mut bytes = vec![7; KEY];
        bytes.extend_from_slice(&2_u64.to_le_bytes());
        bytes.extend_from_slice(b"ab");
        let whole = CompiledFunctions::parse(bytes.clone()).unwrap();
        assert_eq!(whole.get(&[7; KEY]).as_deref(), Some(&b"ab"[..]));
        assert!(whole.get(&[8; KEY]).is_none() && whole.get(b"short").is_none());
        for end in 1..bytes.len() {
            assert!(CompiledFunctions::parse(bytes[..end].to_vec()).is_none(), "{end}");
        }
        bytes.splice(KEY..KEY + SIZE, u64::MAX.to_le_bytes());
        assert!(CompiledFunctions::parse(bytes).is_none());
    }
}
