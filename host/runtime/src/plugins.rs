//! Plugins: their files and the file states ([`state`]), their code and their tools.

pub(crate) mod availability;
pub(crate) mod bindings;
pub(crate) mod code;
pub(crate) mod consent_gate;
pub(crate) mod descriptor;
pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod inotify;
pub(crate) mod installed;
pub(crate) mod isolated_entry;
pub(crate) mod loader;
pub(crate) mod loading;
pub(crate) mod memory_estimate;
mod missing_import;
pub(crate) mod plain_component;
pub(crate) mod plugin;
pub(crate) mod prompts_and_resources;
pub(crate) mod reducer;
pub mod reducers;
pub(crate) mod report;
pub(crate) mod resident_code;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod switches;
pub(crate) mod tool;
pub(crate) mod tool_result;

use crate::error::LoadError;

/// Runs CPU-bound or blocking work on tokio's blocking threads.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(LoadError::Host(e.to_string())))
}
