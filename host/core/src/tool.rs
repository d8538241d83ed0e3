//! What a tool is: the definition that a model and an operator see.

pub mod canonical;
pub mod content;
pub mod diff;
pub mod json;
pub mod manifest;
pub mod offer;
pub mod portable;
pub mod reason;
pub mod schema;
pub mod tags;
pub mod wording;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolbay_policy::capability::{Capability, CapabilityKind};
use toolbay_policy::name::{self, PluginId, QualifiedName};
use toolbay_policy::permission::{SourceLabel, Subject};

use crate::tool::schema::Schema;

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
    /// By what it is grouped, ruled and searched.
    pub keywords: Keywords,
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
    pub source: Arc<ToolSource>,
}

/// By what a tool is grouped, ruled and searched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keywords {
    /// Group label.
    pub toolset: Option<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// Further words by which a search finds it.
    pub search_hint: Option<String>,
}

impl ToolDef {
    /// A tool with nothing but what it must have; set the other fields as they are wanted.
    #[must_use]
    pub fn new(
        name: QualifiedName,
        description: impl Into<String>,
        input_schema: Schema,
        source: impl Into<Arc<ToolSource>>,
    ) -> Self {
        Self {
            name,
            title: None,
            description: description.into(),
            input_schema,
            output_schema: None,
            keywords: Keywords::default(),
            traits: ToolTraits::default(),
            max_result_chars: None,
            timeout: None,
            capabilities: Vec::new(),
            meta: None,
            source: source.into(),
        }
    }

    /// What stands before the tool's own name: a plugin's id, `mcp__SERVER`, or what an embedder put there; `None`:
    /// nothing does.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        name::split(self.name.as_str()).map(|(namespace, _)| namespace)
    }

    /// The tool's own name: what its plugin or its MCP server calls it.
    #[must_use]
    pub fn bare(&self) -> &str {
        self.name.bare()
    }

    /// What permission rules compare of it; `tags` are all that hold for it.
    #[must_use]
    pub fn subject<'a>(&'a self, tags: &'a [&'a str]) -> Subject<'a> {
        Subject {
            name: self.name.as_str(),
            source: self.source.as_label(),
            tags,
            needs_approval: self.traits.needs_approval,
        }
    }

    /// Whether a call can change something outside of the sandbox. What a plugin says of itself does not count: without
    /// one of these capabilities it cannot change anything, and with one it can. Native tools are the embedder's, and
    /// believed; what other servers and services do is not known.
    #[must_use]
    pub fn may_have_effects(&self) -> bool {
        let changes = |capability: &Capability| match capability.kind {
            CapabilityKind::FsWrite
            | CapabilityKind::Net
            | CapabilityKind::Process
            | CapabilityKind::Kv
            | CapabilityKind::Attachments => true,
            // What it calls has lines of its own.
            CapabilityKind::Invoke
            | CapabilityKind::FsRead
            | CapabilityKind::Secret
            | CapabilityKind::Env
            | CapabilityKind::Clock
            | CapabilityKind::Random
            | CapabilityKind::Unknown(_) => false,
        };
        match &*self.source {
            ToolSource::Builtin => !self.traits.read_only,
            ToolSource::Plugin { .. } => self.capabilities.iter().any(changes),
            ToolSource::Mcp { .. } | ToolSource::OpenApi { .. } => true,
        }
    }

    /// SHA-256, in lower-case hex, of the schemas of arguments and results in their canonical form: the same for tools
    /// that take and give the same, whatever their words.
    #[must_use]
    pub fn schema_sha256(&self) -> String {
        let output = self.output_schema.as_ref().map(Schema::value);
        canonical::sha256(&serde_json::json!({ "input": self.input_schema.value(), "output": output }))
            .to_string()
    }
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
        version: Option<Arc<str>>,
        /// SHA-256 of its bytes, in hex.
        #[serde(serialize_with = "as_text")]
        digest: Arc<str>,
    },
    /// Another MCP server.
    Mcp {
        /// The name the operator gave it.
        #[serde(serialize_with = "as_text")]
        server: Arc<str>,
        /// The version it claims, if it does.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Arc<str>>,
    },
    /// A service that an OpenAPI document describes.
    #[serde(rename = "openapi")]
    OpenApi {
        /// The name the operator gave it.
        #[serde(serialize_with = "as_text")]
        document: Arc<str>,
    },
}

impl ToolSource {
    /// The plugin's id, if the tool comes from one.
    #[must_use]
    pub fn plugin(&self) -> Option<&PluginId> {
        match self {
            Self::Plugin { id, .. } => Some(id),
            Self::Builtin | Self::Mcp { .. } | Self::OpenApi { .. } => None,
        }
    }

    /// How rules and people name it: `builtin`, `plugin:text`, `mcp:github`, `openapi:pets`.
    #[must_use]
    pub fn label(&self) -> String {
        self.as_label().to_string()
    }

    /// The same, without a copy.
    #[must_use]
    pub fn as_label(&self) -> SourceLabel<'_> {
        match self {
            Self::Builtin => SourceLabel { kind: "builtin", name: "" },
            Self::Plugin { id, .. } => SourceLabel { kind: "plugin", name: id.as_str() },
            Self::Mcp { server, .. } => SourceLabel { kind: "mcp", name: server },
            Self::OpenApi { document } => SourceLabel { kind: "openapi", name: document },
        }
    }
}

fn as_text<T: std::borrow::Borrow<str>, S: serde::Serializer>(text: &T, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(text.borrow())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mcp_tool, native_tool, plugin_tool};
    use toolbay_policy::name::ToolName;

    #[test]
    fn a_name_is_split_where_its_source_says() {
        for (entry, namespace, bare) in [
            (native_tool("now"), None, "now"),
            (native_tool("math__add"), Some("math"), "add"),
            (plugin_tool("p", "a"), Some("p"), "a"),
            (plugin_tool("p", "a__b"), Some("p"), "a__b"),
            (plugin_tool("p", "_a"), Some("p"), "_a"),
            (mcp_tool("gh", "a__b"), Some("mcp__gh"), "a__b"),
        ] {
            assert_eq!((entry.def.namespace(), entry.def.bare()), (namespace, bare), "{}", entry.def.name);
        }
    }

    #[test]
    fn the_hash_of_the_schemas_is_of_what_they_say() {
        let tool = |schema: &str| {
            let name = QualifiedName::native(&ToolName::new("t").unwrap());
            ToolDef::new(name, "Words.", Schema::input(schema).unwrap(), ToolSource::Builtin)
        };
        let one = tool(r#"{"type": "object", "properties": {"a": {}, "b": {}}}"#);
        let same = tool(r#"{"properties":{"b":{},"a":{}},"type":"object"}"#);
        let mut other = same.clone();
        other.output_schema = Schema::output("{}").ok();
        assert_eq!(one.schema_sha256(), same.schema_sha256());
        assert_ne!(one.schema_sha256(), other.schema_sha256());
        assert_eq!(one.schema_sha256().len(), 64);
    }
}
