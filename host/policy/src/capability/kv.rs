//! Scopes of the key-value store.

use std::path::Path;

use schemars::{Schema, json_schema};
use serde::{Deserialize, Serialize};

use crate::rule::GrantRule;

/// The scope that shares an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KvScope {
    /// One tool, across sessions.
    Tool,
    /// All tools of the plugin, across sessions.
    Plugin,
    /// All tools of the plugin, within the session.
    Session,
    /// All tools of the plugin, for the acting agent.
    Agent,
}

impl KvScope {
    /// The scope as policies write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Plugin => "plugin",
            Self::Session => "session",
            Self::Agent => "agent",
        }
    }
}

impl GrantRule for KvScope {
    const PATTERN: &'static str = "^(tool|plugin|session|agent)$";

    fn schema() -> Schema {
        json_schema!({"type": "string", "enum": ["tool", "plugin", "session", "agent"]})
    }

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        [Self::Tool, Self::Plugin, Self::Session, Self::Agent]
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| format!("`{text}`: write `tool`, `plugin`, `session` or `agent`"))
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        (self == other).then_some(*self)
    }

    fn show(&self, _: &Path) -> String {
        self.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_laws_of_rules_hold() {
        let root = Path::new("/");
        let all = ["tool", "plugin", "session", "agent"].map(|text| KvScope::parse(text, root).unwrap());
        for a in all {
            assert_eq!(KvScope::parse(&a.show(root), root), Ok(a));
            for b in all {
                assert_eq!(a.intersect(&b), b.intersect(&a));
                assert_eq!(a.intersect(&b), (a == b).then_some(a));
            }
        }
        for bad in ["", "Tool", "tool ", "*", "session:1"] {
            assert!(KvScope::parse(bad, root).is_err(), "{bad:?}");
        }
    }
}
