//! The floor: wasmtime alone, with the settings of `host/runtime/src/engine.rs`.

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
pub(crate) struct State {
    wasi: WasiCtx,
    table: ResourceTable,
    limits: wasmtime::StoreLimits,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// What is imported and not there traps when it is called. Not by `define_unknown_imports_as_traps`, which compares
/// exact names and would hide WASI of another patch version.
fn trap_the_rest(engine: &Engine, component: &Component, linker: &mut Linker<State>) {
    for (name, item) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(instance) = item.ty else { continue };
        if name.starts_with("wasi:") {
            continue;
        }
        for (function, item) in instance.exports(engine) {
            if matches!(item.ty, ComponentItem::ComponentFunc(_)) {
                let mut at = linker.instance(name).unwrap();
                // What is there already stays.
                drop(at.func_new(function, |_, _, _, _| Err(wasmtime::format_err!("not there"))));
            }
        }
    }
}

/// A component, a linker, and nothing else.
pub(crate) struct Bare {
    engine: Engine,
    pre: bindings::ExportsToolsPre<State>,
}

impl Bare {
    /// The echo.
    pub(crate) fn new() -> Self {
        Self::over(guest_artifacts::BENCH_ECHO, |_| {})
    }

    /// A guest, and what it imports beside WASI.
    pub(crate) fn over(guest: &str, imports: impl FnOnce(&mut Linker<State>)) -> Self {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(64)
            .total_core_instances(1280)
            .total_memories(128)
            .total_tables(256)
            .total_stacks(128)
            .max_memory_size(1 << 30)
            .table_elements(65_536)
            .max_core_instance_size(2 << 20)
            .max_component_instance_size(2 << 20)
            .linear_memory_keep_resident(1 << 20)
            .table_keep_resident(1 << 20)
            .pagemap_scan(Enabled::Auto)
            .max_unused_warm_slots(100);
        let mut config = Config::new();
        config
            .concurrency_support(false)
            .epoch_interruption(true)
            .consume_fuel(true)
            .max_wasm_stack(512 << 10)
            .wasm_backtrace_max_frames(NonZeroUsize::new(16))
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config).unwrap();
        let component = Component::from_file(&engine, guest).unwrap();
        let mut linker: Linker<State> = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        imports(&mut linker);
        trap_the_rest(&engine, &component, &mut linker);
        let pre = bindings::ExportsToolsPre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
        Self { engine, pre }
    }

    /// `bounded`: also what any host that bounds its guests has to set.
    pub(crate) async fn call(&self, bounded: bool) {
        assert_eq!(self.tool("echo", ARGS, bounded).await, ARGS);
    }

    /// A fresh instance, and one call of a tool.
    pub(crate) async fn tool(&self, name: &str, args: &str, bounded: bool) -> String {
        self.within(name, args, bounded.then_some(16 << 20)).await
    }

    /// The same, with room for texts of many MiB.
    pub(crate) async fn roomy(&self, name: &str, args: &str) -> String {
        self.within(name, args, Some(64 << 20)).await
    }

    /// `crossing`: how much may cross from the guest at once, if it is bounded.
    async fn within(&self, name: &str, args: &str, crossing: Option<usize>) -> String {
        let limits = wasmtime::StoreLimitsBuilder::new().memory_size(256 << 20).build();
        let state = State { wasi: WasiCtx::builder().build(), table: ResourceTable::new(), limits };
        let mut store = Store::new(&self.engine, state);
        store.set_fuel(20_000_000_000).unwrap();
        store.set_epoch_deadline(1_000_000);
        if let Some(bytes) = crossing {
            store.limiter(|state| &mut state.limits);
            store.set_hostcall_fuel(bytes);
            store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
        }
        let guest = self.pre.instantiate_async(&mut store).await.unwrap();
        let answer =
            guest.toolbay_plugin_tools().call_call(&mut store, name, &args.to_owned()).await.unwrap();
        answer.unwrap().value
    }
}
