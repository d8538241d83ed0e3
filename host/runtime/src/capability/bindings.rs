//! Bindings that wasmtime generates from the contract: one module for the imports, one for each optional export. The
//! records are generated once, in `imports`, and shared. `wit/toolbay` is a link that puts the contract into the package of
//! this crate.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    reason = "generated from the contract, documented there"
)]
#![allow(clippy::all, clippy::pedantic, reason = "generated")]

pub(crate) mod imports {
    wasmtime::component::bindgen!({
        path: "wit/toolbay",
        world: "toolbay:plugin/imports",
        imports: {
            "toolbay:plugin/attachments": async,
            "toolbay:plugin/files": async,
            "toolbay:plugin/http-client": async,
            "toolbay:plugin/kv": async,
            "toolbay:plugin/process": async,
        },
        additional_derives: [PartialEq],
    });
}

pub(crate) use imports::toolbay::plugin as host;

pub(crate) mod callers {
    wasmtime::component::bindgen!({
        path: "wit/toolbay",
        inline: "package toolbay:host; world only { import toolbay:plugin/tool-invoke@0.1.0; }",
        world: "toolbay:host/only",
        imports: { default: async },
        with: { "toolbay:plugin/types": crate::capability::bindings::tools::toolbay::plugin::types },
    });
}

pub(crate) mod tools {
    wasmtime::component::bindgen!({
        path: "wit/toolbay",
        world: "toolbay:plugin/exports-tools",
        exports: { default: async },
        additional_derives: [PartialEq],
    });
}

pub(crate) mod reducers {
    wasmtime::component::bindgen!({
        path: "wit/toolbay",
        world: "toolbay:plugin/exports-reducers",
        exports: { default: async },
        with: { "toolbay:plugin/types": crate::capability::bindings::tools::toolbay::plugin::types },
    });
}

pub(crate) mod about {
    wasmtime::component::bindgen!({
        path: "wit/toolbay",
        world: "toolbay:plugin/exports-about",
        exports: { default: async },
        with: { "toolbay:plugin/types": crate::capability::bindings::tools::toolbay::plugin::types },
    });
}

pub(crate) mod availability {
    wasmtime::component::bindgen!({
        path: "wit/toolbay",
        world: "toolbay:plugin/exports-availability",
        exports: { default: async },
    });
}

pub(crate) mod wasi_config {
    wasmtime::component::bindgen!({ path: "wit/config.wit", world: "wasi:config/imports" });
}

pub(crate) mod wasi_keyvalue {
    wasmtime::component::bindgen!({
        path: "wit/keyvalue.wit",
        world: "wasi:keyvalue/imports",
        imports: { default: async | trappable },
        with: { "wasi:keyvalue/store.bucket": crate::capability::open_bucket::OpenBucket },
    });
}

pub(crate) use tools::toolbay::plugin::types;
