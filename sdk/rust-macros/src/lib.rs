//! The attribute macros of `toolbay-sdk`.
//!
//! An author writes functions, doc comments and types. These macros derive the rest. Use them through
//! `toolbay_sdk::prelude`: the code that they generate names `::toolbay_sdk`.
//!
//! | macro | on | generates |
//! |---|---|---|
//! | `#[tool]` | a function | a description of the function and code that calls it with JSON |
//! | `#[tools]` | an `impl` block of the settings | the same for its methods with `#[tool]` |
//! | `#[reducer("tool")]` | a function | the same for a reducer |
//! | `#[data]` | a struct or enum | `Serialize`, `Deserialize`, its schema, and code that reads it as an argument |
//! | `plugin!` | once per crate | the component's exports |
//!
//! The description belongs to an empty type with the name of the function. Types and functions have different
//! namespaces, so `plugin! { tools: [word_count] }` finds both through one path, also after `use`.

mod argument;
mod capability;
mod data;
mod example;
mod limits;
mod methods;
mod offers;
mod plugin;
mod reducer;
mod tool;
mod tool_options;

use proc_macro::TokenStream;

/// Makes a function a tool.
///
/// The doc comment becomes the description the model reads, the arguments become the JSON Schema, the return type
/// (a type that is `IntoOutput`) the output. The crate documentation of `toolbay-sdk` has a complete program.
///
/// | option | meaning |
/// |---|---|
/// | `name = "…"` | name of the tool; default: the function's name |
/// | `title = "…"` | a title for people |
/// | `toolset = "…"` | group label |
/// | `tags = ["…", …]` | further labels |
/// | `read_only`, `additive`, `idempotent`, `closed_world` | the effects of the tool |
/// | `untrusted_output`, `needs_approval`, `deferred`, `always_include` | how the host should treat it |
/// | `max_result_chars = N`, `timeout_ms = N` | limits that the tool requests |
/// | a kind of capability: `fs_read`, `net`, `clock`, … | a capability, `= "target"` or `= ["target", …]`, or alone if the kind has no target; repeatable |
/// | `meta = "{…}"` | further metadata, which the host passes on |
/// | `optional(…)` | capabilities the tool also works without |
/// | `reason = "…"` | the reason for the capability right before it |
/// | `example(args = "{…}", …)` | a call that `toolbay test` makes; it must succeed, or give the `value = "…"`, `contains = "…"`, `structured = "{…}"` or `error = "input-invalid"`; repeatable |
///
/// Arguments take a doc comment and `#[arg(default = …, range(min = …, max = …), length(min = …, max = …),
/// regex("…"))]`. An argument with a default, or of type `Option<T>`, may be left out.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes methods tools: each method with `#[tool(…)]` in the block is one.
///
/// `self` holds the operator's settings of the plugin. The type has `#[data]`, is read for each call, and its
/// schema documents the settings. In `plugin!`, the type stands among the tools.
#[proc_macro_attribute]
pub fn tools(options: TokenStream, item: TokenStream) -> TokenStream {
    methods::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a function a reducer: `fn(&ToolResult, &ReduceContext) -> Option<ToolResult>`.
///
/// The attribute names the tool whose results it reduces. The doc comment becomes the reducer's description.
#[proc_macro_attribute]
pub fn reducer(options: TokenStream, item: TokenStream) -> TokenStream {
    reducer::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives `Serialize` and `Deserialize` without `serde` in the author's manifest, and generates the type's schema.
///
/// `#[serde(…)]` attributes stand below it, as with the derives. `#[schemars(…)]` adds to fields: `range`, `length`,
/// `regex` as in `#[arg]`, `description = "…"`, and `with = "Type"` for a field with the schema of another type.
#[proc_macro_attribute]
pub fn data(options: TokenStream, item: TokenStream) -> TokenStream {
    data::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Exports tools and reducers from the component, with the metadata of `Cargo.toml`.
///
/// `plugin! { tools: [word_count, grep], reducers: [head] }`. Leave out an empty list; the component then lacks that
/// export. `async_tools` instead of `tools` lets `async` tools await imports of WASI 0.3.
/// `available: check` names a function that decides which tools are available.
/// `config: Settings` names the type of the operator's settings, which the host checks when it loads the plugin. The
/// type of `#[tools]` need not be named. `offers: "offers.json"` embeds prompts, resources and icons; the path is relative to `Cargo.toml`.
/// `reusable: true` declares that one instance may serve several calls, one after the other. The operator can then
/// allow this within a session, so state left by one call must not harm the next.
#[proc_macro]
pub fn plugin(input: TokenStream) -> TokenStream {
    plugin::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
