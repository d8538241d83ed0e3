//! The attribute macros of `toolbay`: native tools from Rust functions and types.
//!
//! They read what the macros of `toolbay-sdk` read, so a function moves between a plugin and a host unchanged, apart from
//! capabilities, which native code does not have. Use them through `toolbay`: the generated code names `::toolbay`.
//!
//! | macro | on | generates |
//! |---|---|---|
//! | `#[tool]` | a function | `NAME::tool()`, which makes the tool |
//! | `#[tools]` | an `impl` block | `TYPE::tools(value)`, which makes the tools of its methods with `#[tool]` |
//! | `#[data]` | a struct or enum | `Serialize`, `Deserialize` and `JsonSchema`, without these crates in the manifest |

mod methods;
mod options;
mod tool;

use proc_macro::TokenStream;
use quote::quote;

/// Makes a function a native tool: `host.register(NAME::tool()?)`.
///
/// The doc comment becomes the description that a model reads, the arguments become the JSON Schema. Types of arguments
/// are `Deserialize` and `JsonSchema`. The result is `IntoToolResult`. An argument of the type `&CallContext` gets the
/// context of the call and is no argument of the model.
///
/// | option | meaning |
/// |---|---|
/// | `name = "…"` | name of the tool; default: the function's name |
/// | `title = "…"` | a title for people |
/// | `toolset = "…"`, `tags = ["…", …]`, `search_hint = "…"` | group label, further labels, further words for search |
/// | `read_only`, `additive`, `idempotent`, `closed_world` | the effects of the tool |
/// | `untrusted_output`, `needs_approval`, `deferred`, `always_include` | how the host should treat it |
/// | `max_result_chars = N`, `timeout_ms = N` | limits; the default timeout is 30 s |
/// | `serial`, `serial = "QUEUE"` | its calls run one after the other, with those of all tools of the queue |
/// | `cache_ms = N` | how long a session may reuse a result |
///
/// Arguments take a doc comment and `#[arg(default = …, range(min = …, max = …), length(min = …, max = …),
/// regex("…"))]`. An argument with a default, or of type `Option<T>`, may be left out.
///
/// A function without `async` runs on the thread of the call, so it must not block.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes the methods with `#[tool(…)]` of a block tools of a shared value: `host.register(TYPE::tools(value)?)`, where
/// `value` is an `Arc<TYPE>`.
#[proc_macro_attribute]
pub fn tools(options: TokenStream, item: TokenStream) -> TokenStream {
    methods::expand(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives `Serialize`, `Deserialize` and `JsonSchema`. `#[serde(…)]` and `#[schemars(…)]` stand below it.
#[proc_macro_attribute]
pub fn data(options: TokenStream, item: TokenStream) -> TokenStream {
    syn::parse_macro_input!(options as syn::parse::Nothing);
    let item = proc_macro2::TokenStream::from(item);
    let attributes = tool::data_attributes(&quote!(::toolbay::__private::serde::Serialize,));
    quote!(#attributes #item).into()
}
