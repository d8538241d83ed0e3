//! The engines of a host: one with fuel metering and one without, each with its linker and its compile cache. Most
//! hosts need only one. The other is created when a policy first needs it.
//!
//! Compiled code runs only in the engine that it was compiled for, so [`crate::plugins::code::Code`] refers to its
//! engine. Both engines share the ticker, the CPU limiter and the concurrency limiter: a second engine adds pool slots
//! but no parallel calls.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use toolbay_core::pipeline::memory::MemoryBudget;
use toolbay_policy::limits::{HostLimits, MAX_MEMORY_BYTES};
use wasmtime::component::Linker;

use crate::capability;
use crate::capability::wasi_files;
use crate::engine::state::GuestState;
use crate::engine::{ByMetering, Engine, Metering, Ticker};
use crate::error::HostError;
use crate::plugins::cache::{self, Cache};

/// An engine with its linker, which all plugins share, and its compile cache.
pub(crate) struct LinkedEngine {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<GuestState>,
    pub(crate) cache: Option<Cache>,
}

/// All engines of one host.
pub(crate) struct Engines {
    limits: HostLimits,
    memory: MemoryBudget,
    ticker: Ticker,
    cache: Option<Cache>,
    by_metering: ByMetering<Arc<LinkedEngine>>,
    /// Held while an engine is created.
    creation: Mutex<()>,
}

impl Engines {
    /// Creates the engine for the policy's default metering.
    pub(crate) fn new(
        limits: &HostLimits,
        usual: Metering,
        cache: Option<(&Path, cache::CacheLimits)>,
    ) -> Result<Self, HostError> {
        let ticker = Ticker::start()?;
        let memory = limits.guest_memory.unwrap_or(MAX_MEMORY_BYTES);
        let memory = MemoryBudget::new("guest_memory", memory);
        let engine = Engine::new(limits, &memory, usual, &ticker)?;
        let cache = cache.and_then(|(dir, bounds)| {
            Cache::open(dir, &engine, bounds)
                .inspect_err(|problem| tracing::warn!("the compile cache is not used: {problem}"))
                .ok()
        });
        let limits = limits.clone();
        let this = Self {
            limits,
            memory,
            ticker,
            cache,
            by_metering: ByMetering::default(),
            creation: Mutex::default(),
        };
        let linked = this.link(engine)?;
        this.by_metering.cell(usual).get_or_init(|| Arc::new(linked));
        Ok(this)
    }

    /// The memory budget of the guests of all engines.
    pub(crate) fn memory(&self) -> &MemoryBudget {
        &self.memory
    }

    /// The cache for entries that do not depend on an engine.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// The engine with this metering. Blocks for a few milliseconds if the engine does not exist yet.
    pub(crate) fn get_or_create(&self, metering: Metering) -> Result<&Arc<LinkedEngine>, HostError> {
        let cell = self.by_metering.cell(metering);
        if let Some(linked) = cell.get() {
            return Ok(linked);
        }
        let _guard = self.creation.lock();
        match cell.get() {
            Some(linked) => Ok(linked),
            None => {
                let linked = self.link(Engine::new(&self.limits, &self.memory, metering, &self.ticker)?)?;
                Ok(cell.get_or_init(|| Arc::new(linked)))
            }
        }
    }

    fn link(&self, engine: Engine) -> Result<LinkedEngine, HostError> {
        let linker = linker(&engine).map_err(|e| HostError::Engine(e.to_string()))?;
        let cache = self.cache.as_ref().map(|cache| cache.for_engine(&engine));
        Ok(LinkedEngine { engine, linker, cache })
    }
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker: Linker<GuestState> = Linker::new(&engine.wasmtime);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    wasi_files::shadow_filesystem(&mut linker)?;
    capability::sockets::link(&mut linker, |state| &mut state.capabilities)?;
    capability::link(&mut linker, |state| &mut state.capabilities)?;
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_engine_is_created_on_first_use_and_caches_code_separately() {
        let dir = tempfile::tempdir().unwrap();
        let cache = (dir.path(), cache::CacheLimits::default());
        let engines = Engines::new(&HostLimits::default(), Metering::Fuel, Some(cache)).unwrap();
        assert!(
            engines.by_metering.cell(Metering::Time).get().is_none(),
            "the second engine is created on demand"
        );
        let by_fuel = Arc::clone(engines.get_or_create(Metering::Fuel).unwrap());
        let by_time = Arc::clone(engines.get_or_create(Metering::Time).unwrap());
        assert!(
            Arc::ptr_eq(&by_time, engines.get_or_create(Metering::Time).unwrap()),
            "the engine is created once"
        );
        let digest = crate::plugins::digest::sha256(b"x");
        let file = |linked: &LinkedEngine| linked.cache.as_ref().unwrap().code_file(&digest);
        assert_ne!(file(&by_fuel), file(&by_time), "the engines have separate code files");
    }
}
