//! Write Toolbay plugins in Rust: functions, doc comments and types, nothing else.
//!
//! ```
//! use toolbay_sdk::prelude::*;
//!
//! /// How often a word occurs.
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
//!     /// Count only words of at least that many letters.
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
//! With `crate-type = ["cdylib", "rlib"]`, `cargo build --target wasm32-wasip2 --release` makes a component of that which
//! the host can load; `cargo test` runs the functions as they are, and [`testing`] plays the host for them. Put
//! `strip = true`, `lto = true` and `opt-level = "s"` into the release profile: it is a tenth of the size.
//!
//! A tool without a doc comment does not compile, because a model cannot choose what it cannot read about:
//!
//! ```compile_fail
//! # use toolbay_sdk::prelude::*;
//! #[tool(read_only)]
//! fn undescribed() -> String {
//!     String::new()
//! }
//! ```
//!
//! Which tools are available may depend on the operator's settings. A function in `plugin! { …, available: check }` is
//! asked for each tool, and a tool it has a reason against is not listed:
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
//! It sees the settings and nothing else.
//!
//! Tools that all read the same settings can be methods of their type:
//!
//! ```
//! use toolbay_sdk::prelude::*;
//! use toolbay_sdk::testing::{Fake, call_method};
//!
//! /// What the operator may set.
//! #[data]
//! struct Greeting {
//!     /// How people are greeted.
//!     word: String,
//! }
//!
//! #[tools]
//! impl Greeting {
//!     /// Greet somebody.
//!     #[tool(read_only)]
//!     fn greet(
//!         &self,
//!         /// Who.
//!         name: String,
//!     ) -> String {
//!         format!("{} {name}", self.word)
//!     }
//! }
//!
//! plugin! { tools: [Greeting] }
//!
//! # fn main() {
//! let fake = Fake::new().config("word", "Salut");
//! let output = fake.run(|| call_method::<Greeting>("greet", json!({"name": "Ada"}))).unwrap();
//! assert_eq!(output.value, "Salut Ada");
//! let error = Fake::new().run(|| call_method::<Greeting>("greet", json!({"name": "Ada"}))).unwrap_err();
//! assert_eq!(error.subject(), Some("config"));
//! # }
//! ```
//!
//! What a component imports is what its code uses of these modules, and the host compares that with what was granted:
//!
//! | module | what for | capability |
//! |---|---|---|
//! | [`context`] | progress, cancellation, budget, who asks | none |
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

/// What the macros write names these; nothing here is for authors, and it may change at any time.
#[doc(hidden)]
pub mod __private {
    pub use serde;

    pub use crate::about::{AboutPlugin, AboutSpec, ExportedAbout};
    pub use crate::argument::{Members, Unknown, read_by_serde, read_choice};
    pub use crate::available::{AvailabilityPlugin, ExportedAvailability};
    pub use crate::bindings::about_world::{self, export_about};
    pub use crate::bindings::availability_world::{self, export_availability};
    pub use crate::bindings::reducers_world::{self, export_reducers};
    pub use crate::bindings::tools_world::{self, export_tools};
    pub use crate::reduce::{ExportedReducers, Reducer, ReducerPlugin, ReducerSpec};
    pub use crate::tool::{
        CapabilitySpec, ExportedTools, Tool, ToolPlugin, ToolSpec, Toolset, check_names, default_json,
        finish, output_schema,
    };
    pub use crate::types::ToolTraits;
}
