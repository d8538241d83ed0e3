//! Names that can not be wrong: a plugin's id, a tool's name, and the two joined.
//!
//! | name | rule | why |
//! |---|---|---|
//! | plugin id | `[A-Za-z0-9][A-Za-z0-9_-]*`, no `__`, no `_` at the end | the first `__` of a joined name always is the seam |
//! | tool name | `[A-Za-z0-9_-]{1,48}` | the contract (`types.wit`, `tool-def.name`) |
//! | qualified | `<plugin>__<tool>`, `mcp__<server>__<tool>`, at most 64 | the narrowest of the clients and vendors that read it |
//!
//! The plugin id is the operator's choice (a key in the policy, or the file's stem), never the plugin's claim.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::text;

/// Longest qualified name, in characters: OpenAI's and Claude Desktop's `^[a-zA-Z0-9_-]{1,64}$`.
pub const MAX_QUALIFIED: usize = 64;
/// Longest tool name, in characters (`types.wit`).
pub const MAX_TOOL: usize = 48;
/// Joins plugin id and tool name.
pub const SEAM: &str = "__";
/// Stands before the name of an MCP server.
pub const MCP: &str = "mcp__";

/// What is wrong with a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{name}` {problem}")]
pub struct NameError {
    what: &'static str,
    name: String,
    problem: &'static str,
}

fn refuse(what: &'static str, name: &str, problem: &'static str) -> NameError {
    // The name is shown escaped and cut: it may come from a guest.
    NameError { what, name: text::one_line(name, MAX_QUALIFIED), problem }
}

fn legal(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The id under which the operator knows a plugin.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginId(Arc<str>);

impl PluginId {
    /// Parses an id.
    ///
    /// # Errors
    /// Names the rule that the text breaks.
    pub fn new(id: &str) -> Result<Self, NameError> {
        const WHAT: &str = "plugin id";
        let problem = if id.is_empty() {
            "is empty"
        } else if id.len() > MAX_QUALIFIED - SEAM.len() - 1 {
            "is longer than 61 characters"
        } else if !legal(id) {
            "has a character outside A-Z a-z 0-9 _ -"
        } else if !id.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            "does not start with a letter or digit"
        } else if id.contains(SEAM) {
            "contains `__`, which separates plugin and tool"
        } else if id.ends_with('_') {
            "ends with `_`, which would blur the `__` before the tool"
        } else {
            return Ok(Self(id.into()));
        };
        Err(refuse(WHAT, id, problem))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A tool's name inside its plugin.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// Parses a tool name.
    ///
    /// # Errors
    /// Names the rule that the text breaks.
    pub fn new(name: &str) -> Result<Self, NameError> {
        const WHAT: &str = "tool name";
        let problem = if name.is_empty() {
            "is empty"
        } else if !legal(name) {
            "has a character outside A-Z a-z 0-9 _ -"
        } else if name.len() > MAX_TOOL {
            "is longer than 48 characters"
        } else {
            return Ok(Self(name.into()));
        };
        Err(refuse(WHAT, name, problem))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name by which a model calls a tool.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QualifiedName(Arc<str>);

impl QualifiedName {
    /// Joins a plugin's id and a tool's name.
    ///
    /// # Errors
    /// When the joined name is longer than [`MAX_QUALIFIED`].
    pub fn join(plugin: &PluginId, tool: &ToolName) -> Result<Self, NameError> {
        let joined = format!("{plugin}{SEAM}{tool}");
        if joined.len() > MAX_QUALIFIED {
            return Err(refuse(
                "qualified name",
                &joined,
                "is longer than 64 characters: shorten the plugin's id",
            ));
        }
        Ok(Self(joined.into()))
    }

    /// `mcp__SERVER__TOOL`. A server's name follows the rules of a plugin's id.
    ///
    /// # Errors
    /// When the joined name is longer than [`MAX_QUALIFIED`].
    pub fn mcp(server: &PluginId, tool: &ToolName) -> Result<Self, NameError> {
        let joined = format!("{MCP}{server}{SEAM}{tool}");
        if joined.len() > MAX_QUALIFIED {
            return Err(refuse(
                "qualified name",
                &joined,
                "is longer than 64 characters: shorten the server's name",
            ));
        }
        Ok(Self(joined.into()))
    }

    /// The name of a tool that belongs to no plugin.
    #[must_use]
    pub fn native(tool: &ToolName) -> Self {
        Self(Arc::clone(&tool.0))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    pub(crate) fn shared(&self) -> &Arc<str> {
        &self.0
    }

    /// The part behind the plugin, or all of it.
    #[must_use]
    pub fn bare(&self) -> &str {
        self.0.split_once(SEAM).map_or(&self.0, |(_, tool)| tool)
    }
}

macro_rules! text_name {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}
text_name!(PluginId, ToolName, QualifiedName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_ids_follow_the_table() {
        for good in ["a", "text", "read-file-reducer", "A1_b-c", "0"] {
            assert!(PluginId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "_a", "-a", "a__b", "a_", "a b", "a.b", "ä", "a\n", &"x".repeat(62)] {
            assert!(PluginId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn tool_names_follow_the_table() {
        for good in ["a", "_b", "word_count", "a__b", &"x".repeat(48)] {
            assert!(ToolName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a.b", "a/b", "name\nwith newline", &"x".repeat(49)] {
            assert!(ToolName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_seam_is_never_ambiguous() {
        let join = |p: &str, t: &str| {
            QualifiedName::join(&PluginId::new(p).unwrap(), &ToolName::new(t).unwrap()).unwrap()
        };
        assert_eq!(join("a", "_b").bare(), "_b");
        assert_eq!(join("gh", "a__b").bare(), "a__b");
        assert!(PluginId::new("a_").is_err(), "`a_` and `b` would join to the same name as `a` and `_b`");
    }

    #[test]
    fn a_joined_name_is_at_most_64_long() {
        let plugin = PluginId::new(&"p".repeat(40)).unwrap();
        assert!(QualifiedName::join(&plugin, &ToolName::new(&"t".repeat(22)).unwrap()).is_ok());
        assert!(QualifiedName::join(&plugin, &ToolName::new(&"t".repeat(23)).unwrap()).is_err());
    }

    #[test]
    fn a_guests_name_is_escaped_in_the_error() {
        let error = ToolName::new("a\u{1b}[31m\n").unwrap_err().to_string();
        assert!(!error.contains('\u{1b}') && !error.contains('\n'), "{error}");
    }
}
