//! The wasmtime engine with the settings that the sandbox rests on, and the clock that interrupts guests.
//!
//! Epochs let a spinning guest be interrupted and make it give way to others, fuel counts its work where a policy wants it
//! counted, the pooling allocator makes a fresh instance per call cheap. Every proposal we do not need is off; a component that uses
//! one is refused by name (see [`refused_features`]).

pub(crate) mod admission;
pub(crate) mod bindings;
pub(crate) mod blocking;
pub(crate) mod breaker;
pub(crate) mod engines;
pub(crate) mod instance;
pub(crate) mod limiter;
pub(crate) mod machine;
pub(crate) mod native;
pub(crate) mod shortage;
pub(crate) mod state;
pub(crate) mod stdio;
pub(crate) mod turn;
pub(crate) mod warm;

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolbay_core::call::invoke::nested::MAX_DEPTH;
use toolbay_core::pipeline::memory::MemoryBudget;
use toolbay_policy::limits::{HostLimits, Limits, MAX_MEMORY_BYTES};
use wasmparser::{Validator, WasmFeatures};
use wasmtime::{Config, Enabled, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::engine::turn::Turns;
use crate::error::HostError;

/// Bytes of a page of linear memory: a multiple of the system's.
const PAGE: u64 = 64 << 10;

/// A slice of time: how often a running guest gives way and looks at its deadline.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// The same while a tick finds guests that compute. A quiet plugin's call waits for about one such slice, however many of
/// them there are; to give way costs about a hundredth of it.
const BUSY_TICK: Duration = Duration::from_micros(500);

/// The proposals a guest may use: what LLVM's wasm32-wasip2 and the JavaScript and Python toolchains emit. Tail calls are
/// QuickJS's. Several memories are what wasmtime itself needs, to copy from one part of a component to another; of a
/// guest's modules the pool takes none that has two.
const FEATURES: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::CALL_INDIRECT_OVERLONG)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::BULK_MEMORY_OPT)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::FLOATS)
    .union(WasmFeatures::COMPONENT_MODEL);

/// What bounds how much guests compute. Their code is compiled for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Metering {
    /// Their work is counted, and time bounds them.
    Fuel,
    /// Time alone.
    Time,
}

impl Metering {
    /// What bounds an entry under these limits.
    pub(crate) fn of(limits: &Limits) -> Self {
        if limits.fuel.is_some() { Self::Fuel } else { Self::Time }
    }
}

/// What there is once for each kind of engine, made when it is first asked for: most hosts and plugins need one of two.
#[derive(Debug)]
pub(crate) struct ByMetering<T> {
    fuel: OnceLock<T>,
    time: OnceLock<T>,
}

impl<T> Default for ByMetering<T> {
    fn default() -> Self {
        Self { fuel: OnceLock::new(), time: OnceLock::new() }
    }
}

impl<T> ByMetering<T> {
    /// The place for one of them.
    pub(crate) fn of(&self, metering: Metering) -> &OnceLock<T> {
        match metering {
            Metering::Fuel => &self.fuel,
            Metering::Time => &self.time,
        }
    }
}

/// One engine.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) wasmtime: wasmtime::Engine,
    pub(crate) metering: Metering,
    /// The memory of all guests of the host.
    pub(crate) memory: MemoryBudget,
    /// Which makes time pass in it.
    ticker: Ticker,
}

impl Engine {
    /// Makes an engine in which a ticker makes time pass.
    pub(crate) fn new(
        limits: &HostLimits,
        memory: &MemoryBudget,
        metering: Metering,
        ticker: &Ticker,
    ) -> Result<Self, HostError> {
        let wasmtime = pooled(limits, memory, metering).or_else(|error| {
            tracing::warn!(%error, "no instance pool; instances are allocated on demand");
            on_demand(metering)
        })?;
        ticker.tick_for(&wasmtime);
        Ok(Self { wasmtime, metering, memory: memory.clone(), ticker: ticker.clone() })
    }

    /// An engine that only compiles, and compiles the same: no pool, and no time passes.
    pub(crate) fn compiling(metering: Metering) -> Result<Self, HostError> {
        // Its instances say what they are, and end.
        let memory = MemoryBudget::new("guest_memory", MAX_MEMORY_BYTES);
        let wasmtime = on_demand(metering)?;
        Ok(Self { wasmtime, metering, memory, ticker: Ticker::standing() })
    }

    /// Who computes.
    pub(crate) fn turns(&self) -> &Turns {
        &self.ticker.turns
    }
}

fn on_demand(metering: Metering) -> Result<wasmtime::Engine, HostError> {
    wasmtime::Engine::new(&config(metering)).map_err(|e| HostError::Engine(e.to_string()))
}

/// The pool reserves address space for every slot; where that is not to be had (`RLIMIT_AS`, a small machine) this
/// fails, and instances are allocated on demand: slower, otherwise the same.
fn pooled(
    limits: &HostLimits,
    memory: &MemoryBudget,
    metering: Metering,
) -> wasmtime::Result<wasmtime::Engine> {
    let slots = slots(limits);
    // What places that are free keep is on top of the budget: a quarter of it at most.
    let most = memory.limit() / 4 / u64::from(slots) / PAGE * PAGE;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let engine = |scan, keep_resident| {
        let mut config = config(metering);
        let pool = pool(slots, scan, most.min(keep_resident));
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        wasmtime::Engine::new(&config)
    };
    // Keeping many pages is a gain only where the kernel (Linux 6.7) can say which of them are dirty.
    engine(Enabled::Yes, 1 << 20).or_else(|_| engine(Enabled::No, 64 << 10))
}

fn config(metering: Metering) -> Config {
    let mut config = Config::new();
    config
        .wasm_features(WasmFeatures::all(), false)
        .wasm_features(FEATURES, true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(metering == Metering::Fuel)
        .max_wasm_stack(512 << 10)
        .async_stack_size(2 << 20)
        .wasm_backtrace_max_frames(NonZeroUsize::new(16));
    config
}

/// Instances that there may be at once.
fn slots(limits: &HostLimits) -> u32 {
    // Those that call others are in the pool while they wait for them, beside those that have a place.
    let steps = u32::try_from(MAX_DEPTH).unwrap_or(u32::MAX);
    let slots = limits.parallel_calls.saturating_add(limits.callers().saturating_mul(steps));
    // And those that wait for another call.
    slots.saturating_add(limits.idle_instances)
}

fn pool(slots: u32, scan: Enabled, keep_resident: usize) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(64 * slots)
        .total_memories(8 * slots)
        .total_tables(32 * slots)
        .total_stacks(2 * slots)
        .max_memory_size(usize::try_from(MAX_MEMORY_BYTES).unwrap_or(usize::MAX))
        .table_elements(65_536)
        .max_core_instance_size(2 << 20)
        .max_component_instance_size(2 << 20)
        .linear_memory_keep_resident(keep_resident)
        .table_keep_resident(keep_resident)
        .pagemap_scan(scan)
        .max_unused_warm_slots(slots.max(100));
    pool
}

/// What makes time pass in the engines of a host: one thread, which ends when nobody has the ticker any more, and all who
/// compute in them.
#[derive(Clone)]
pub(crate) struct Ticker {
    engines: Arc<Mutex<Vec<EngineWeak>>>,
    turns: Turns,
}

impl Ticker {
    /// One that goes.
    pub(crate) fn start() -> Result<Self, HostError> {
        let this = Self::standing();
        let (engines, turns) = (Arc::downgrade(&this.engines), this.turns.clone());
        // Advances the epoch every 5 ms, every 2.5 ms while guests compute. Ends with the last engine of its host; it holds none.
        let thread = std::thread::Builder::new().name("toolbay-ticker".to_owned());
        let thread = thread.spawn(move || tick(&engines, &turns));
        thread.map(drop).map_err(|e| HostError::Engine(format!("no thread for the ticker: {e}")))?;
        Ok(this)
    }

    fn standing() -> Self {
        Self { engines: Arc::default(), turns: Turns::default() }
    }

    fn tick_for(&self, engine: &wasmtime::Engine) {
        self.engines.lock().push(engine.weak());
    }
}

/// Advances the epochs, until nobody has the ticker.
fn tick(engines: &Weak<Mutex<Vec<EngineWeak>>>, turns: &Turns) {
    while let Some(engines) = engines.upgrade() {
        for engine in engines.lock().iter() {
            if let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
            }
        }
        drop(engines);
        std::thread::sleep(if turns.any_computes() { BUSY_TICK } else { TICK });
    }
}

/// The proposals that a component uses and this host does not allow, by name; empty if it is invalid for another
/// reason. Asked only when compiling failed.
pub(crate) fn refused_features(bytes: &[u8]) -> Vec<String> {
    let valid = |features: WasmFeatures| Validator::new_with_features(features).validate_all(bytes).is_ok();
    if valid(FEATURES) || !valid(WasmFeatures::all()) {
        return Vec::new();
    }
    WasmFeatures::all()
        .difference(FEATURES)
        .iter_names()
        .filter(|(_, feature)| !valid(WasmFeatures::all().difference(*feature)))
        .map(|(name, _)| name.to_ascii_lowercase().replace('_', "-"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_that_is_off_is_named() {
        for (text, name) in [
            ("(component (core module (memory i64 1)))", "memory64"),
            ("(component (core module (type (struct))))", "gc"),
            ("(component (core module (memory 1 1 shared)))", "threads"),
            ("(component (core module (tag)))", "exceptions"),
            ("(component (type (future)))", "cm-async"),
        ] {
            let bytes = wat::parse_str(text).unwrap();
            let names = refused_features(&bytes);
            assert!(names.iter().any(|n| n == name), "{text}: {names:?}");
            let engine = Engine::compiling(Metering::Fuel).unwrap();
            assert!(
                wasmtime::component::Component::new(&engine.wasmtime, &bytes).is_err(),
                "{text} compiles"
            );
        }
        assert!(
            refused_features(&wat::parse_str("(component (core module (memory 1)))").unwrap()).is_empty()
        );
        assert!(refused_features(b"\0asm\x0d\0\x01\0garbage").is_empty());
    }

    #[test]
    fn time_passes_in_all_engines_and_the_ticker_ends_with_the_last() {
        let ticker = Ticker::start().unwrap();
        let memory = MemoryBudget::new("guest_memory", MAX_MEMORY_BYTES);
        let pool = pooled(&HostLimits::default(), &memory, Metering::Time);
        assert!(pool.is_ok(), "this machine has the address space");
        let engines = [Metering::Fuel, Metering::Time]
            .map(|metering| Engine::new(&HostLimits::default(), &memory, metering, &ticker).unwrap());
        let (engines_of_ticker, start) = (Arc::downgrade(&ticker.engines), std::time::Instant::now());
        drop(ticker);
        for engine in engines {
            let mut store = wasmtime::Store::new(&engine.wasmtime, ());
            if engine.metering == Metering::Fuel {
                store.set_fuel(u64::MAX).unwrap();
            }
            store.set_epoch_deadline(2);
            let spin = wat::parse_str("(module (func (export \"f\") (loop br 0)))").unwrap();
            let module = wasmtime::Module::new(&engine.wasmtime, spin).unwrap();
            let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
            let run = instance.get_typed_func::<(), ()>(&mut store, "f").unwrap();
            let ended = run.call(&mut store, ()).unwrap_err();
            assert_eq!(ended.downcast_ref::<wasmtime::Trap>(), Some(&wasmtime::Trap::Interrupt));
        }
        while engines_of_ticker.strong_count() > 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "the ticker outlives its engines");
            std::thread::sleep(TICK);
        }
    }
}
