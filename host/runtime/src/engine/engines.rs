//! The engines of a host: one that counts the work of guests and one that does not, each with what its guests may import
//! and what was compiled for it. Most hosts need one, and the other is made when a policy first asks for it.
//!
//! Code is compiled for one of them and runs in no other, so code knows its own ([`crate::plugins::code::Code`]). Both have the same
//! ticker and the same turns, and those who may run are counted once for both: two engines are room for more instances, and
//! no more of them run.

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

/// An engine, everything a guest in it may import, linked once for all plugins, and what was compiled for it.
pub(crate) struct Linked {
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
    each: ByMetering<Arc<Linked>>,
    /// Held while one is made.
    making: Mutex<()>,
}

impl Engines {
    /// Makes the engine that most will need.
    pub(crate) fn new(
        limits: &HostLimits,
        usual: Metering,
        cache: Option<(&Path, cache::Bounds)>,
    ) -> Result<Self, HostError> {
        let ticker = Ticker::start()?;
        let memory = limits.guest_memory.unwrap_or(MAX_MEMORY_BYTES);
        let memory = MemoryBudget::new("guest_memory", memory);
        let engine = Engine::new(limits, &memory, usual, &ticker)?;
        let cache = cache.and_then(|(dir, bounds)| {
            Cache::open(dir, &engine, bounds)
                .inspect_err(|problem| tracing::warn!("no compile cache: {problem}"))
                .ok()
        });
        let limits = limits.clone();
        let this =
            Self { limits, memory, ticker, cache, each: ByMetering::default(), making: Mutex::default() };
        let linked = this.link(engine)?;
        this.each.of(usual).get_or_init(|| Arc::new(linked));
        Ok(this)
    }

    /// The memory of all guests, whichever engine they run in.
    pub(crate) fn memory(&self) -> &MemoryBudget {
        &self.memory
    }

    /// The folder of the cache, for what does not depend on an engine.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// The engine that counts, or the one that does not. Blocks for some milliseconds if it is to be made.
    pub(crate) fn of(&self, metering: Metering) -> Result<&Arc<Linked>, HostError> {
        let place = self.each.of(metering);
        if let Some(linked) = place.get() {
            return Ok(linked);
        }
        let _alone = self.making.lock();
        match place.get() {
            Some(linked) => Ok(linked),
            None => {
                let linked = self.link(Engine::new(&self.limits, &self.memory, metering, &self.ticker)?)?;
                Ok(place.get_or_init(|| Arc::new(linked)))
            }
        }
    }

    fn link(&self, engine: Engine) -> Result<Linked, HostError> {
        let linker = linker(&engine).map_err(|e| HostError::Engine(e.to_string()))?;
        let cache = self.cache.as_ref().map(|cache| cache.of_engine(&engine));
        Ok(Linked { engine, linker, cache })
    }
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker: Linker<GuestState> = Linker::new(&engine.wasmtime);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    wasi_files::bound(&mut linker)?;
    capability::sockets::link(&mut linker, |state| &mut state.capabilities)?;
    capability::link(&mut linker, |state| &mut state.capabilities)?;
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_engine_is_made_when_it_is_asked_for_and_its_code_is_kept_apart() {
        let dir = tempfile::tempdir().unwrap();
        let cache = (dir.path(), cache::Bounds::default());
        let engines = Engines::new(&HostLimits::default(), Metering::Fuel, Some(cache)).unwrap();
        assert!(engines.each.of(Metering::Time).get().is_none(), "nobody asked for it");
        let by_fuel = Arc::clone(engines.of(Metering::Fuel).unwrap());
        let by_time = Arc::clone(engines.of(Metering::Time).unwrap());
        assert!(Arc::ptr_eq(&by_time, engines.of(Metering::Time).unwrap()), "it is made once");
        let digest = crate::plugins::digest::sha256(b"x");
        let file = |linked: &Linked| linked.cache.as_ref().unwrap().code_file(&digest);
        assert_ne!(file(&by_fuel), file(&by_time), "what one compiled is never mapped by the other");
    }
}
