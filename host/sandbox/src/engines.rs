//! The engines of a host: with and without fuel metering, and with and without asynchronous components, each with its
//! linker and its compile cache. Most hosts need only one. The others are created when a policy or a component first
//! needs them.
//!
//! Compiled code runs only in the engine that it was compiled for, so it refers to its engine. The engines share the
//! ticker, the CPU limiter and the concurrency limiter: a second engine adds pool slots but no parallel calls.

use std::sync::Arc;

use parking_lot::Mutex;
use toolbay_core::pipeline::memory::MemoryBudget;
use toolbay_policy::limits::{HostLimits, MAX_MEMORY_BYTES};
use wasmtime::component::Linker;

use crate::compile::cache::Cache;
use crate::engine::{AsyncSupport, ByMetering, Engine, EngineError, EngineKind, Metering, Ticker};

/// An engine with its linker, which all plugins share, and its compile cache.
pub struct LinkedEngine<D: 'static> {
    /// The engine.
    pub engine: Engine,
    /// What its guests can import.
    pub linker: Linker<D>,
    /// The cache of the code for this engine, if there is one.
    pub cache: Option<Cache>,
}

/// Links what guests can import.
pub(crate) type LinkImports<D> = fn(&mut Linker<D>, AsyncSupport) -> wasmtime::Result<()>;

/// All engines of one host.
pub struct Engines<D: 'static> {
    limits: HostLimits,
    memory: MemoryBudget,
    ticker: Ticker,
    cache: Option<Cache>,
    link: LinkImports<D>,
    blocking: ByMetering<Arc<LinkedEngine<D>>>,
    asynchronous: ByMetering<Arc<LinkedEngine<D>>>,
    /// Held while an engine is created.
    creation: Mutex<()>,
}

impl<D: 'static> Engines<D> {
    /// Creates the engine for the policy's default metering. `link` links the imports of guests in each engine.
    pub fn new(
        limits: &HostLimits,
        usual: Metering,
        cache: Option<Cache>,
        link: LinkImports<D>,
    ) -> Result<Self, EngineError> {
        let ticker = Ticker::start()?;
        let memory = limits.guest_memory.unwrap_or(MAX_MEMORY_BYTES);
        let memory = MemoryBudget::new("guest_memory", memory);
        let kind = EngineKind { metering: usual, async_support: AsyncSupport::Off };
        let engine = Engine::new(limits, &memory, kind, &ticker)?;
        let limits = limits.clone();
        let this = Self {
            limits,
            memory,
            ticker,
            cache: cache.map(|cache| cache.for_engine(kind)),
            link,
            blocking: ByMetering::default(),
            asynchronous: ByMetering::default(),
            creation: Mutex::default(),
        };
        let cache = this.cache.clone();
        let linked = LinkedEngine::new(engine, cache, link)?;
        this.blocking.cell(usual).get_or_init(|| Arc::new(linked));
        Ok(this)
    }

    /// The memory budget of the guests of all engines.
    pub fn memory(&self) -> &MemoryBudget {
        &self.memory
    }

    /// The cache for entries that do not depend on an engine.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// The engine of this kind. Blocks for a few milliseconds if the engine does not exist yet.
    pub fn get_or_create(&self, kind: EngineKind) -> Result<&Arc<LinkedEngine<D>>, EngineError> {
        let cell = match kind.async_support {
            AsyncSupport::Off => self.blocking.cell(kind.metering),
            AsyncSupport::On => self.asynchronous.cell(kind.metering),
        };
        if let Some(linked) = cell.get() {
            return Ok(linked);
        }
        let cache = match kind.async_support {
            AsyncSupport::Off => None,
            // The bytes of a component determine its kind, so both can share the names of the cache's files, and a
            // start finds the metadata of every component without this engine.
            AsyncSupport::On => {
                self.get_or_create(EngineKind { async_support: AsyncSupport::Off, ..kind })?.cache.clone()
            }
        };
        let _guard = self.creation.lock();
        match cell.get() {
            Some(linked) => Ok(linked),
            None => {
                let engine = Engine::new(&self.limits, &self.memory, kind, &self.ticker)?;
                let cache = cache.or_else(|| self.cache.as_ref().map(|cache| cache.for_engine(kind)));
                let linked = LinkedEngine::new(engine, cache, self.link)?;
                Ok(cell.get_or_init(|| Arc::new(linked)))
            }
        }
    }
}

impl<D: 'static> LinkedEngine<D> {
    fn new(engine: Engine, cache: Option<Cache>, link: LinkImports<D>) -> Result<Self, EngineError> {
        let mut linker = Linker::new(&engine.wasmtime);
        link(&mut linker, engine.kind.async_support).map_err(|e| EngineError(e.to_string()))?;
        Ok(Self { engine, linker, cache })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::cache::CacheLimits;

    #[test]
    fn the_other_engines_are_created_on_first_use() {
        let dir = tempfile::tempdir().unwrap();
        let kind = |metering, async_support| EngineKind { metering, async_support };
        let usual = kind(Metering::Fuel, AsyncSupport::Off);
        let cache = Cache::open(dir.path(), usual, CacheLimits::default()).unwrap();
        let engines =
            Engines::<()>::new(&HostLimits::default(), Metering::Fuel, Some(cache), |_, _| Ok(())).unwrap();
        assert!(
            engines.blocking.cell(Metering::Time).get().is_none(),
            "the second engine is created on demand"
        );
        let get = |kind| Arc::clone(engines.get_or_create(kind).unwrap());
        let by_fuel = get(kind(Metering::Fuel, AsyncSupport::Off));
        let by_time = get(kind(Metering::Time, AsyncSupport::Off));
        let asynchronous = get(kind(Metering::Time, AsyncSupport::On));
        assert!(
            Arc::ptr_eq(&by_time, &get(kind(Metering::Time, AsyncSupport::Off))),
            "the engine is created once"
        );
        let digest = toolbay_state::digest::Digest::of(b"x");
        let file = |linked: &LinkedEngine<()>| linked.cache.as_ref().unwrap().code_file(&digest);
        assert_ne!(file(&by_fuel), file(&by_time), "the meterings have separate code files");
        assert_eq!(file(&by_time), file(&asynchronous), "a component is compiled for one of these two");
    }
}
