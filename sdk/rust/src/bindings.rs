//! What `wit-bindgen` writes from the contract in `wit/`, one module per world.
//!
//! The worlds with one export each are what lets a component have just the exports its author listed. They share the
//! types of `imports`, so that a tool's output and a reducer's input are the same Rust type.

#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "generated code: the calling convention of components is raw pointers"
)]

/// Everything that a plugin may import. Unused imports do not become part of a component.
pub mod imports {
    wit_bindgen::generate!({
        path: "wit",
        world: "imports-of-callers",
        features: ["tool-invoke"],
        additional_derives: [PartialEq],
        generate_all,
        generate_unused_types: true,
    });
}

/// The export `tools`.
pub mod tools_world {
    wit_bindgen::generate!({
        path: "wit",
        world: "exports-tools",
        with: { "toolbay:plugin/types@0.1.0": crate::bindings::imports::toolbay::plugin::types },
        pub_export_macro: true,
        export_macro_name: "export_tools",
    });
}

/// The export `tools-async`.
#[cfg(feature = "async-tools")]
pub mod async_tools_world {
    wit_bindgen::generate!({
        path: "wit",
        world: "exports-tools-async",
        features: ["async-tools"],
        with: { "toolbay:plugin/types@0.1.0": crate::bindings::imports::toolbay::plugin::types },
        pub_export_macro: true,
        export_macro_name: "export_async_tools",
    });
}

/// The export `reducers`.
pub mod reducers_world {
    wit_bindgen::generate!({
        path: "wit",
        world: "exports-reducers",
        with: { "toolbay:plugin/types@0.1.0": crate::bindings::imports::toolbay::plugin::types },
        pub_export_macro: true,
        export_macro_name: "export_reducers",
    });
}

/// The export `about`.
pub mod about_world {
    wit_bindgen::generate!({
        path: "wit",
        world: "exports-about",
        with: { "toolbay:plugin/types@0.1.0": crate::bindings::imports::toolbay::plugin::types },
        pub_export_macro: true,
        export_macro_name: "export_about",
    });
}

/// The export `availability`.
pub mod availability_world {
    wit_bindgen::generate!({
        path: "wit",
        world: "exports-availability",
        pub_export_macro: true,
        export_macro_name: "export_availability",
    });
}
