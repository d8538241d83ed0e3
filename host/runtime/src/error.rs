//! What can go wrong on the host's side, and why a plugin was not loaded.

use std::path::PathBuf;

use toolbay_core::registry::Collision;
use toolbay_core::tool::schema::SchemaError;
use toolbay_policy::name::{NameError, PluginId, ToolName};

/// The host itself failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No engine could be made.
    #[error("the wasm engine could not be made: {0}")]
    Engine(String),
    /// The TLS roots that the embedder adds cannot be read.
    #[error("{0}")]
    Tls(String),
    /// The plugin directory cannot be read.
    #[error("the plugin directory `{path}` cannot be read: {error}", path = .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The secrets cannot be kept out of results.
    #[error("the secrets of the policy cannot be used: {0}")]
    Secrets(String),
    /// A native tool's definition is not sound, or its name is taken.
    #[error("the native tool was not registered: {0}")]
    Native(String),
}

/// Why one plugin was not loaded; the others are not touched by it.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// Not a regular file.
    #[error("is a {0}, not a file")]
    NotAFile(&'static str),
    /// Larger than what is read.
    #[error("has {size} bytes; at most {most} are read")]
    TooLarge {
        /// Its size.
        size: u64,
        /// The bound.
        most: u64,
    },
    /// Not a WebAssembly component.
    #[error("{0}")]
    NotAComponent(&'static str),
    /// Uses proposals this host does not allow.
    #[error("uses WebAssembly features that this host does not allow: {0}")]
    Feature(String),
    /// Holds more of something than is compiled.
    #[error("is too complex: it has {0}")]
    TooComplex(String),
    /// Compiling took more time or memory than it may.
    #[error("was not compiled: {0}")]
    Compile(String),
    /// Does not compile.
    #[error("is not a valid component: {0}")]
    Invalid(String),
    /// Exports nothing of ours.
    #[error("{0}")]
    WrongWorld(String),
    /// Imports something the host does not have.
    #[error("imports what this host does not have: {0}")]
    Import(String),
    /// The plugin misbehaved or broke the contract when it was asked what it is.
    #[error("{0}")]
    Metadata(String),
    /// The file's name gives no plugin id.
    #[error("{0}; name it otherwise, or give it an id in the policy: [plugins.ID] file = …")]
    Id(#[from] NameError),
    /// The policy gives its id to another source.
    #[error(
        "plugin id `{id}` is the name of {table} in the policy; name the file otherwise, or give it an id in the policy: [plugins.ID] file = …"
    )]
    Reserved {
        /// The id.
        id: PluginId,
        /// The section that has the name.
        table: String,
    },
    /// Two files for one id.
    #[error("plugin id `{0}` is already taken by another file")]
    DuplicateId(PluginId),
    /// A tool or reducer of that name is there.
    #[error(transparent)]
    Collision(#[from] Collision),
    /// The bytes are not the ones the operator pinned.
    #[error("has SHA-256 {found}, but the policy pins {pinned}")]
    Digest {
        /// The digest of the bytes.
        found: String,
        /// The digest in the policy.
        pinned: String,
    },
    /// The policy has a section for a tool that the plugin does not have.
    #[error("has no tool `{tool}`, for which the policy has a section ([plugins.{plugin}.tools.{tool}])")]
    Section {
        /// The plugin.
        plugin: PluginId,
        /// The tool.
        tool: ToolName,
    },
    /// The policy has a setting that the plugin does not take.
    #[error("{}", setting(.plugin, .key, *.line, .problem))]
    Setting {
        /// The plugin.
        plugin: PluginId,
        /// The key below `[plugins.ID.config]`.
        key: String,
        /// The line of the policy on which it stands, from 1.
        line: Option<usize>,
        /// What is wrong with it.
        problem: String,
    },
    /// The policy names a file that is not there.
    #[error("is named by the policy ([plugins.{0}]), but is not in the plugin directory")]
    Absent(PluginId),
    /// It would get more than its older version, and nobody has agreed to that.
    #[error("{0}")]
    Held(String),
    /// The directory cannot be read any more.
    #[error("{0}; what was loaded from it goes on")]
    DirectoryGone(String),
    /// The host failed while loading it.
    #[error("the host failed: {0}")]
    Host(String),
}

fn setting(plugin: &PluginId, key: &str, line: Option<usize>, problem: &str) -> String {
    let line = line.map(|line| format!(", line {line} of the policy")).unwrap_or_default();
    format!("does not take the setting `{key}` ([plugins.{plugin}.config]{line}): {problem}")
}

impl From<SchemaError> for LoadError {
    fn from(error: SchemaError) -> Self {
        Self::Metadata(error.to_string())
    }
}
