//! What a tool is: the definition that a model and an operator see.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::capability::Capability;
use crate::name::{PluginId, QualifiedName};
use crate::schema::Schema;

/// A tool as it stands in the registry. Made once, shared, never changed.
#[derive(Debug, Clone)]
pub struct ToolDef {
    /// The name by which it is called.
    pub name: QualifiedName,
    /// A name for people.
    pub title: Option<String>,
    /// What the model reads to decide.
    pub description: String,
    /// Schema of the arguments.
    pub input_schema: Schema,
    /// Schema of `structured`.
    pub output_schema: Option<Schema>,
    /// Group label.
    pub toolset: Option<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// The author's claims about its behaviour.
    pub traits: ToolTraits,
    /// Longest `value` its author wants, in characters.
    pub max_result_chars: Option<u32>,
    /// Longest run its author wants.
    pub timeout: Option<Duration>,
    /// What it wants to reach.
    pub capabilities: Vec<Capability>,
    /// Further metadata: a JSON object the host keeps and does not read.
    pub meta: Option<Box<RawValue>>,
    /// Where it comes from.
    pub source: ToolSource,
}

/// Claims about behaviour (`types.wit`, `tool-traits`). Without any, the worst is assumed, as MCP does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a flag set of the contract, each one independent")]
pub struct ToolTraits {
    /// Does not change its environment.
    pub read_only: bool,
    /// Changes only by adding.
    pub additive: bool,
    /// Repeating the call changes nothing more.
    pub idempotent: bool,
    /// Touches only things the host knows of.
    pub closed_world: bool,
    /// Asks to be listed whatever the filter says.
    pub always_include: bool,
    /// The output holds text that others wrote.
    pub untrusted_output: bool,
    /// A person should confirm each call.
    pub needs_approval: bool,
    /// Leave out of the first list.
    pub deferred: bool,
}

/// Where a tool comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ToolSource {
    /// Native code of the embedder.
    Builtin,
    /// A component.
    Plugin {
        /// The id the operator gave it.
        #[serde(serialize_with = "as_text")]
        id: PluginId,
        /// The version it claims, if it does.
        version: Option<String>,
        /// SHA-256 of its bytes, in hex.
        #[serde(serialize_with = "as_text")]
        digest: Arc<str>,
    },
}

impl ToolSource {
    /// The plugin's id, if the tool comes from one.
    #[must_use]
    pub fn plugin(&self) -> Option<&PluginId> {
        match self {
            Self::Builtin => None,
            Self::Plugin { id, .. } => Some(id),
        }
    }
}

fn as_text<T: std::borrow::Borrow<str>, S: serde::Serializer>(text: &T, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(text.borrow())
}
