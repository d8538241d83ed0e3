//! Validated names: plugin ids, tool names and qualified names.
//!
//! | name | rule | why |
//! |---|---|---|
//! | plugin id | `[A-Za-z0-9][A-Za-z0-9_-]*`, no `__`, no `_` at the end, not `mcp` | the first `__` of a qualified name is always the separator, and a plugin cannot imitate the tools of an MCP server |
//! | tool name | `[A-Za-z0-9_-]{1,48}` | the contract (`types.wit`, `tool-def.name`) |
//! | qualified | `<plugin>__<tool>`, `mcp__<server>__<tool>`, at most 64 | the strictest rule of the supported clients and vendors |
//!
//! The operator chooses the plugin id (a key in the policy, or the file stem). A plugin cannot claim one.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};

use crate::excerpt;

/// Longest qualified name, in characters: OpenAI's and Claude Desktop's `^[a-zA-Z0-9_-]{1,64}$`.
pub const MAX_QUALIFIED: usize = 64;
/// Longest tool name, in characters (`types.wit`).
pub const MAX_TOOL: usize = 48;
/// The separator between plugin id and tool name.
pub const NAME_SEPARATOR: &str = "__";
/// The prefix before the name of an MCP server.
pub const MCP_PREFIX: &str = "mcp__";
/// The reserved plugin id, in any letter case. With it, a qualified name could imitate a tool of another source.
const RESERVED_ID: &str = "mcp";

/// What is wrong with a dot. Files and packages of components often have one.
const DOT: &str = "has a dot, and model APIs refuse names of tools with one: use `-` or `_` in its place";

/// Longest tool name that another MCP server may use, in bytes: twice the limit that the protocol recommends.
pub const MAX_SERVER_TOOL_NAME: usize = 256;

/// Returns the first eight hex digits of a text's SHA-256.
fn short_hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// An invalid name, with the rule that it breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{name}` {problem}")]
pub struct NameError {
    what: &'static str,
    name: String,
    problem: &'static str,
}

fn name_error(what: &'static str, name: &str, problem: &'static str) -> NameError {
    // A name may come from a guest, so it is escaped and cut.
    NameError { what, name: excerpt::one_line(name, MAX_QUALIFIED), problem }
}

fn is_legal(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The operator's id of a plugin.
///
/// ```
/// use toolbay_policy::name::PluginId;
///
/// let id = PluginId::new("text-tools")?;
/// assert_eq!((id.as_str(), "text-tools".parse()), ("text-tools", Ok(id.clone())));
/// // `__` separates the plugin from the tool, so an id cannot contain it.
/// assert!(PluginId::new("text__tools").is_err());
/// # Ok::<(), toolbay_policy::name::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginId(Arc<str>);

impl PluginId {
    /// Parses an id.
    ///
    /// # Errors
    /// Names the broken rule.
    pub fn new(id: &str) -> Result<Self, NameError> {
        const WHAT: &str = "plugin id";
        let problem = if id.is_empty() {
            "is empty"
        } else if id.len() > MAX_QUALIFIED - NAME_SEPARATOR.len() - 1 {
            "is longer than 61 characters"
        } else if id.contains('.') {
            DOT
        } else if !is_legal(id) {
            "has a character outside A-Z a-z 0-9 _ -"
        } else if !id.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            "does not start with a letter or digit"
        } else if id.contains(NAME_SEPARATOR) {
            "contains `__`, which separates plugin and tool"
        } else if id.ends_with('_') {
            "ends with `_`, which would blur the `__` before the tool"
        } else if id.eq_ignore_ascii_case(RESERVED_ID) {
            "is reserved: the names of all tools of MCP servers begin with `mcp__`"
        } else {
            return Ok(Self(id.into()));
        };
        Err(name_error(WHAT, id, problem))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PluginId {
    type Err = NameError;

    fn from_str(id: &str) -> Result<Self, NameError> {
        Self::new(id)
    }
}

/// A tool's name inside its plugin.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// Parses a tool name.
    ///
    /// # Errors
    /// Names the broken rule.
    pub fn new(name: &str) -> Result<Self, NameError> {
        const WHAT: &str = "tool name";
        let problem = if name.is_empty() {
            "is empty"
        } else if name.contains('.') {
            DOT
        } else if !is_legal(name) {
            "has a character outside A-Z a-z 0-9 _ -"
        } else if name.len() > MAX_TOOL {
            "is longer than 48 characters"
        } else {
            return Ok(Self(name.into()));
        };
        Err(name_error(WHAT, name, problem))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for PluginId {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(input)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ToolName {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(input)?).map_err(D::Error::custom)
    }
}

/// The name by which a model calls a tool.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QualifiedName(Arc<str>);

impl QualifiedName {
    /// Joins a plugin id and a tool name.
    ///
    /// # Errors
    /// The joined name is longer than [`MAX_QUALIFIED`].
    pub fn join(plugin: &PluginId, tool: &ToolName) -> Result<Self, NameError> {
        let joined = format!("{plugin}{NAME_SEPARATOR}{tool}");
        Self::from_joined(&joined, "is longer than 64 characters: shorten the plugin's id")
    }

    /// Joins `mcp__SERVER__TOOL`. The rules for plugin ids apply to the server's name.
    ///
    /// # Errors
    /// The joined name is longer than [`MAX_QUALIFIED`].
    pub fn join_mcp(server: &PluginId, tool: &ToolName) -> Result<Self, NameError> {
        let joined = format!("{MCP_PREFIX}{server}{NAME_SEPARATOR}{tool}");
        Self::from_joined(&joined, "is longer than 64 characters: shorten the server's name")
    }

    /// `problem` describes a joined name that is too long.
    fn from_joined(joined: &str, problem: &'static str) -> Result<Self, NameError> {
        if joined.len() > MAX_QUALIFIED {
            return Err(name_error("qualified name", joined, problem));
        }
        Ok(Self(joined.into()))
    }

    /// Makes `mcp__SERVER__TOOL` from a server's tool name. A valid name that fits is kept. Any other name is reduced
    /// to its legal characters, cut, and extended by a hash. The same tool name always gives the same qualified name,
    /// and different ones give different names.
    ///
    /// # Errors
    /// The name is empty or longer than [`MAX_SERVER_TOOL_NAME`] bytes, or the server's name leaves no room.
    pub fn from_mcp_tool(server: &PluginId, tool: &str) -> Result<Self, NameError> {
        if tool.is_empty() || tool.len() > MAX_SERVER_TOOL_NAME {
            return Err(name_error("tool name", tool, "is empty or longer than 256 bytes"));
        }
        if let Some(name) = ToolName::new(tool).ok().and_then(|tool| Self::join_mcp(server, &tool).ok()) {
            return Ok(name);
        }
        let mark = short_hash(tool);
        let taken = MCP_PREFIX.len() + server.as_str().len() + NAME_SEPARATOR.len() + 1 + mark.len();
        let room = MAX_QUALIFIED.saturating_sub(taken).min(MAX_TOOL - 1 - mark.len());
        let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
        let start: String = tool.chars().map(legal).take(room).collect();
        Self::join_mcp(server, &ToolName::new(&format!("{start}_{mark}"))?)
    }

    /// Makes the name of a tool that belongs to no plugin.
    #[must_use]
    pub fn from_native(tool: &ToolName) -> Self {
        Self(Arc::clone(&tool.0))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as a shared string.
    pub fn as_arc(&self) -> &Arc<str> {
        &self.0
    }

    /// The part after the plugin or MCP server. Without one, the whole name.
    #[must_use]
    pub fn tool_part(&self) -> &str {
        split_qualified(&self.0).map_or(&self.0, |(_, tool)| tool)
    }
}

/// Splits a qualified name into its source, `PLUGIN` or `mcp__SERVER`, and the tool's own name. `None` if there is no
/// source. No other code may split qualified names.
#[must_use]
pub fn split_qualified(qualified: &str) -> Option<(&str, &str)> {
    let of_server = qualified.strip_prefix(MCP_PREFIX).and_then(|rest| rest.split_once(NAME_SEPARATOR));
    let split = match of_server {
        Some((server, tool)) => (qualified.get(..MCP_PREFIX.len() + server.len())?, tool),
        None => qualified.split_once(NAME_SEPARATOR)?,
    };
    (!split.0.is_empty()).then_some(split)
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
        for bad in
            ["", "_a", "-a", "a__b", "a_", "a b", "a.b", "ä", "a\n", "mcp", "MCP", "Mcp", &"x".repeat(62)]
        {
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
    fn a_dot_in_a_name_is_explained() {
        let errors = [PluginId::new("web.search").unwrap_err(), ToolName::new("a.b").unwrap_err()];
        for error in errors.map(|error| error.to_string()) {
            assert!(error.contains("has a dot") && error.contains("use `-` or `_`"), "{error}");
        }
    }

    #[test]
    fn the_separator_is_never_ambiguous() {
        let join = |p: &str, t: &str| {
            QualifiedName::join(&PluginId::new(p).unwrap(), &ToolName::new(t).unwrap()).unwrap()
        };
        assert_eq!(join("a", "_b").tool_part(), "_b");
        assert_eq!(join("gh", "a__b").tool_part(), "a__b");
        assert!(PluginId::new("a_").is_err(), "`a_` and `b` would join to the same name as `a` and `_b`");
        for (name, parts) in [
            ("mcp__gh__a__b", Some(("mcp__gh", "a__b"))),
            ("p__a__b", Some(("p", "a__b"))),
            ("mcp__gh", Some(("mcp", "gh"))),
            ("__a", None),
            ("a", None),
        ] {
            assert_eq!(split_qualified(name), parts, "{name}");
        }
    }

    #[test]
    fn a_joined_name_is_at_most_64_long() {
        let plugin = PluginId::new(&"p".repeat(40)).unwrap();
        assert!(QualifiedName::join(&plugin, &ToolName::new(&"t".repeat(22)).unwrap()).is_ok());
        assert!(QualifiedName::join(&plugin, &ToolName::new(&"t".repeat(23)).unwrap()).is_err());
    }

    #[test]
    fn every_tool_name_of_a_server_becomes_a_qualified_name() {
        let server = PluginId::new("github").unwrap();
        let name = |tool: &str| QualifiedName::from_mcp_tool(&server, tool).unwrap().as_str().to_owned();
        assert_eq!(name("search_issues"), "mcp__github__search_issues");
        assert_eq!(name("repos.list/all"), name("repos.list/all"));
        assert!(name("repos.list/all").starts_with("mcp__github__repos_list_all_"));
        let long = "x".repeat(100);
        let odd = ["a.b", "a b", "a/b", "ä", "\u{1b}[31m", &long, &format!("{long}y"), "a__b", "_"];
        let all: std::collections::BTreeSet<String> = odd.iter().map(|tool| name(tool)).collect();
        assert_eq!(all.len(), odd.len(), "different names stay different: {all:?}");
        assert!(all.iter().all(|name| name.len() <= MAX_QUALIFIED && is_legal(name)), "{all:?}");
        let longest = PluginId::new(&"s".repeat(32)).unwrap();
        assert!(QualifiedName::from_mcp_tool(&longest, &long).is_ok());
        for bad in ["", &"x".repeat(257)] {
            assert!(QualifiedName::from_mcp_tool(&server, bad).is_err());
        }
    }

    #[test]
    fn a_guests_name_is_escaped_in_the_error() {
        let error = ToolName::new("a\u{1b}[31m\n").unwrap_err().to_string();
        assert!(!error.contains('\u{1b}') && !error.contains('\n'), "{error}");
    }
}
