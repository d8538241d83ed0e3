//! What operators change in the files of a server: switches of tools, and grants of plugins. The program that serves
//! implements it, because it knows where the files are.

use futures_util::future::BoxFuture;
use serde::Serialize;

/// The files of a server that operators change.
pub trait OperatorFiles: Send + Sync {
    /// Disables a tool with a reason, or enables it without one. Blocks.
    ///
    /// # Errors
    /// The tool is unknown, or the file cannot be written.
    fn switch_tool(&self, tool: &str, disabled: Option<&str>) -> Result<(), String>;

    /// The number of plugins that wait for consent; 0 if the files of the server cannot be read. It loads none of them, and
    /// reads one small file at most.
    fn count_held_plugins(&self) -> usize;

    /// The plugins that wait for the operator's consent.
    fn held_plugins(&self) -> BoxFuture<'_, Result<Vec<HeldPlugin>, String>>;

    /// Grants a held plugin what [`HeldPlugin::lines`] says. `digest` is what the operator saw.
    fn grant<'a>(
        &'a self,
        plugin: &'a str,
        digest: &'a str,
        by: &'a str,
    ) -> BoxFuture<'a, Result<(), GrantError>>;
}

/// Why a plugin was not granted.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// The plugin is not held, or the version is another one.
    #[error("{0}")]
    Changed(String),
    /// The host failed.
    #[error("{0}")]
    Failed(String),
}

/// A plugin that waits for the operator's consent.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HeldPlugin {
    /// The plugin's id.
    pub plugin: String,
    /// The version that it claims.
    pub version: Option<String>,
    /// SHA-256 of the component, in hex.
    pub digest: String,
    /// Where an update comes from, and who signed it; empty for a file of the plugin directory.
    pub origin: Vec<(String, String)>,
    /// Why it is held, a sentence each.
    pub reasons: Vec<String>,
    /// What its tools declare.
    pub asks_for: Vec<AskedCapability>,
    /// The lines that the consent adds to the policy.
    pub lines: Vec<String>,
    /// What it gets that it did not have.
    pub gains: Vec<String>,
    /// What it loses.
    pub loses: Vec<String>,
    /// What changes for callers; absent if no other version is known.
    pub changes: Option<VersionChanges>,
}

/// A declared capability.
#[derive(Debug, Clone, Serialize)]
pub struct AskedCapability {
    /// The key of the policy.
    pub key: String,
    /// What the tools want to access.
    pub target: String,
    /// Whether the tools also work without it.
    pub optional: bool,
    /// The author's reasons.
    pub reasons: Vec<String>,
}

/// The differences between two versions.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VersionChanges {
    /// Lists of names: what happened, and the names.
    pub lists: Vec<(String, Vec<String>)>,
    /// The tools that changed.
    pub tools: Vec<ToolChanges>,
}

/// The differences of one tool.
#[derive(Debug, Clone, Serialize)]
pub struct ToolChanges {
    /// The tool.
    pub tool: String,
    /// What it means for callers.
    pub impact: String,
    /// Where the schema changed, and how.
    pub schema: Vec<(String, String)>,
    /// The description before and after, if it changed.
    pub description: Option<(String, String)>,
}
