//! Toolbay: a plugin host that runs the tools of LLM agents from WebAssembly components, in a sandbox.
//!
//! Each call gets a fresh instance with bounds on fuel, time, memory and output. A plugin can reach only what its
//! author declared and its operator granted. The default grants nothing.
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
//! `examples/embed.rs` is a complete program. The host needs a tokio runtime with timers enabled, and Unix.

mod backup;
mod conversation;
mod error;
mod explain;
mod host;
mod native;
mod openapi;
mod plugins;
mod server_connector;
mod storage;

/// The release of wasmtime that runs plugins.
pub const WASMTIME_VERSION: &str = "48.0.8";
/// The newest contract between host and plugin: the package of the WIT interfaces.
pub const CONTRACT: &str = "toolbay:plugin@0.1.0";

/// What the code of the macros names.
#[doc(hidden)]
pub mod __private {
    pub use schemars;
    pub use serde;
    pub use toolbay_core::tool::ToolTraits;

    pub use crate::native::define;
    pub use crate::{Bundle, DefinitionError, ToolEntry};
}

/// Compiles the examples of the documentation pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/reference/discovery.md")]
    mod discovery {}
    #[doc = include_str!("../../../docs/reference/tool-formats.md")]
    mod vendors {}
}

pub use backup::{BackupSummary, back_up, restore};
pub use conversation::ConversationTurn;
pub use error::{HostError, LoadError};
pub use explain::{CapabilityExplanation, Explanation, SettingExplanation};
pub use host::known_names::PolicyCheckReport;
pub use host::running::RunningHost;
pub use host::watch::{WatchHandle, WatchOptions, WatchedFile};
pub use host::workers::run_worker;
pub use host::{Host, HostBuilder, PluginInfo, SOURCE_WAIT};
pub use native::{IntoToolResult, Json, Rendered};
pub use openapi::{DocumentState, OpenApiInfo};
pub use plugins::descriptor::PluginAbout;
pub use plugins::loading::{LoadEvent, LoadListener};
pub use plugins::reducers;
pub use plugins::report::{ChangeKind, LoadProblem, LoadReport, LoadWarning, PluginChange};
pub use plugins::resident_code::LoadedCode;
pub use plugins::switches::FileSwitches;
pub use serde_json;
pub use server_connector::saved_tools;
pub use storage::audit::{AuditReader, FileAudit, Retention};
pub use storage::consent::{Agreement, FileConsents};
pub use storage::held_updates::{HeldUpdate, HeldUpdates};
pub use storage::output_store::FileOutputStore;
pub use storage::stop_order::{FileStopOrder, StopOrder};
pub use tokio_util::sync::CancellationToken;
pub use toolbay_capabilities::environment::clock::Clock;
pub use toolbay_capabilities::http::recorded::{RecordedHttp, RecordedRequest, RecordedResponse};
pub use toolbay_capabilities::http::registry::{RegistryClientError, RegistryHttp, registry_secret};
pub use toolbay_capabilities::kv::{EntryInfo, KvUsage, RedbStore, is_store_panic};
pub use toolbay_capabilities::process::guard::PROGRAM_GUARD;
pub use toolbay_core as core;
pub use toolbay_core::approval::{ApprovalReply, ApprovalRequest, Approver, ArgumentsPreview};
pub use toolbay_core::audit::call_log::{CallLog, CallQuery};
pub use toolbay_core::call::invoke::{BoxFuture, Failure};
pub use toolbay_core::call::{
    CallContext, Identity, ProgressAudience, ProgressEvent, ProgressSink, ToolCall, TurnContext,
};
pub use toolbay_core::pipeline::CallResult;
pub use toolbay_core::pipeline::intercept::{Interceptor, InterceptorAction, InterceptorScope};
pub use toolbay_core::registry::event::HostEvent;
pub use toolbay_core::registry::native::DefinitionError;
pub use toolbay_core::registry::native::tool as native_tool;
pub use toolbay_core::registry::view::{Filter, View};
pub use toolbay_core::registry::{Bundle, OnCollision, ToolEntry};
pub use toolbay_core::session::Session;
pub use toolbay_core::tool::content::{ErrorCode, ToolError, ToolOutput};
pub use toolbay_core::tool::fault::{Fault, FaultKind};
pub use toolbay_discovery as discovery;
pub use toolbay_distribution as distribution;
pub use toolbay_macros::{data, tool, tools};
pub use toolbay_mcp as mcp;
pub use toolbay_policy as policy;
pub use toolbay_policy::Policy;
pub use toolbay_policy::name::PluginId;
pub use toolbay_policy::session::SessionLimits;
pub use toolbay_sandbox::compile::worker::COMPILE_WORKER;
pub use toolbay_sandbox::compile::{CompileError, MAX_COMPONENT_BYTES};
pub use toolbay_sandbox::heap::HeapTrimmer;
pub use toolbay_state::private::DEFAULT_STATE_WAIT;
pub use toolbay_state::regular::{open_regular, read_regular, read_regular_text};
pub use toolbay_vendor as vendor;
