//! The attribute macros of `toolbay-sdk`.
//!
//! An author writes functions, doc comments and types; these macros derive the rest. They are used through
//! `toolbay_sdk::prelude`, never directly: the code they write names `::toolbay_sdk`.
//!
//! | macro | on | writes |
//! |---|---|---|
//! | `#[tool]` | a function | a description of the function and a way to call it with JSON |
//! | `#[tools]` | an `impl` block of the settings | the same for its methods with `#[tool]` |
//! | `#[reducer("tool")]` | a function | the same for a reducer |
//! | `#[data]` | a struct or enum | `Serialize`, `Deserialize`, its schema, and how it is read as an argument |
//! | `plugin!` | once per crate | the component's exports |
//!
//! What is described hangs on an empty type with the function's own name: types and functions live in different
//! name spaces, so `plugin! { tools: [word_count] }` finds both through one path, also through `use`.

mod argument;
mod capability;
mod data;
mod docs;
mod example;
mod limits;
mod methods;
mod offers;
mod plugin;
mod reducer;
mod suggestion;
mod tool;
mod tool_options;

use proc_macro::TokenStream;

/// Makes a tool of a function.
///
/// The doc comment becomes the description the model reads, the arguments become the JSON Schema, the return type
/// (anything that is `IntoOutput`) the output. See the crate documentation of `toolbay-sdk` for a whole program.
///
/// | option | meaning |
/// |---|---|
/// | `name = "…"` | name of the tool; default: the function's name |
/// | `title = "…"` | a title for people |
/// | `toolset = "…"` | group label |
/// | `tags = ["…", …]` | further labels |
/// | `read_only`, `additive`, `idempotent`, `closed_world` | what the tool does to the world |
/// | `untrusted_output`, `needs_approval`, `deferred`, `always_include` | how the host should treat it |
/// | `max_result_chars = N`, `timeout_ms = N` | limits the tool asks for |
/// | `fs_read`, `fs_write`, `net`, `process`, `secret`, `kv`, `env`, `attachments`, `clock` | capabilities, each `= "target"` or `= ["target", …]`, repeatable |
/// | `optional(…)` | capabilities the tool also works without |
/// | `reason = "…"` | why; explains the capability written right before it |
/// | `example(args = "{…}", …)` | a call that `toolbay test` makes; it succeeds, or as `value = "…"`, `contains = "…"`, `structured = "{…}"` or `error = "input-invalid"` say; repeatable |
///
/// Arguments take a doc comment and `#[arg(default = …, range(min = …, max = …), length(min = …, max = …),
/// regex("…"))]`. An argument with a default, or of type `Option<T>`, may be left out.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes tools of methods: each with `#[tool(…)]` in the block is one.
///
/// `self` is what the operator wrote as the plugin's settings: the type has `#[data]`, is read anew for each call, and its
/// schema tells the operator what may be set. In `plugin!`, the type stands among the tools.
#[proc_macro_attribute]
pub fn tools(options: TokenStream, item: TokenStream) -> TokenStream {
    methods::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a reducer of a function: `fn(&ToolResult, &ReduceContext) -> Option<ToolResult>`.
///
/// The attribute names the tool whose results it takes; a doc comment becomes the reducer's description.
#[proc_macro_attribute]
pub fn reducer(options: TokenStream, item: TokenStream) -> TokenStream {
    reducer::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives `Serialize` and `Deserialize` without `serde` in the author's manifest, and writes down the type's schema.
///
/// `#[serde(…)]` attributes go below it, as with the derives. Of fields, `#[schemars(…)]` may say more: `range`, `length`,
/// `regex` as in `#[arg]`, `description = "…"`, and `with = "Type"` for a field whose schema is another type's.
#[proc_macro_attribute]
pub fn data(options: TokenStream, item: TokenStream) -> TokenStream {
    data::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Exports tools and reducers from the component, and what `Cargo.toml` says about the crate.
///
/// `plugin! { tools: [word_count, grep], reducers: [head] }`; a list that would be empty is left out, and then the
/// component does not have that export either. `available: check` names a function that is asked which tools are
/// available. `config: Settings` names the type of the operator's settings, which the host checks when it loads the plugin;
/// that of `#[tools]` need not be named. `offers: "offers.json"` embeds prompts, resources and icons, by a path from `Cargo.toml`.
/// `reusable: true` declares that one instance may answer several calls, one after the other, which the operator can then
/// allow within a session: nothing that one call leaves behind may harm the next.
#[proc_macro]
pub fn plugin(input: TokenStream) -> TokenStream {
    plugin::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
