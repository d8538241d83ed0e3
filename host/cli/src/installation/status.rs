//! What a command did with a plugin of the lock, or found out about it.

use toolbay::PluginId;

use super::verification::VerifyProblem;
use crate::output::{Cell, CommandStatus, DIM, FAILURE, NAME, SUCCESS};

/// What became of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PluginStatus {
    /// The store has what the lock names.
    Present,
    /// The store lacks something that the lock names.
    Missing,
    /// It was downloaded.
    Fetched,
    /// The store has it, and its signature meets the policy.
    Verified,
    /// The verification found a problem.
    Unverified(VerifyProblem),
    /// The lock has it already.
    Unchanged,
    /// It is locked now, from an archive.
    Imported,
    /// It could be locked; nothing was changed.
    Available,
    /// A newer version is locked now.
    Updated,
    /// There is no newer version.
    Current,
    /// There is a newer version.
    Outdated,
    /// Its tag is no version.
    Unversioned,
    /// The operator has to agree to its changes.
    Held(String),
    /// The command failed for it.
    Failed(String),
}

impl PluginStatus {
    /// The word for programs and tables.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Missing => "missing",
            Self::Fetched => "fetched",
            Self::Verified => "verified",
            Self::Unverified(problem) => problem.word(),
            Self::Unchanged => "unchanged",
            Self::Imported => "imported",
            Self::Available => "available",
            Self::Updated => "updated",
            Self::Current => "current",
            Self::Outdated => "outdated",
            Self::Unversioned => "unversioned",
            Self::Held(_) => "held",
            Self::Failed(_) => "failed",
        }
    }

    /// Why the command did not succeed for the plugin, if there is a reason beside the word.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Self::Held(error) | Self::Failed(error) => Some(error),
            Self::Unverified(problem) => Some(problem.message()),
            _ => None,
        }
    }

    /// Whether the operator has something to do.
    fn is_failure(&self) -> bool {
        matches!(self, Self::Missing | Self::Outdated) || self.error().is_some()
    }

    /// The cells that begin the row of a plugin: its id and its status.
    pub(crate) fn cells(&self, id: &PluginId) -> [Cell; 2] {
        let style = match self {
            _ if self.is_failure() => FAILURE,
            Self::Unchanged | Self::Unversioned => DIM,
            _ => SUCCESS,
        };
        [Cell::styled(NAME, id.as_str()), Cell::styled(style, self.word())]
    }

    /// The status of a command over several plugins.
    pub(crate) fn command_status<'a>(all: impl IntoIterator<Item = &'a Self>) -> CommandStatus {
        CommandStatus::from_success(!all.into_iter().any(Self::is_failure))
    }
}
