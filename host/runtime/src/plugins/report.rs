//! Reports about loading and reloading, for people and programs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use toolbay_core::tool::diff::ToolChange;
use toolbay_policy::name::PluginId;

use crate::error::LoadError;

/// The result of loading or reloading.
#[derive(Debug, Clone, Default)]
pub struct LoadReport {
    /// The registered plugins, in the order of their files.
    pub loaded: Vec<PluginId>,
    /// The changes: removed plugins first, then the others, each in the order of their ids.
    pub changes: Vec<PluginChange>,
    /// The files that are not loaded, each with the reason.
    pub problems: Vec<LoadProblem>,
    /// Warnings of the changed plugins.
    pub warnings: Vec<LoadWarning>,
    /// Keys of `[host]` that changed in the reloaded policy and apply only after a restart.
    pub restart: Vec<&'static str>,
}

impl LoadReport {
    /// Merges the reports of two consecutive passes.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.changes.extend(other.changes);
        self.changes.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
        self.warnings.extend(other.warnings);
        self.warnings.sort_by(|one, other| one.plugin.cmp(&other.plugin));
        self.restart.extend(other.restart);
        Self { loaded: other.loaded, problems: other.problems, ..self }
    }
}

/// A change of one plugin.
#[derive(Debug, Clone)]
pub struct PluginChange {
    /// The plugin.
    pub plugin: PluginId,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The changed tools.
    pub tools: Vec<ToolChange>,
}

/// The kind of a plugin change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The plugin is new.
    Added,
    /// The component was replaced.
    Replaced,
    /// The same component has new grants, from another policy or consent.
    Regranted,
    /// The plugin was removed.
    Removed,
}

impl PluginChange {
    /// Orders removed plugins first.
    fn sort_key(&self) -> (bool, &PluginId) {
        (self.kind != ChangeKind::Removed, &self.plugin)
    }
}

impl ChangeKind {
    /// The change as a verb for messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Regranted => "granted again",
            Self::Removed => "removed",
        }
    }
}

/// A file that is not loaded.
#[derive(Debug, Clone)]
pub struct LoadProblem {
    /// The file.
    pub file: PathBuf,
    /// The plugin's id, if it is known.
    pub plugin: Option<PluginId>,
    /// The reason.
    pub error: Arc<LoadError>,
    /// Whether an older version of the plugin stays loaded.
    pub kept: bool,
}

impl fmt::Display for LoadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.error)?;
        f.write_str(if self.kept { "; the older version stays loaded" } else { "" })
    }
}

impl LoadProblem {
    /// Whether both report the same problem.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.file == other.file
            && self.plugin == other.plugin
            && self.kept == other.kept
            && (Arc::ptr_eq(&self.error, &other.error) || self.error.to_string() == other.error.to_string())
    }
}

/// A warning about a loaded plugin.
#[derive(Debug, Clone)]
pub struct LoadWarning {
    /// The plugin.
    pub plugin: PluginId,
    /// The warning.
    pub message: String,
}
