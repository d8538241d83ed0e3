//! What is heard while plugins are loaded: that a component is compiled, and that this has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolbay_policy::name::PluginId;

/// What is heard while plugins are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadEvent<'a> {
    /// A component that is not in the cache is being compiled.
    Compiling {
        /// Its plugin.
        plugin: &'a PluginId,
        /// Its size in bytes.
        bytes: u64,
    },
    /// Compiling has ended, well or not; what went wrong is told otherwise.
    Compiled {
        /// Its plugin.
        plugin: &'a PluginId,
        /// How long it took.
        elapsed: Duration,
    },
}

/// Hears what happens while plugins are loaded, and when one that is called has to be compiled again.
pub type LoadListener = Arc<dyn Fn(LoadEvent<'_>) + Send + Sync>;

/// A compilation that is told of, and of whose end is told, also if it is given up.
pub(crate) struct CompileProgress<'a> {
    listener: Option<&'a LoadListener>,
    plugin: &'a PluginId,
    start: Instant,
}

impl<'a> CompileProgress<'a> {
    pub(crate) fn begin(listener: Option<&'a LoadListener>, plugin: &'a PluginId, bytes: u64) -> Self {
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
