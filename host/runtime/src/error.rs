//! Errors of the host, and the reasons why a plugin is not loaded.

use std::path::PathBuf;

use toolbay_core::registry::Collision;
use toolbay_distribution::lock::LockError;
use toolbay_policy::PolicyError;
use toolbay_policy::name::{NameError, PluginId, ToolName};
use toolbay_sandbox::compile::CompileError;
use toolbay_sandbox::compile::compiler::NoCompiler;
use toolbay_sandbox::engine::EngineError;

/// The host itself failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// wasmtime could not create an engine.
    #[error("the wasmtime engine could not be created: {0}")]
    Engine(String),
    /// This program was built without the feature `compiler`, and the embedder named no compile worker.
    #[error(
        "this program was built without the feature `compiler` of the crate `toolbay`: name a program that compiles with \
         `HostBuilder::compile_worker`, such as the installed `toolbay`"
    )]
    NoCompiler,
    /// The policy names something that this program was built without.
    #[error("the policy does not fit this program: {0}")]
    Policy(PolicyError),
    /// The embedder's TLS root certificates cannot be parsed.
    #[error("{0}")]
    Tls(String),
    /// The plugin directory cannot be read.
    #[error("the plugin directory `{path}` cannot be read: {error}", path = .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The lock cannot be used.
    #[error("the lock {0}")]
    Lock(LockError),
    /// The lock does not exist.
    #[error("the lock `{path}` does not exist", path = .0.display())]
    LockGone(PathBuf),
    /// The redactor cannot be built from the policy's secrets.
    #[error("the secrets of the policy cannot be used: {0}")]
    Secrets(String),
    /// The native tool's definition is invalid, or its name is taken.
    #[error("the native tool was not registered: {0}")]
    Native(String),
}

impl From<EngineError> for HostError {
    fn from(EngineError(problem): EngineError) -> Self {
        Self::Engine(problem)
    }
}

impl From<NoCompiler> for HostError {
    fn from(NoCompiler: NoCompiler) -> Self {
        Self::NoCompiler
    }
}

impl From<CompileError> for LoadError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Host(problem) => Self::Host(problem),
            error => Self::Compile(error),
        }
    }
}

/// The reason why one plugin was not loaded. Other plugins are not affected.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// The path is not a regular file.
    #[error("is a {0}, not a file")]
    NotAFile(&'static str),
    /// The file is larger than the limit.
    #[error("has {size} bytes, but the limit is {limit}")]
    TooLarge {
        /// The file's size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The component does not compile.
    #[error(transparent)]
    Compile(CompileError),
    /// The component exports no interface that Toolbay can call.
    #[error("{0}")]
    WrongWorld(String),
    /// The component imports an interface that the host does not have.
    #[error("{0}")]
    UnknownImport(String),
    /// The plugin misbehaved or broke the contract while the host queried its metadata.
    #[error("{0}")]
    Metadata(String),
    /// The file name is not a valid plugin id.
    #[error("{0}; rename the file, or give it an id in the policy: [plugins.ID] file = …")]
    InvalidId(#[from] NameError),
    /// The policy uses the id for another tool source.
    #[error(
        "plugin id `{id}` is the name of {table} in the policy; rename the file, or give it an id in the \
         policy: [plugins.ID] file = …"
    )]
    ReservedId {
        /// The id.
        id: PluginId,
        /// The section of the policy that uses the name.
        table: String,
    },
    /// Two files have the same id.
    #[error("plugin id `{0}` is already taken by another file")]
    DuplicateId(PluginId),
    /// A tool or reducer of the same name is already registered.
    #[error(transparent)]
    Collision(#[from] Collision),
    /// The file's digest differs from the one that the policy pins.
    #[error("has SHA-256 {found}, but the policy pins {pinned}")]
    DigestMismatch {
        /// The digest of the file.
        found: String,
        /// The digest in the policy.
        pinned: String,
    },
    /// The lock names a component that the store does not have.
    #[error("is locked, but its component is not on this machine; `toolbay fetch` downloads it")]
    MissingBlob,
    /// The content of a component in the store is not the locked one.
    #[error("has SHA-256 {found}, but the lock pins {locked}; `toolbay fetch` downloads it again")]
    CorruptBlob {
        /// The digest of the file.
        found: String,
        /// The digest in the lock.
        locked: String,
    },
    /// The policy has a section for a tool that the plugin does not have.
    #[error("has no tool `{tool}`, for which the policy has a section ([plugins.{plugin}.tools.{tool}])")]
    UnknownToolSection {
        /// The plugin.
        plugin: PluginId,
        /// The tool.
        tool: ToolName,
    },
    /// The plugin does not accept a setting in the policy.
    #[error("{}", setting(.plugin, .key, *.line, .problem))]
    InvalidSetting {
        /// The plugin.
        plugin: PluginId,
        /// The key in `[plugins.ID.config]`.
        key: String,
        /// The line in the policy, from 1.
        line: Option<usize>,
        /// The reason.
        problem: String,
    },
    /// The policy names a file that does not exist.
    #[error("is named by the policy ([plugins.{0}]), but is not in the plugin directory")]
    MissingFile(PluginId),
    /// The new version would be granted more than the operator agreed to.
    #[error("{0}")]
    ConsentRequired(String),
    /// The directory can no longer be read.
    #[error("{0}; plugins that were loaded from it stay loaded")]
    DirectoryGone(String),
    /// The host failed while it loaded the plugin.
    #[error("the host failed: {0}")]
    Host(String),
}

fn setting(plugin: &PluginId, key: &str, line: Option<usize>, problem: &str) -> String {
    let line = line.map(|line| format!(", line {line} of the policy")).unwrap_or_default();
    format!("does not take the setting `{key}` ([plugins.{plugin}.config]{line}): {problem}")
}
