//! The wasmtime engine with the sandbox settings, and the ticker that interrupts guests.
//!
//! Epochs interrupt a spinning guest and make it yield. Fuel counts a guest's work where the policy sets a limit. The
//! pooling allocator makes a fresh instance per call cheap. Every WebAssembly proposal that guests do not need is off;
//! the error for a component that uses one names it (`compile/cranelift`).

use std::num::NonZeroUsize;
use std::sync::{Arc, Once, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolbay_core::call::invoke::nested::MAX_DEPTH;
use toolbay_core::pipeline::memory::MemoryBudget;
use toolbay_policy::limits::{CallLimits, HostLimits, MAX_MEMORY_BYTES};
use toolbay_policy::quantity;
use wasmparser::{Parser, Payload, Validator, WasmFeatures};
use wasmtime::{
    Config, Enabled, EngineWeak, InstanceAllocationStrategy, ModuleVersionStrategy, PoolingAllocationConfig,
};

use crate::cpu_limiter::CpuLimiter;

/// The release of wasmtime that compiles and runs guests.
pub const WASMTIME_VERSION: &str = wasmtime_environ::VERSION;
/// What a [`code_version`] has before the release of wasmtime.
const CODE_VERSION_START: &str = concat!(env!("CARGO_PKG_VERSION"), " with wasmtime ");

/// wasmtime returned no engine.
#[derive(Debug, thiserror::Error)]
#[error("the wasmtime engine could not be created: {0}")]
pub struct EngineError(pub String);

/// Bytes of a page of WebAssembly linear memory. The system's page size divides it.
const WASM_PAGE_BYTES: u64 = 64 << 10;

/// Memories of the pool for each call.
const MEMORIES_PER_SLOT: u32 = 8;
/// Address space that wasmtime reserves for a memory, apart from guard pages.
const MEMORY_RESERVATION: u64 = 4 << 30;

/// The time slice after which a running guest yields and checks its deadline.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// The time slice while guests compute. A call of a quiet plugin waits for about one slice, however many guests
/// compute. One yield costs about a hundredth of the slice.
const BUSY_TICK: Duration = Duration::from_micros(500);

/// The proposals a guest may use: those that LLVM's wasm32-wasip2 target and the JavaScript and Python toolchains emit.
/// QuickJS needs tail calls. wasmtime itself needs multiple memories, for the adapters that copy between the parts of a
/// component; the pool rejects a guest module with two memories.
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

/// What components of WASI 0.3 may use in addition: `async` functions, streams and futures.
pub(crate) const ASYNC_FEATURES: WasmFeatures = FEATURES.union(WasmFeatures::CM_ASYNC);

/// What bounds the computation of guests. Code is compiled for one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Metering {
    /// Fuel and the deadline.
    Fuel,
    /// The deadline alone.
    Time,
}

impl Metering {
    /// The metering for calls with these limits.
    pub fn from_limits(limits: &CallLimits) -> Self {
        if limits.fuel.is_some() { Self::Fuel } else { Self::Time }
    }
}

/// Whether components may use the asynchronous part of the component model. An engine with it keeps the state of tasks,
/// streams and futures for each store, which a call of a WASI 0.2 component would pay for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AsyncSupport {
    /// WASI 0.2: a function blocks until it returns.
    #[default]
    Off,
    /// WASI 0.3.
    On,
}

impl AsyncSupport {
    /// The support that a component needs: it has asynchronous types or functions, or it imports or exports WASI 0.3.
    /// The compiler reports invalid components.
    pub fn for_component(bytes: &[u8]) -> Self {
        let needs_async = !has_valid_types(bytes, FEATURES) && has_valid_types(bytes, ASYNC_FEATURES);
        if needs_async || names_wasi_0_3(bytes) { Self::On } else { Self::Off }
    }
}

/// Whether a component is valid with these features, apart from the bodies of its functions.
fn has_valid_types(bytes: &[u8], features: WasmFeatures) -> bool {
    let mut validator = Validator::new_with_features(features);
    Parser::new(0)
        .parse_all(bytes)
        .all(|payload| payload.is_ok_and(|payload| validator.payload(&payload).is_ok()))
}

/// Whether a component imports or exports an interface of WASI 0.3. Even those without `async` need the engine that has
/// the rest of WASI 0.3.
fn names_wasi_0_3(bytes: &[u8]) -> bool {
    let is_wasi_0_3 = |name: &str| name.starts_with("wasi:") && name.contains("@0.3.");
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(bytes).map_while(Result::ok) {
        let mut names = match payload {
            Payload::Version { .. } => {
                depth += 1;
                continue;
            }
            Payload::End(_) => {
                depth = depth.saturating_sub(1);
                continue;
            }
            Payload::ComponentImportSection(items) if depth == 1 => {
                items.into_iter().map_while(Result::ok).map(|item| item.name.name).collect::<Vec<_>>()
            }
            Payload::ComponentExportSection(items) if depth == 1 => {
                items.into_iter().map_while(Result::ok).map(|item| item.name.name).collect::<Vec<_>>()
            }
            _ => continue,
        }
        .into_iter();
        if names.any(is_wasi_0_3) {
            return true;
        }
    }
    false
}

/// The settings in which the engines of a host differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineKind {
    /// What bounds the computation.
    pub metering: Metering,
    /// Whether components may be asynchronous.
    pub async_support: AsyncSupport,
}

/// One lazily created value per metering. Most hosts and plugins need only one of the two.
#[derive(Debug)]
pub struct ByMetering<T> {
    fuel: OnceLock<T>,
    time: OnceLock<T>,
}

impl<T> Default for ByMetering<T> {
    fn default() -> Self {
        Self { fuel: OnceLock::new(), time: OnceLock::new() }
    }
}

impl<T> ByMetering<T> {
    /// The cell for one metering.
    pub fn cell(&self, metering: Metering) -> &OnceLock<T> {
        match metering {
            Metering::Fuel => &self.fuel,
            Metering::Time => &self.time,
        }
    }
}

/// A wasmtime engine with its kind, memory budget and ticker.
#[derive(Clone)]
pub struct Engine {
    /// The engine of wasmtime.
    pub wasmtime: wasmtime::Engine,
    /// Its settings.
    pub kind: EngineKind,
    /// The budget of all guests of the host.
    pub memory: MemoryBudget,
    /// Increments the epoch.
    ticker: Ticker,
}

impl Engine {
    /// Creates an engine whose epoch the ticker increments.
    pub(crate) fn new(
        limits: &HostLimits,
        memory: &MemoryBudget,
        kind: EngineKind,
        ticker: &Ticker,
    ) -> Result<Self, EngineError> {
        let wasmtime = pooling_engine(limits, memory, kind).or_else(|error| {
            warn_without_pool(limits, &error);
            on_demand_engine(kind)
        })?;
        ticker.add_engine(&wasmtime);
        Ok(Self { wasmtime, kind, memory: memory.clone(), ticker: ticker.clone() })
    }

    /// An engine that only compiles, with the same code generation: it has no pool and its epoch does not change.
    pub fn for_compiling(kind: EngineKind) -> Result<Self, EngineError> {
        Self::for_compiling_with(kind, |_| Ok(()))
    }

    /// Like [`Self::for_compiling`], with settings of the compiler that do not change the code.
    pub(crate) fn for_compiling_with(
        kind: EngineKind,
        configure: impl FnOnce(&mut Config) -> wasmtime::Result<()>,
    ) -> Result<Self, EngineError> {
        let configured = engine_config(kind).and_then(|mut config| configure(&mut config).map(|()| config));
        let wasmtime = configured.and_then(|config| wasmtime::Engine::new(&config));
        let wasmtime = wasmtime.map_err(|e| EngineError(e.to_string()))?;
        // Nothing runs in this engine, so the budget is never used.
        let memory = MemoryBudget::new("guest_memory", MAX_MEMORY_BYTES);
        Ok(Self { wasmtime, kind, memory, ticker: Ticker::stopped() })
    }

    /// The limiter of guests that compute.
    pub(crate) fn cpu_limiter(&self) -> &CpuLimiter {
        &self.ticker.cpu_limiter
    }
}

/// Says once why there is no pool: a process may have many hosts, and all share its address space.
fn warn_without_pool(limits: &HostLimits, error: &wasmtime::Error) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        let slots = u64::from(pool_slots(limits));
        let memories = slots.saturating_mul(u64::from(MEMORIES_PER_SLOT));
        let reserved = quantity::show_bytes(memories.saturating_mul(MEMORY_RESERVATION));
        let error = format!("{error:#}");
        tracing::warn!(
            error,
            "the instance pool could not be created, and plugins run slower without it: it reserves {reserved} of address \
             space. A limit of the process (`ulimit -v`) or the pools of its other open hosts leave less. A smaller \
             `parallel_calls` in [host] makes the pool smaller"
        );
    });
}

fn on_demand_engine(kind: EngineKind) -> Result<wasmtime::Engine, EngineError> {
    engine_config(kind)
        .and_then(|config| wasmtime::Engine::new(&config))
        .map_err(|e| EngineError(e.to_string()))
}

/// The pool reserves address space for every slot. Where that fails (`RLIMIT_AS`, a small machine), instances are
/// allocated on demand, which is slower but behaves the same.
fn pooling_engine(
    limits: &HostLimits,
    memory: &MemoryBudget,
    kind: EngineKind,
) -> wasmtime::Result<wasmtime::Engine> {
    let slots = pool_slots(limits);
    // Free slots keep memory in addition to the budget, a quarter of the budget at most.
    let max = memory.limit() / 4 / u64::from(slots) / WASM_PAGE_BYTES * WASM_PAGE_BYTES;
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let engine = |scan, keep_resident| {
        let mut config = engine_config(kind)?;
        let pool = pool_config(slots, scan, max.min(keep_resident));
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        wasmtime::Engine::new(&config)
    };
    // Keeping many pages resident pays only where the kernel (Linux 6.7) reports which of them are dirty.
    engine(Enabled::Yes, 1 << 20).or_else(|_| engine(Enabled::No, 64 << 10))
}

/// The version that compiled code carries, and that an engine requires of code that it loads. By default wasmtime compares
/// its major version only, and would load code of a release whose compiler had a bug that this one fixed.
pub(crate) fn code_version() -> String {
    format!("{CODE_VERSION_START}{WASMTIME_VERSION}")
}

/// The release of wasmtime in the [`code_version`] of another program with the same version of Toolbay. `None` for another
/// version of Toolbay.
pub(crate) fn wasmtime_of_same_toolbay(code_version: &str) -> Option<&str> {
    let release = code_version.strip_prefix(CODE_VERSION_START)?;
    release.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then_some(release)
}

fn engine_config(kind: EngineKind) -> wasmtime::Result<Config> {
    let (features, concurrency) = match kind.async_support {
        AsyncSupport::Off => (FEATURES, false),
        AsyncSupport::On => (ASYNC_FEATURES, true),
    };
    let mut config = Config::new();
    config
        .wasm_features(WasmFeatures::all(), false)
        .wasm_features(features, true)
        .concurrency_support(concurrency)
        .epoch_interruption(true)
        .consume_fuel(kind.metering == Metering::Fuel)
        .max_wasm_stack(512 << 10)
        .async_stack_size(2 << 20)
        .wasm_backtrace_max_frames(NonZeroUsize::new(16))
        .module_version(ModuleVersionStrategy::Custom(code_version()))?;
    Ok(config)
}

/// The number of instances that can exist at once.
fn pool_slots(limits: &HostLimits) -> u32 {
    // Calls that wait for nested calls occupy a slot in addition to the calls that run.
    let steps = u32::try_from(MAX_DEPTH).unwrap_or(u32::MAX);
    let slots = limits.parallel_calls.saturating_add(limits.max_nested_callers().saturating_mul(steps));
    // Idle instances occupy a slot, too.
    slots.saturating_add(limits.idle_instances)
}

fn pool_config(slots: u32, scan: Enabled, keep_resident: usize) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(64 * slots)
        .total_memories(MEMORIES_PER_SLOT * slots)
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

/// Increments the epoch of a host's engines in one thread, which ends when the last clone of the ticker is dropped.
#[derive(Clone)]
pub(crate) struct Ticker {
    engines: Arc<Mutex<Vec<EngineWeak>>>,
    cpu_limiter: CpuLimiter,
}

impl Ticker {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self, EngineError> {
        let this = Self::stopped();
        let (engines, cpu_limiter) = (Arc::downgrade(&this.engines), this.cpu_limiter.clone());
        // Increments the epoch every 5 ms, or every 0.5 ms while guests compute. The thread holds no engine and ends
        // with the last engine of its host.
        let thread = std::thread::Builder::new().name("toolbay-ticker".to_owned());
        let thread = thread.spawn(move || tick(&engines, &cpu_limiter));
        thread.map(drop).map_err(|e| EngineError(format!("the ticker thread could not be started: {e}")))?;
        Ok(this)
    }

    fn stopped() -> Self {
        Self { engines: Arc::default(), cpu_limiter: CpuLimiter::default() }
    }

    fn add_engine(&self, engine: &wasmtime::Engine) {
        self.engines.lock().push(engine.weak());
    }
}

/// Increments the epochs until the last clone of the ticker is dropped.
fn tick(engines: &Weak<Mutex<Vec<EngineWeak>>>, cpu_limiter: &CpuLimiter) {
    while let Some(engines) = engines.upgrade() {
        for engine in engines.lock().iter() {
            if let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
            }
        }
        drop(engines);
        std::thread::sleep(if cpu_limiter.is_computing() { BUSY_TICK } else { TICK });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(metering: Metering, async_support: AsyncSupport) -> EngineKind {
        EngineKind { metering, async_support }
    }

    #[test]
    fn only_components_of_wasi_0_3_get_the_asynchronous_engine() {
        for (text, needed) in [
            ("(component (core module (memory 1)))", AsyncSupport::Off),
            ("(component (import \"wasi:cli/exit@0.2.3\" (instance)))", AsyncSupport::Off),
            ("(component (import \"acme:kit/exit@0.3.0\" (instance)))", AsyncSupport::Off),
            ("(component (import \"wasi:cli/exit@0.3.0\" (instance)))", AsyncSupport::On),
            ("(component (type (future)))", AsyncSupport::On),
            ("(component (type (func async)))", AsyncSupport::On),
            ("(component (import \"a\" (instance (type (func async)))))", AsyncSupport::On),
            ("(component (core func (canon waitable-set.new)))", AsyncSupport::On),
            // Not valid with it either.
            ("(component (type (map string u8)))", AsyncSupport::Off),
        ] {
            let bytes = wat::parse_str(text).unwrap();
            assert_eq!(AsyncSupport::for_component(&bytes), needed, "{text}");
        }
        assert_eq!(AsyncSupport::for_component(b"\0asm\x0d\0\x01\0garbage"), AsyncSupport::Off);
    }

    #[test]
    fn the_ticker_drives_all_engines_and_ends_with_the_last() {
        let ticker = Ticker::start().unwrap();
        let memory = MemoryBudget::new("guest_memory", MAX_MEMORY_BYTES);
        let off = AsyncSupport::Off;
        let pool = pooling_engine(&HostLimits::default(), &memory, kind(Metering::Time, off));
        assert!(pool.is_ok(), "this machine has enough address space");
        let engines = [Metering::Fuel, Metering::Time].map(|metering| {
            Engine::new(&HostLimits::default(), &memory, kind(metering, off), &ticker).unwrap()
        });
        let (engines_of_ticker, start) = (Arc::downgrade(&ticker.engines), std::time::Instant::now());
        drop(ticker);
        for engine in engines {
            let mut store = wasmtime::Store::new(&engine.wasmtime, ());
            if engine.kind.metering == Metering::Fuel {
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
