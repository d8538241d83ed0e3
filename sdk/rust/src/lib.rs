//! Write Toolbay plugins in Rust, with functions, doc comments and types.
//!
//! ```
//! use toolbay_sdk::prelude::*;
//!
//! /// The number of words.
//! #[data]
//! pub struct WordCount {
//!     words: usize,
//! }
//!
//! /// Count the words of a text.
//! #[tool(toolset = "text", read_only, idempotent, closed_world)]
//! pub fn word_count(
//!     /// The text.
//!     text: String,
//!     /// Count only words with at least this many letters.
//!     #[arg(default = 1, range(min = 1, max = 100))]
//!     min_letters: usize,
//! ) -> Result<Json<WordCount>> {
//!     if text.is_empty() {
//!         return Err(Error::input("the text is empty").at("/text"));
//!     }
//!     let words = text.split_whitespace().filter(|word| word.chars().count() >= min_letters).count();
//!     Ok(Json(WordCount { words }))
//! }
//!
//! /// Keeps the first line.
//! #[reducer("word_count")]
//! pub fn first_line(input: &ToolResult, _ctx: &ReduceContext) -> Option<ToolResult> {
//!     let output = input.as_ref().ok()?;
//!     let (value, _rest) = output.value.split_once('\n')?;
//!     Some(Ok(Output { value: value.to_owned(), ..output.clone() }))
//! }
//!
//! plugin! { tools: [word_count], reducers: [first_line] }
//! # fn main() {}
//! ```
//!
//! With `crate-type = ["cdylib", "rlib"]`, `cargo build --target wasm32-wasip2 --release` builds a component that
//! the host can load. `cargo test` runs the functions natively, and [`testing`] provides a fake host. Put
//! `strip = true`, `lto = true` and `opt-level = "s"` into the release profile to get a tenth of the size.
//!
//! A tool without a doc comment does not compile, because a model chooses tools by their descriptions:
//!
//! ```compile_fail
//! # use toolbay_sdk::prelude::*;
//! #[tool(read_only)]
//! fn undescribed() -> String {
//!     String::new()
//! }
//! ```
//!
//! Availability may depend on the operator's settings. The function in `plugin! { …, available: check }` is called for
//! each tool. A tool for which it returns a reason is not listed:
//!
//! ```
//! # use toolbay_sdk::{config, prelude::*};
//! # /// Searches.
//! # #[tool(read_only)]
//! # fn search() -> String { String::new() }
//! fn check(tool: &str) -> std::result::Result<(), String> {
//!     match config::get::<String>("index") {
//!         Ok(Some(_)) => Ok(()),
//!         _ => Err(format!("`{tool}` needs `index` in the settings of this plugin")),
//!     }
//! }
//!
//! plugin! { tools: [search], available: check }
//! # fn main() {}
//! ```
//!
//! The function sees the settings and nothing else.
//!
//! Tools that share the same settings can be methods of the settings type:
//!
//! ```
//! use toolbay_sdk::prelude::*;
//! use toolbay_sdk::testing::{FakeHost, call_method};
//!
//! /// The settings of the operator.
//! #[data]
//! struct Greeting {
//!     /// The word of the greeting.
//!     word: String,
//! }
//!
//! #[tools]
//! impl Greeting {
//!     /// Greet somebody.
//!     #[tool(read_only)]
//!     fn greet(
//!         &self,
//!         /// The person's name.
//!         name: String,
//!     ) -> String {
//!         format!("{} {name}", self.word)
//!     }
//! }
//!
//! plugin! { tools: [Greeting] }
//!
//! # fn main() {
//! let fake = FakeHost::new().config("word", "Salut");
//! let output = fake.run(|| call_method::<Greeting>("greet", json!({"name": "Ada"}))).unwrap();
//! assert_eq!(output.value, "Salut Ada");
//! let error = FakeHost::new().run(|| call_method::<Greeting>("greet", json!({"name": "Ada"}))).unwrap_err();
//! assert_eq!(error.subject(), Some("config"));
//! # }
//! ```
//!
//! Tools may be `async`. Those in `async_tools: […]` instead of `tools: […]` may also await imports of WASI 0.3, such
//! as a clock. This needs the feature `async-tools`:
//!
//! ```
//! # use toolbay_sdk::prelude::*;
//! # async fn wait_for(nanoseconds: u64) {}
//! /// Wait a second.
//! #[tool(read_only)]
//! async fn pause() {
//!     wait_for(1_000_000_000).await;
//! }
//!
//! plugin! { async_tools: [pause] }
//! # fn main() {}
//! ```
//!
//! A component imports the modules that its code uses. The host compares the imports with the grants:
//!
//! | module | purpose | capability |
//! |---|---|---|
//! | [`context`] | progress, cancellation, budget, caller | none |
//! | [`log`] | lines for the operator | none |
//! | [`config`] | the operator's settings | none |
//! | [`files`] | files, with a guard against blind overwrites | `fs_read`, `fs_write` |
//! | [`kv`] | state that outlives the call | `kv` |
//! | [`secrets`] | credentials | `secret` |
//! | [`http`] | HTTP through the host's policy | `net` |
//! | [`process`] | programs on the operator's list | `process` |
//! | [`attachments`] | files of the conversation | `attachments` |
//! | [`invoke`] | other tools | `invoke` |

mod about;
pub mod argument;
pub mod attachments;
mod available;
mod bindings;
pub mod config;
pub mod context;
mod error;
pub mod files;
#[cfg(not(target_family = "wasm"))]
mod host;
#[rustfmt::skip]
mod host_errors;
pub mod http;
pub mod invoke;
pub mod kv;
pub mod log;
mod output;
pub mod prelude;
pub mod process;
mod reduce;
pub mod schema;
pub mod secrets;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod tool;

#[cfg(target_family = "wasm")]
use bindings::imports::toolbay::plugin as host;

pub use bindings::imports::toolbay::plugin::types;
pub use error::{Error, Result};
pub use output::{IntoOutput, Json, Output, Rendered};
pub use reduce::ReduceContext;
pub use serde_json;
pub use toolbay_sdk_macros::{data, plugin, reducer, tool, tools};
pub use types::ToolResult;

/// The macros use these items. They are not for authors and may change at any time.
#[doc(hidden)]
pub mod __private {
    pub use serde;

    pub use crate::about::{AboutPlugin, AboutSpec, ExportedAbout};
    pub use crate::argument::{Members, UnknownMembers, read_by_serde, read_choice};
    pub use crate::available::{AvailabilityPlugin, ExportedAvailability};
    pub use crate::bindings::about_world::{self, export_about};
    #[cfg(feature = "async-tools")]
    pub use crate::bindings::async_tools_world::{self, export_async_tools};
    pub use crate::bindings::availability_world::{self, export_availability};
    pub use crate::bindings::reducers_world::{self, export_reducers};
    pub use crate::bindings::tools_world::{self, export_tools};
    #[cfg(not(feature = "async-tools"))]
    pub use crate::export_async_tools;
    pub use crate::reduce::{ExportedReducers, Reducer, ReducerPlugin, ReducerSpec};
    pub use crate::tool::{
        CapabilitySpec, ExportedTools, Tool, ToolFunction, ToolFuture, ToolPlugin, ToolSpec, Toolset,
        check_names, default_json, output_schema,
    };
    pub use crate::types::ToolTraits;
}

/// Takes the place of the export.
#[cfg(not(feature = "async-tools"))]
#[doc(hidden)]
#[macro_export]
macro_rules! export_async_tools {
    ($($tokens:tt)*) => {
        ::core::compile_error!("`async_tools` needs the feature `async-tools` of `toolbay-sdk`");
    };
}
