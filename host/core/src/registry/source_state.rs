//! The states of sources without tools. Lists name such a source, and the refusal of a call of one of its tools gives its
//! state as the reason.

use std::sync::Arc;

/// Why a source has no tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceState {
    /// Its document is being fetched and turned into tools.
    Loading,
    /// The host is connecting to the server.
    Connecting,
    /// Its document could not be loaded, or the server could not be reached.
    Failed,
    /// The server failed repeatedly, and the host pauses before it retries.
    Suspended,
}

impl SourceState {
    /// The state in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Connecting => "connecting",
            Self::Failed => "failed",
            Self::Suspended => "suspended",
        }
    }

    /// The state as the end of a sentence about the source.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Loading => "is still loading",
            Self::Connecting => "is still connecting",
            Self::Failed => "has failed",
            Self::Suspended => "has failed repeatedly and is suspended",
        }
    }
}

/// A source without tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentSource {
    /// Its [label](crate::tool::ToolSource::label).
    pub label: Arc<str>,
    /// Why it has no tools.
    pub state: SourceState,
}
