//! The baseline: wasmtime alone, with the settings of `host/sandbox/src/engine.rs`.

use std::num::NonZeroUsize;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store, UpdateDeadline,
};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

mod bindings {
    #![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "generated")]
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "toolbay:plugin/exports-tools",
        exports: { default: async },
    });
}

/// 100 bytes of arguments.
pub(crate) const ARGS: &str =
    r#"{"text":"Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod temp"}"#;
pub(crate) struct FloorState {
    wasi: WasiCtx,
    table: ResourceTable,
    limits: wasmtime::StoreLimits,
}

impl WasiView for FloorState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// Missing imports trap when they are called. `define_unknown_imports_as_traps` compares
/// exact names and would shadow WASI of another patch version.
fn trap_the_rest(engine: &Engine, component: &Component, linker: &mut Linker<FloorState>) {
    for (name, item) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(instance) = item.ty else { continue };
        if name.starts_with("wasi:") {
            continue;
        }
        for (function, item) in instance.exports(engine) {
            if matches!(item.ty, ComponentItem::ComponentFunc(_)) {
                let mut at = linker.instance(name).unwrap();
                // Existing definitions stay.
                drop(at.func_new(function, |_, _, _, _| Err(wasmtime::format_err!("not there"))));
            }
        }
    }
}

/// The bounds of a computing guest. Their code has a cost. This host uses both, unless a policy says `fuel = "none"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldInstance {
    /// Epoch interruption.
    pub(crate) by_epochs: bool,
    /// Fuel.
    pub(crate) by_fuel: bool,
}

impl HeldInstance {
    /// The default of this host.
    pub(crate) const BY_BOTH: Self = Self { by_epochs: true, by_fuel: true };
}

/// A component, a linker, and nothing else.
pub(crate) struct BareStore {
    engine: Engine,
    pre: bindings::ExportsToolsPre<FloorState>,
    held: HeldInstance,
}

impl BareStore {
    /// The echo.
    pub(crate) fn new() -> Self {
        Self::over(guest_artifacts::BENCH_ECHO, |_| {})
    }

    /// A guest, and its imports beside WASI.
    pub(crate) fn over(guest: &str, imports: impl FnOnce(&mut Linker<FloorState>)) -> Self {
        Self::held(guest, HeldInstance::BY_BOTH, imports)
    }

    /// The same with these bounds.
    pub(crate) fn held(
        guest: &str,
        held: HeldInstance,
        imports: impl FnOnce(&mut Linker<FloorState>),
    ) -> Self {
        Self::of_many(guest, held, 64, imports)
    }

    /// The same with this number of instances in the pool.
    pub(crate) fn of_many(
        guest: &str,
        held: HeldInstance,
        instances: u32,
        imports: impl FnOnce(&mut Linker<FloorState>),
    ) -> Self {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(instances)
            .total_core_instances(20 * instances)
            .total_memories(2 * instances)
            .total_tables(4 * instances)
            .total_stacks(2 * instances)
            .max_memory_size(1 << 30)
            .table_elements(65_536)
            .max_core_instance_size(2 << 20)
            .max_component_instance_size(2 << 20)
            .linear_memory_keep_resident(1 << 20)
            .table_keep_resident(1 << 20)
            .pagemap_scan(Enabled::Auto)
            .max_unused_warm_slots(instances.max(100));
        let mut config = Config::new();
        config
            .concurrency_support(false)
            .epoch_interruption(held.by_epochs)
            .consume_fuel(held.by_fuel)
            .max_wasm_stack(512 << 10)
            .wasm_backtrace_max_frames(NonZeroUsize::new(16))
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config).unwrap();
        let component = Component::from_file(&engine, guest).unwrap();
        let mut linker: Linker<FloorState> = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        imports(&mut linker);
        trap_the_rest(&engine, &component, &mut linker);
        let pre = bindings::ExportsToolsPre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
        Self { engine, pre, held }
    }

    /// `bounded`: with the limits that any host of untrusted guests sets.
    pub(crate) async fn call(&self, bounded: bool) {
        assert_eq!(self.tool("echo", ARGS, bounded).await, ARGS);
    }

    /// A fresh instance, and one call of a tool.
    pub(crate) async fn tool(&self, name: &str, args: &str, bounded: bool) -> String {
        self.within(name, args, bounded.then_some(16 << 20)).await
    }

    /// The same with room for texts of many MiB.
    pub(crate) async fn roomy(&self, name: &str, args: &str) -> String {
        self.within(name, args, Some(64 << 20)).await
    }

    /// The number of imported functions.
    pub(crate) fn imports(&self) -> usize {
        let ty = self.pre.instance_pre().component().component_type();
        ty.imports(&self.engine)
            .map(|(_, item)| match item.ty {
                ComponentItem::ComponentInstance(instance) => instance
                    .exports(&self.engine)
                    .filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)))
                    .count(),
                _ => 1,
            })
            .sum()
    }

    /// An instance that has served one call and still exists.
    pub(crate) async fn live(&self, name: &str, args: &str) -> impl Sized {
        let (mut store, guest) = self.instance(Some(16 << 20)).await;
        let tools = guest.toolbay_plugin_tools();
        tools.call_call(&mut store, name, &args.to_owned()).await.unwrap().unwrap();
        (store, guest)
    }

    /// `crossing`: the limit for one transfer from the guest, if there is one.
    async fn within(&self, name: &str, args: &str, crossing: Option<usize>) -> String {
        let (mut store, guest) = self.instance(crossing).await;
        let answer =
            guest.toolbay_plugin_tools().call_call(&mut store, name, &args.to_owned()).await.unwrap();
        answer.unwrap().value
    }

    async fn instance(&self, crossing: Option<usize>) -> (Store<FloorState>, bindings::ExportsTools) {
        let limits = wasmtime::StoreLimitsBuilder::new().memory_size(256 << 20).build();
        let state = FloorState { wasi: WasiCtx::builder().build(), table: ResourceTable::new(), limits };
        let mut store = Store::new(&self.engine, state);
        if self.held.by_fuel {
            store.set_fuel(u64::MAX).unwrap();
        }
        store.set_epoch_deadline(1_000_000);
        if let Some(bytes) = crossing {
            store.limiter(|state| &mut state.limits);
            store.set_hostcall_fuel(bytes);
            store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
        }
        let guest = self.pre.instantiate_async(&mut store).await.unwrap();
        (store, guest)
    }
}
