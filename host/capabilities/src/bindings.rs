//! Bindings that wasmtime generates for what guests import: from the contract, and from WASI proposals that wasmtime does
//! not implement. `wit/toolbay` is a link that puts the contract into the package of this crate.

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
        with: { "toolbay:plugin/types": crate::bindings::imports::toolbay::plugin::types },
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
        with: { "wasi:keyvalue/store.bucket": crate::kv::open_bucket::OpenBucket },
    });
}

pub use imports::toolbay::plugin::types;
