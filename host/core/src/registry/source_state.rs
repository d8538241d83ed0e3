//! The states of sources whose tools are not there. A list names such a source, and a call of one of its tools says why there
//! is no such tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolbay_policy::name;

use super::Registry;
use super::catalog::Catalog;

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

/// The sources without tools, by namespace.
pub(super) type AbsentSources = BTreeMap<Arc<str>, AbsentSource>;

impl Registry {
    /// Sets why a source has no tools; `None` once it has them, or is removed. The names of its tools begin with `namespace`.
    pub fn set_source_state(&self, namespace: &str, label: &str, state: Option<SourceState>) {
        if self.snapshot().absent.get(namespace).map(|source| source.state) == state {
            return;
        }
        self.change(|draft| {
            draft.silent_change = true;
            match state {
                None => drop(draft.catalog.absent.remove(namespace)),
                Some(state) => {
                    let source = AbsentSource { label: label.into(), state };
                    draft.catalog.absent.insert(namespace.into(), source);
                }
            }
        });
    }
}

impl Catalog {
    /// The sources without tools, in the order of their namespaces.
    pub fn absent_sources(&self) -> impl Iterator<Item = &AbsentSource> {
        self.absent.values()
    }

    /// The source that a tool of this name would have, if that source has no tools.
    pub(super) fn absent_source_of(&self, tool: &str) -> Option<&AbsentSource> {
        let (namespace, _) = name::split_qualified(tool)?;
        let source = self.absent.get(namespace)?;
        self.in_namespace(namespace).next().is_none().then_some(source)
    }
}
