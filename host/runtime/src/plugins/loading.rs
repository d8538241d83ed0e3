//! Events for embedders while plugins are loaded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolbay_policy::name::PluginId;

/// An event while plugins are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadEvent<'a> {
    /// A component that is not cached is being compiled.
    Compiling {
        /// The plugin's id.
        plugin: &'a PluginId,
        /// The size of the component in bytes.
        bytes: u64,
    },
    /// The compilation ended. An error is reported elsewhere.
    Compiled {
        /// The plugin's id.
        plugin: &'a PluginId,
        /// The duration of the compilation.
        elapsed: Duration,
    },
}

/// Receives events while plugins are loaded, and when a called plugin must be compiled again.
pub type LoadListener = Arc<dyn Fn(LoadEvent<'_>) + Send + Sync>;

/// Emits the start and the end of a compilation, also if it is abandoned.
pub(crate) struct CompileProgress<'a> {
    listener: Option<&'a LoadListener>,
    plugin: &'a PluginId,
    start: Instant,
}

impl<'a> CompileProgress<'a> {
    pub(crate) fn start(listener: Option<&'a LoadListener>, plugin: &'a PluginId, bytes: u64) -> Self {
        if let Some(listener) = listener {
            listener(LoadEvent::Compiling { plugin, bytes });
        }
        Self { listener, plugin, start: Instant::now() }
    }
}

impl Drop for CompileProgress<'_> {
    fn drop(&mut self) {
        if let Some(listener) = self.listener {
            listener(LoadEvent::Compiled { plugin: self.plugin, elapsed: self.start.elapsed() });
        }
    }
}
