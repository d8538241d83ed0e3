//! Bindings that wasmtime generates for what components export by the contract. `toolbay-capabilities` generates the types.
//! `wit/toolbay` is a link that puts the contract into the package of this crate.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    reason = "generated from the contract, documented there"
)]
#![allow(clippy::all, clippy::pedantic, reason = "generated")]

pub(crate) mod reducers {
    wasmtime::component::bindgen!({
        path: "wit/toolbay",
        world: "toolbay:plugin/exports-reducers",
        exports: { default: async },
        with: { "toolbay:plugin/types": toolbay_capabilities::bindings::types },
    });
}

pub(crate) mod about {
    wasmtime::component::bindgen!({
        path: "wit/toolbay",
        world: "toolbay:plugin/exports-about",
        exports: { default: async },
        with: { "toolbay:plugin/types": toolbay_capabilities::bindings::types },
    });
}

pub(crate) mod availability {
    wasmtime::component::bindgen!({
        path: "wit/toolbay",
        world: "toolbay:plugin/exports-availability",
        exports: { default: async },
    });
}
