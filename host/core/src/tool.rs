//! Tools: the definition that models and operators see, its schemas, its content and its manifest.

pub mod canonical;
pub mod client_compat;
pub mod content;
pub mod definition_text;
pub mod diff;
pub mod fault;
pub mod json;
pub mod manifest;
pub mod prompts_and_resources;
pub mod refusal;
pub mod schema;
pub mod tags;
pub mod toolcall_reason;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_policy::NamedTool;
use toolbay_policy::capability::Capability;
use toolbay_policy::name::{self, PluginId, QualifiedName};
use toolbay_policy::permission::{PermissionSubject, SourceLabel};

use crate::tool::schema::{DroppedKeywords, Schema};

/// The definition of a tool in the registry: immutable and shared.
#[derive(Debug, Clone)]
pub struct ToolDef {
    /// The qualified name by which callers call it.
    pub name: QualifiedName,
    /// The names in its source; present if `name` differs from them.
    pub source_name: Option<Box<SourceName>>,
    /// A display name for people.
    pub title: Option<String>,
    /// What a model reads to decide whether to call the tool.
    pub description: String,
    /// Schema of the arguments.
    pub input_schema: Schema,
    /// Schema of `structured`.
    pub output_schema: Option<Schema>,
    /// Toolset, tags and words for grouping, permission rules and search.
    pub keywords: Keywords,
    /// The author's claims about the tool's behaviour.
    pub traits: ToolTraits,
    /// The author's limit for `value`, in characters.
    pub max_result_chars: Option<u32>,
    /// The author's limit for the duration of a call.
    pub timeout: Option<Duration>,
    /// The capabilities that the tool requests.
    pub capabilities: Vec<Capability>,
    /// Further metadata: a JSON object that the host passes on unread.
    pub meta: Option<Box<RawValue>>,
    /// Where the tool comes from.
    pub source: Arc<ToolSource>,
}

/// The names of a tool that has another name in its source than in its qualified name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceName {
    /// The name in its source. An MCP server may use any characters.
    pub own: String,
    /// The qualified name without the operator's `name`. Rules, profiles and switches with this name apply as well.
    pub full: QualifiedName,
}

/// The toolset, tags and words of a tool for grouping, permission rules and search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keywords {
    /// The group that the tool belongs to.
    pub toolset: Option<String>,
    /// The tags.
    pub tags: Vec<String>,
    /// Further words for search.
    pub search_hint: Option<String>,
}

impl ToolDef {
    /// A tool with the required fields only; all other fields are empty.
    #[must_use]
    pub fn new(
        name: QualifiedName,
        description: impl Into<String>,
        input_schema: Schema,
        source: impl Into<Arc<ToolSource>>,
    ) -> Self {
        Self {
            name,
            source_name: None,
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

    /// The part of the name before the tool's own name: a plugin's id, `mcp__SERVER`, or the embedder's prefix. `None`
    /// if the name has no such part.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        name::split_qualified(self.name.as_str()).map(|(namespace, _)| namespace)
    }

    /// The part of the name after its [namespace](Self::namespace).
    #[must_use]
    pub fn bare(&self) -> &str {
        self.name.tool_part()
    }

    /// The name that its source uses.
    #[must_use]
    pub fn own_name(&self) -> &str {
        self.source_name.as_ref().map_or_else(|| self.bare(), |names| &names.own)
    }

    /// The qualified name without the operator's `name` for the tool.
    #[must_use]
    pub fn full_name(&self) -> &QualifiedName {
        self.source_name.as_ref().map_or(&self.name, |names| &names.full)
    }

    /// Whether a list names the tool, by either of its qualified names.
    pub(crate) fn is_named_in(&self, list: &BTreeSet<String>) -> bool {
        list.contains(self.name.as_str()) || list.contains(self.full_name().as_str())
    }

    /// The tool with the names that the length of a name is judged by.
    #[must_use]
    pub fn named(&self) -> NamedTool<'_> {
        NamedTool { name: self.name.as_str(), own_name: self.own_name(), source: self.source.as_label() }
    }

    /// The attributes of the tool that permission rules match; `tags` are all its tags.
    #[must_use]
    pub fn subject<'a>(&'a self, tags: &'a [&'a str]) -> PermissionSubject<'a> {
        PermissionSubject {
            name: self.name.as_str(),
            full_name: self.full_name().as_str(),
            source: self.source.as_label(),
            tags,
            needs_approval: self.traits.needs_approval,
            unchecked: self.input_schema.dropped().map(DroppedKeywords::unchecked_arguments),
        }
    }

    /// Whether a call can change something outside of the sandbox. A plugin's own claims do not count, only its
    /// capabilities. The claims of native tools count, since the embedder wrote them. Tools of MCP servers and OpenAPI
    /// services may always have effects.
    #[must_use]
    pub fn may_have_effects(&self) -> bool {
        match &*self.source {
            ToolSource::Builtin => !self.traits.read_only,
            ToolSource::Plugin { .. } => self.capabilities.iter().any(|one| one.kind.has_effects()),
            ToolSource::Mcp { .. } | ToolSource::OpenApi { .. } => true,
        }
    }

    /// The keywords of its schemas that are not checked, by schema: `input` or `output`.
    pub fn dropped_keywords(&self) -> impl Iterator<Item = (&'static str, &DroppedKeywords)> {
        let output = self.output_schema.as_ref().and_then(Schema::dropped);
        let all = [("input", self.input_schema.dropped()), ("output", output)];
        all.into_iter().filter_map(|(schema, dropped)| Some((schema, dropped?)))
    }

    /// SHA-256, in lower-case hex, of the input and output schemas in canonical form. Names and descriptions of the
    /// tool do not change it.
    #[must_use]
    pub fn schema_sha256(&self) -> String {
        let output = self.output_schema.as_ref().map(Schema::value);
        canonical::sha256(&serde_json::json!({ "input": self.input_schema.value(), "output": output }))
            .to_string()
    }
}

/// Claims about behaviour (`types.wit`, `tool-traits`). Without a claim the host assumes the worst case, as MCP does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a flag set of the contract, each one independent")]
pub struct ToolTraits {
    /// The tool does not change its environment.
    pub read_only: bool,
    /// The tool adds data, but neither overwrites nor removes any.
    pub additive: bool,
    /// Repeating a call has no further effect.
    pub idempotent: bool,
    /// The tool reaches only systems that the host knows.
    pub closed_world: bool,
    /// The tool asks to be listed whatever the filter says.
    pub always_include: bool,
    /// The output contains text that third parties wrote.
    pub untrusted_output: bool,
    /// A person should confirm each call.
    pub needs_approval: bool,
    /// The tool is left out of the initial list; a search finds it.
    pub deferred: bool,
}

/// Where a plugin of a registry comes from, as the lock says. Plain texts: this crate knows no registries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginOrigin {
    /// The repository, with the tag that the operator named: `oci://HOST/REPOSITORY:TAG`.
    pub reference: String,
    /// The digest of the manifest: `sha256:HEX`.
    pub manifest: String,
    /// Who signed it: `none`, `key:HEX`, or `keyless:ISSUER|IDENTITY`.
    pub signer: String,
}

/// Where a tool comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ToolSource {
    /// Native code of the embedder or of Toolbay.
    Builtin,
    /// A component.
    Plugin {
        /// The id that the operator gave the plugin.
        #[serde(serialize_with = "as_text")]
        id: PluginId,
        /// The version that the plugin claims.
        #[serde(default, deserialize_with = "if_readable")]
        version: Option<Arc<str>>,
        /// SHA-256 of the component's bytes, in hex.
        #[serde(serialize_with = "as_text")]
        digest: Arc<str>,
        /// The registry that it comes from; `None` for a local file.
        #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
        origin: Option<Arc<PluginOrigin>>,
    },
    /// Another MCP server.
    Mcp {
        /// The name that the operator gave the server.
        #[serde(serialize_with = "as_text")]
        server: Arc<str>,
        /// The version that the server claims.
        #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
        version: Option<Arc<str>>,
    },
    /// A service that an OpenAPI document describes.
    #[serde(rename = "openapi")]
    OpenApi {
        /// The name that the operator gave the document.
        #[serde(serialize_with = "as_text")]
        document: Arc<str>,
    },
}

impl ToolSource {
    /// The plugin's id, if the tool comes from a plugin.
    #[must_use]
    pub fn plugin(&self) -> Option<&PluginId> {
        match self {
            Self::Plugin { id, .. } => Some(id),
            Self::Builtin | Self::Mcp { .. } | Self::OpenApi { .. } => None,
        }
    }

    /// The registry that the tool's plugin comes from.
    #[must_use]
    pub fn origin(&self) -> Option<&Arc<PluginOrigin>> {
        match self {
            Self::Plugin { origin, .. } => origin.as_ref(),
            Self::Builtin | Self::Mcp { .. } | Self::OpenApi { .. } => None,
        }
    }

    /// The label of the source in rules and messages: `builtin`, `plugin:text`, `mcp:github`, `openapi:pets`.
    #[must_use]
    pub fn label(&self) -> String {
        self.as_label().to_string()
    }

    /// [`ToolSource::label`] without an allocation.
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

/// Reads a value of a record, which may be of another version. The value is `None` if this version cannot read it.
fn if_readable<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

#[cfg(test)]
#[path = "tool/fixture_tests.rs"]
pub(crate) mod fixture;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::fixture::{mcp_def, native_def, plugin_def};
    use toolbay_policy::name::ToolName;

    #[test]
    fn a_name_is_split_into_namespace_and_bare_name() {
        for (def, namespace, bare) in [
            (native_def("now"), None, "now"),
            (native_def("math__add"), Some("math"), "add"),
            (plugin_def("p", "a"), Some("p"), "a"),
            (plugin_def("p", "a__b"), Some("p"), "a__b"),
            (plugin_def("p", "_a"), Some("p"), "_a"),
            (mcp_def("gh", "a__b"), Some("mcp__gh"), "a__b"),
        ] {
            assert_eq!((def.namespace(), def.bare()), (namespace, bare), "{}", def.name);
        }
    }

    #[test]
    fn rules_and_lists_bind_to_the_full_name_of_a_renamed_tool() {
        let mut tool = mcp_def("gh", "find");
        let full = mcp_def("gh", "search").name;
        tool.source_name = Some(Box::new(SourceName { own: "search".to_owned(), full }));
        assert_eq!(
            (tool.bare(), tool.own_name(), tool.full_name().as_str()),
            ("find", "search", "mcp__gh__search")
        );
        let list = |name: &str| BTreeSet::from([name.to_owned()]);
        assert!(tool.is_named_in(&list("mcp__gh__find")) && tool.is_named_in(&list("mcp__gh__search")));
        assert!(!tool.is_named_in(&list("mcp__gh__other")));
        let subject = tool.subject(&[]);
        assert_eq!((subject.name, subject.full_name), ("mcp__gh__find", "mcp__gh__search"));
    }

    #[test]
    fn the_schema_hash_ignores_the_order_of_keys() {
        let tool = |schema: &str| {
            let name = QualifiedName::from_native(&ToolName::new("t").unwrap());
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
