//! Toolbay: a plugin host that runs the tools of LLM agents from WebAssembly components, in a sandbox.
//!
//! Each call gets a fresh instance under bounds on fuel, time, memory and output; what a plugin may reach is what its
//! author declared and its operator granted, nothing by default.
//!
//! ```no_run
//! use std::path::Path;
//! use toolbay::{Filter, Host, Policy, ToolCall, TurnContext};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::parse(&std::fs::read_to_string("toolbay.toml")?, Path::new("/srv/agent"), None)?;
//! let host = Host::builder(policy).cache_dir("/var/cache/my-agent").build()?;
//! let report = host.load_dir(Path::new("plugins")).await?;
//! for problem in &report.problems {
//!     eprintln!("{}: {}", problem.file.display(), problem.error);
//! }
//!
//! let view = host.view(Filter::default());
//! let calls = vec![
//!     ToolCall::new("call-1", "text__word_count", r#"{"text": "a b a"}"#),
//!     ToolCall::new("call-2", "files__read_file", r#"{"path": "notes.txt"}"#),
//! ];
//! for delivered in host.call_all(&view, calls, TurnContext::default()).await {
//!     match delivered.result {
//!         Ok(output) => println!("{}: {}", delivered.call_id, output.value),
//!         Err(failure) => println!("{} failed: {failure}", delivered.call_id),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A whole program is in `examples/embed.rs`. Needs a tokio runtime with timers; works on Unix.

mod admission;
mod answer;
mod bindings;
mod cache;
mod capability;
mod code;
mod descriptor;
mod digest;
mod engine;
mod error;
mod file;
mod host;
mod instance;
mod limiter;
mod loader;
mod native;
mod plugin;
mod reducer;
mod state;
mod stdio;
mod tool;

pub use descriptor::About;
pub use error::{HostError, LoadError};
pub use file::MAX_COMPONENT_BYTES;
pub use host::{Host, HostBuilder, LoadProblem, LoadReport, LoadWarning, PluginInfo};
pub use loader::{LoadEvent, LoadListener};

pub use toolbay_core as core;
pub use toolbay_core::call::{ToolCall, TurnContext};
pub use toolbay_core::name::PluginId;
pub use toolbay_core::pipeline::Delivered;
pub use toolbay_core::policy::Policy;
pub use toolbay_core::view::{Filter, View};
