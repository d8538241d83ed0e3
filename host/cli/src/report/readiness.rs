//! Whether a tool can be called here and now, in the few words of a table.

use anstyle::Style;
use toolbay::{Host, View};
use toolbay_core::registry::ToolEntry;
use toolbay_policy::GrantKey;
use toolbay_policy::name::ToolName;

use crate::output::{Cell, FAILURE, SUCCESS, WARNING};

/// Whether a tool can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolReadiness {
    /// It can.
    Ready,
    /// The policy does not grant a capability that the tool requires: the keys that would.
    NeedsGrant(Vec<GrantKey>),
    /// Another reason, on one line.
    Unavailable(String),
}

impl ToolReadiness {
    /// Finds out whether `view` may call a tool.
    pub(crate) fn check(host: &Host, view: &View, entry: &ToolEntry) -> Self {
        let Some(reason) = view.denial_reason(entry) else { return Self::Ready };
        let by_grants = entry.availability.unavailable.is_some() && entry.availability.disabled.is_none();
        let missing = if by_grants { missing_grants(host, view, entry) } else { Vec::new() };
        if !missing.is_empty() {
            return Self::NeedsGrant(missing);
        }
        let text = reason.text.lines().next().unwrap_or_default();
        Self::Unavailable(text.trim_start_matches("it is ").to_owned())
    }

    /// The cell of a table.
    pub(crate) fn cell(&self) -> Cell {
        let style = match self {
            Self::Ready => SUCCESS,
            Self::NeedsGrant(_) => WARNING.effects(Style::new().get_effects()),
            Self::Unavailable(_) => FAILURE,
        };
        Cell::styled(style, self.to_string())
    }
}

impl std::fmt::Display for ToolReadiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::NeedsGrant(keys) => write!(f, "needs {}", join_keys(keys, ", ")),
            Self::Unavailable(reason) => f.write_str(reason),
        }
    }
}

/// The names of keys between separators.
pub(crate) fn join_keys(keys: &[GrantKey], separator: &str) -> String {
    keys.iter().map(|key| key.name()).collect::<Vec<_>>().join(separator)
}

/// The keys of the capabilities that a tool requires and is not granted, each once.
fn missing_grants(host: &Host, view: &View, entry: &ToolEntry) -> Vec<GrantKey> {
    let (Some(plugin), Ok(tool)) = (entry.def.source.plugin(), ToolName::new(entry.def.bare())) else {
        return Vec::new();
    };
    let profile = view.profile().map(|profile| &**profile);
    let grants = host.policy().grant(plugin, &tool, &entry.def.capabilities, profile);
    let required = grants.missing().filter(|decision| !decision.capability.optional);
    let mut keys: Vec<GrantKey> = Vec::new();
    for key in required.filter_map(|decision| GrantKey::for_kind(&decision.capability.kind)) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}
