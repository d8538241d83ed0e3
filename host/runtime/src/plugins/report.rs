//! What loading and reloading came to, for people and programs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use toolbay_core::tool::diff::ToolChange;
use toolbay_policy::name::PluginId;

use crate::error::LoadError;

/// What loading came to.
#[derive(Debug, Clone, Default)]
pub struct LoadReport {
    /// The plugins that run, in the order of their files.
    pub loaded: Vec<PluginId>,
    /// What was changed by it: what went, then the others, each in the order of their ids.
    pub changes: Vec<PluginChange>,
    /// The files that are not loaded, each with the reason.
    pub problems: Vec<LoadProblem>,
    /// What does not stop a plugin but should be known; of those plugins that were changed.
    pub warnings: Vec<LoadWarning>,
    /// Keys of `[host]` that are other ones in a policy that was read again, and hold from the next start on.
    pub restart: Vec<&'static str>,
}

impl LoadReport {
    /// What two passes came to, one after the other.
    pub(crate) fn then(mut self, later: Self) -> Self {
        self.changes.extend(later.changes);
        self.changes.sort_by(|one, other| one.order().cmp(&other.order()));
        self.warnings.extend(later.warnings);
        self.warnings.sort_by(|one, other| one.plugin.cmp(&other.plugin));
        self.restart.extend(later.restart);
        Self { loaded: later.loaded, problems: later.problems, ..self }
    }
}

/// A plugin that is another one than before.
#[derive(Debug, Clone)]
pub struct PluginChange {
    /// The plugin.
    pub plugin: PluginId,
    /// In what way.
    pub kind: ChangeKind,
    /// What changed in its tools, one for each tool that did.
    pub tools: Vec<ToolChange>,
}

/// In what way a plugin is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Other bytes are in its place.
    Replaced,
    /// The same bytes under another policy or another consent.
    Regranted,
    /// It is gone.
    Removed,
}

impl PluginChange {
    /// What went comes first.
    fn order(&self) -> (bool, &PluginId) {
        (self.kind != ChangeKind::Removed, &self.plugin)
    }
}

impl ChangeKind {
    /// As a sentence has it.
    #[must_use]
    pub fn said(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Regranted => "granted anew",
            Self::Removed => "removed",
        }
    }
}

/// A file that is not a plugin of this host.
#[derive(Debug, Clone)]
pub struct LoadProblem {
    /// The file.
    pub file: PathBuf,
    /// The plugin that it would be, where that is known.
    pub plugin: Option<PluginId>,
    /// Why it is not loaded.
    pub error: Arc<LoadError>,
    /// Whether an older version of the plugin runs in its place.
    pub kept: bool,
}

impl fmt::Display for LoadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.error)?;
        f.write_str(if self.kept { "; its older version goes on" } else { "" })
    }
}

impl LoadProblem {
    /// Whether it says the same as another one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.file == other.file
            && self.plugin == other.plugin
            && self.kept == other.kept
            && (Arc::ptr_eq(&self.error, &other.error) || self.error.to_string() == other.error.to_string())
    }
}

/// Something about a loaded plugin that its operator should know.
#[derive(Debug, Clone)]
pub struct LoadWarning {
    /// The plugin.
    pub plugin: PluginId,
    /// What.
    pub message: String,
}
