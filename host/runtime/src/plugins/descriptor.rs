//! What a plugin says it is: its tools, reducers and origin, asked once per content digest in a sealed instance and
//! cached. All of it is a guest's text, so all of it is bounded and checked before anything is made of it.

mod shared;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use shared::Descriptors;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolbay_core::output::untrusted;
use toolbay_core::tool::json;
use toolbay_core::tool::offer::Document;
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::wording;
use toolbay_core::tool::{Keywords, ToolDef, ToolSource, ToolTraits};
use toolbay_policy::capability::{Capability, CapabilityKind};
use toolbay_policy::name::{PluginId, QualifiedName, ToolName};
use toolbay_policy::text::{first_hidden, one_line};

use crate::engine::bindings::about::exports::toolbay::plugin::about::PluginInfo;
use crate::engine::bindings::reducers::exports::toolbay::plugin::reducers::ReducerDef;
use crate::engine::bindings::types;
use crate::error::LoadError;
use crate::plugins::foreign::Entry;
use crate::plugins::offers;

/// Most tools of one plugin.
const MAX_TOOLS: usize = 1000;
/// Most reducers of one plugin.
const MAX_REDUCERS: usize = 100;
/// Longest description, in characters: what a model reads for each tool in each turn.
const MAX_DESCRIPTION: usize = 8000;
/// Longest title, toolset, tag, reason or line of the origin, in characters.
const MAX_LABEL: usize = 512;
/// Longest target of a capability, in characters: to compare two takes up to the product of their lengths.
const MAX_TARGET: usize = 256;
/// Most capabilities of one kind of one tool: each is compared with each other.
const MAX_OF_KIND: usize = 32;
/// Most characters of all targets of a plugin together, and what each counts beside its own: with the two bounds above,
/// what all wishes are compared for when a plugin is loaded.
const MAX_TARGETS: usize = 64 << 10;
const TARGET_COSTS: usize = 32;
/// Most tags and most capabilities of one tool.
const MAX_LIST: usize = 64;
/// Largest `meta`, in bytes.
const MAX_META: usize = 64 << 10;

/// What one component says of itself, checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Descriptor {
    pub(crate) about: Option<About>,
    pub(crate) tools: Vec<ToolDescription>,
    pub(crate) reducers: Vec<ReducerDescription>,
    /// Interfaces with functions that the component imports.
    pub(crate) imports: Vec<String>,
    /// Whether it can say which of its tools are available.
    pub(crate) availability: bool,
    /// The prompts, resources and icons that it ships.
    pub(crate) offers: Option<Document>,
    /// What it exports and is no tool, and why.
    pub(crate) left_out: Vec<String>,
}

/// Who made a plugin, in its own words.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it is for.
    pub description: Option<String>,
    /// Who wrote it.
    pub authors: Option<String>,
    /// Its licence.
    pub license: Option<String>,
    /// Where to read about it.
    pub homepage: Option<String>,
    /// Where its source is.
    pub source: Option<String>,
    /// The JSON Schema of what the operator may set, an object's.
    pub config_schema: Option<Value>,
    /// Whether it is safe to let one instance answer several calls, one after the other: `"reusable": true` in `meta`. What
    /// the policy says of it under `reuse` decides.
    #[serde(default)]
    pub reusable: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ToolDescription {
    pub(crate) name: String,
    title: Option<String>,
    description: String,
    #[serde(with = "schema")]
    input_schema: Schema,
    /// What arguments have to match, where a model is shown less of it.
    #[serde(with = "schema::option")]
    pub(crate) checked_schema: Option<Schema>,
    #[serde(with = "schema::option")]
    output_schema: Option<Schema>,
    toolset: Option<String>,
    tags: Vec<String>,
    traits: ToolTraits,
    pub(crate) max_result_chars: Option<u32>,
    pub(crate) timeout_ms: Option<u32>,
    pub(crate) capabilities: Vec<Capability>,
    meta: Option<Value>,
    pub(crate) entry: Entry,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReducerDescription {
    pub(crate) tool_name: String,
    pub(crate) description: Option<String>,
}

impl Descriptor {
    /// Whether it imports WASI's file system.
    pub(crate) fn wants_folders(&self) -> bool {
        self.imports.iter().any(|name| name.starts_with("wasi:filesystem/"))
    }

    /// Checks what a plugin answered.
    pub(crate) fn new(
        about: Option<PluginInfo>,
        tools: Vec<types::ToolDef>,
        reducers: Vec<ReducerDef>,
        imports: Vec<String>,
    ) -> Result<Self, LoadError> {
        if tools.len() > MAX_TOOLS || reducers.len() > MAX_REDUCERS {
            return Err(bad(format!(
                "has {} tools and {} reducers; at most {MAX_TOOLS} and {MAX_REDUCERS} are taken",
                tools.len(),
                reducers.len()
            )));
        }
        if tools.is_empty() && reducers.is_empty() {
            return Err(bad("offers neither a tool nor a reducer".to_owned()));
        }
        let mut names = HashSet::new();
        let tools: Vec<_> = tools.into_iter().map(ToolDescription::new).collect::<Result<_, _>>()?;
        if let Some(twice) = tools.iter().find(|tool| !names.insert(&tool.name)) {
            return Err(bad(format!("has two tools of the name `{}`", twice.name)));
        }
        check_targets(&tools)?;
        let reducers = reducers.into_iter().map(ReducerDescription::new).collect::<Result<_, _>>()?;
        let about = about.map(About::new).transpose()?;
        Ok(Self { about, tools, reducers, imports, availability: false, offers: None, left_out: Vec::new() })
    }

    /// The same for a component that does not speak the contract: how its tools are entered, and what is none.
    pub(crate) fn entered_by(self, entries: Vec<Entry>, left_out: Vec<String>) -> Self {
        let tools = self.tools.into_iter().zip(entries);
        let tools = tools.map(|(tool, entry)| ToolDescription { entry, ..tool }).collect();
        Self { tools, left_out, ..self }
    }

    /// The same with what the component ships beside.
    pub(crate) fn offering(self, offers: Option<Document>) -> Result<Self, LoadError> {
        offers::check(offers.as_ref(), self.tools.iter().map(|tool| tool.name.as_str()))?;
        Ok(Self { offers, ..self })
    }
}

impl About {
    fn new(info: PluginInfo) -> Result<Self, LoadError> {
        let optional = |name, text: Option<String>| text.map(|t| label(name, t)).transpose();
        Ok(Self {
            name: label("about.name", info.name)?,
            version: label("about.version", info.version)?,
            description: info
                .description
                .map(|t| text("about.description", t, MAX_DESCRIPTION))
                .transpose()?,
            authors: optional("about.authors", info.authors)?,
            license: optional("about.license", info.license)?,
            homepage: optional("about.homepage", info.homepage)?,
            source: optional("about.source", info.source)?,
            config_schema: info.config_schema.map(|schema| settings_schema(&schema)).transpose()?,
            reusable: info.meta.is_some_and(|text| says_reusable(&text)),
        })
    }
}

/// Whether `meta` of a plugin declares it reusable. What else stands there is nobody's business, as before.
fn says_reusable(text: &str) -> bool {
    meta(text).is_ok_and(|meta| meta.get("reusable") == Some(&Value::Bool(true)))
}

/// The schema of the settings, within the bounds of those of arguments.
fn settings_schema(text: &str) -> Result<Value, LoadError> {
    let of_settings = |error: String| bad(format!("about.config-schema: {error}"));
    let schema = Schema::input(text).map_err(|error| of_settings(error.to_string()))?;
    let shown = shown(&schema).map_err(of_settings)?;
    Ok(shown.unwrap_or(schema).value().clone())
}

/// A schema as people and models are to see it, if that is another one ([`wording`]).
fn shown(schema: &Schema) -> Result<Option<Schema>, String> {
    let mut value = schema.value().clone();
    wording::schema(&mut value, &wording::whole)?;
    Ok((value != *schema.value()).then(|| Schema::accepted_before(value)))
}

impl ReducerDescription {
    fn new(def: ReducerDef) -> Result<Self, LoadError> {
        let tool_name = label("reducer's tool-name", def.tool_name)?;
        if tool_name.is_empty() {
            return Err(bad("has a reducer for a tool without a name".to_owned()));
        }
        let description =
            def.description.map(|t| text("reducer's description", t, MAX_DESCRIPTION)).transpose()?;
        Ok(Self { tool_name, description })
    }
}

impl ToolDescription {
    fn new(def: types::ToolDef) -> Result<Self, LoadError> {
        let name = ToolName::new(&def.name).map_err(|e| bad(e.to_string()))?;
        Self::checked(def).map_err(|e| match e {
            LoadError::Metadata(problem) => bad(format!("tool `{name}`: {problem}")),
            other => other,
        })
    }

    fn checked(def: types::ToolDef) -> Result<Self, LoadError> {
        let description = text("description", def.description, MAX_DESCRIPTION)?;
        if description.trim().is_empty() {
            return Err(bad("has no description: a model could not know when to call it".to_owned()));
        }
        if def.timeout_ms == Some(0) || def.max_result_chars == Some(0) {
            return Err(bad("asks for a time-out or a result of zero; leave it out instead".to_owned()));
        }
        if def.tags.len() > MAX_LIST || def.capabilities.len() > MAX_LIST {
            return Err(bad(format!("has more than {MAX_LIST} tags or capabilities")));
        }
        let written = Schema::input(&def.input_schema)?;
        let (input_schema, checked_schema) =
            match shown(&written).map_err(|why| bad(format!("its input schema: {why}")))? {
                Some(shown) => (shown, Some(written)),
                None => (written, None),
            };
        let output_schema = def.output_schema.map(|schema| output_schema(&schema)).transpose()?;
        Ok(Self {
            name: def.name,
            title: def.title.map(|t| label("title", t)).transpose()?,
            description,
            input_schema,
            checked_schema,
            output_schema,
            toolset: def.toolset.map(toolset).transpose()?,
            tags: def.tags.into_iter().map(|t| label("tag", t)).collect::<Result<_, _>>()?,
            traits: traits(def.traits),
            max_result_chars: def.max_result_chars,
            timeout_ms: def.timeout_ms,
            capabilities: def.capabilities.into_iter().map(capability).collect::<Result<_, _>>()?,
            meta: def.meta.map(|m| meta(&m)).transpose()?,
            entry: Entry::Contract,
        })
    }

    /// The tool as the registry knows it.
    pub(crate) fn define(
        &self,
        plugin: &PluginId,
        source: &Arc<ToolSource>,
    ) -> Result<(ToolName, ToolDef), LoadError> {
        let name = ToolName::new(&self.name)?;
        let def = ToolDef {
            name: QualifiedName::join(plugin, &name)?,
            title: self.title.clone(),
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone(),
            keywords: Keywords { toolset: self.toolset.clone(), tags: self.tags.clone(), search_hint: None },
            traits: self.traits,
            max_result_chars: self.max_result_chars,
            timeout: self.timeout_ms.map(|ms| Duration::from_millis(u64::from(ms))),
            capabilities: self.capabilities.clone(),
            meta: self.meta.as_ref().and_then(|m| serde_json::value::to_raw_value(m).ok()),
            source: Arc::clone(source),
        };
        Ok((name, def))
    }
}

/// The schema of results. What is left out of it is not checked either: it is the plugin's own promise.
fn output_schema(text: &str) -> Result<Schema, LoadError> {
    let schema = Schema::output(text)?;
    let shown = shown(&schema).map_err(|why| bad(format!("its output schema: {why}")))?;
    Ok(shown.unwrap_or(schema))
}

/// Schemas as they are stored. What comes back was checked before it was stored.
mod schema {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;
    use toolbay_core::tool::schema::Schema;

    pub(super) fn serialize<S: Serializer>(schema: &Schema, out: S) -> Result<S::Ok, S::Error> {
        schema.value().serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(stored: D) -> Result<Schema, D::Error> {
        Value::deserialize(stored).map(Schema::accepted_before)
    }

    pub(super) mod option {
        use super::{Deserialize, Deserializer, Schema, Serialize, Serializer, Value};

        pub(in super::super) fn serialize<S: Serializer>(
            schema: &Option<Schema>,
            out: S,
        ) -> Result<S::Ok, S::Error> {
            schema.as_ref().map(Schema::value).serialize(out)
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            stored: D,
        ) -> Result<Option<Schema>, D::Error> {
            Ok(Option::<Value>::deserialize(stored)?.map(Schema::accepted_before))
        }
    }
}

fn bad(problem: String) -> LoadError {
    LoadError::Metadata(problem)
}

fn label(what: &str, value: String) -> Result<String, LoadError> {
    if value.contains(['\n', '\r']) {
        return Err(bad(format!("{what} `{}` has a line break", one_line(&value, 40))));
    }
    text(what, value, MAX_LABEL)
}

/// A toolset. Those of services and of MCP servers are named after them, and are theirs.
fn toolset(name: String) -> Result<String, LoadError> {
    let name = label("toolset", name)?;
    let folded = name.to_ascii_lowercase();
    match ["openapi:", "mcp:"].into_iter().find(|prefix| folded.starts_with(prefix)) {
        Some(prefix) => {
            Err(bad(format!("toolset `{name}` begins with `{prefix}`, as those of other sources do")))
        }
        None => Ok(name),
    }
}

/// A text that people and models read: bounded, without what a terminal would obey or nobody would see, and without what
/// chat templates obey.
fn text(what: &str, value: String, most: usize) -> Result<String, LoadError> {
    let count = value.chars().count();
    if count > most {
        return Err(bad(format!("{what} has {count} characters; at most {most} are taken")));
    }
    if let Some(c) = first_hidden(&value) {
        return Err(bad(format!(
            "{what} holds the character U+{:04X}, which a terminal obeys or nobody sees",
            u32::from(c)
        )));
    }
    Ok(match untrusted::neutral(&value) {
        Cow::Borrowed(_) => value,
        Cow::Owned(neutral) => neutral,
    })
}

fn meta(source: &str) -> Result<Value, LoadError> {
    if source.len() > MAX_META {
        return Err(bad(format!("meta has {} bytes; at most {MAX_META} are taken", source.len())));
    }
    match json::parse(source) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(bad("meta is not a JSON object".to_owned())),
        Err(error) => Err(bad(format!("meta is not JSON: {error}"))),
    }
}

fn target(value: String) -> Result<String, LoadError> {
    let value = label("capability's target", value)?;
    text("capability's target", value, MAX_TARGET)
}

/// Bounds the work of comparing what a plugin asks for.
fn check_targets(tools: &[ToolDescription]) -> Result<(), LoadError> {
    for tool in tools {
        let of_kind = |kind| tool.capabilities.iter().filter(|wish| wish.kind == kind).count();
        if let Some(many) = tool.capabilities.iter().find(|wish| of_kind(wish.kind.clone()) > MAX_OF_KIND) {
            return Err(bad(format!(
                "tool `{}`: has more than {MAX_OF_KIND} capabilities of the kind `{}`",
                tool.name,
                many.kind.as_str()
            )));
        }
    }
    let wishes = tools.iter().flat_map(|tool| &tool.capabilities);
    let characters: usize = wishes.map(|wish| wish.target.chars().count() + TARGET_COSTS).sum();
    if characters > MAX_TARGETS {
        return Err(bad(format!(
            "declares capabilities of {characters} characters, {TARGET_COSTS} added for each; at most {MAX_TARGETS} are \
             taken: wider and fewer ones do"
        )));
    }
    Ok(())
}

fn capability(wish: types::Capability) -> Result<Capability, LoadError> {
    Ok(Capability {
        kind: CapabilityKind::parse(&label("capability's kind", wish.kind)?),
        target: target(wish.target)?,
        optional: wish.optional,
        reason: wish.reason.map(|r| label("capability's reason", r)).transpose()?,
    })
}

fn traits(flags: types::ToolTraits) -> ToolTraits {
    use types::ToolTraits as Flag;
    ToolTraits {
        read_only: flags.contains(Flag::READ_ONLY),
        additive: flags.contains(Flag::ADDITIVE),
        idempotent: flags.contains(Flag::IDEMPOTENT),
        closed_world: flags.contains(Flag::CLOSED_WORLD),
        always_include: flags.contains(Flag::ALWAYS_INCLUDE),
        untrusted_output: flags.contains(Flag::UNTRUSTED_OUTPUT),
        needs_approval: flags.contains(Flag::NEEDS_APPROVAL),
        deferred: flags.contains(Flag::DEFERRED),
    }
}
