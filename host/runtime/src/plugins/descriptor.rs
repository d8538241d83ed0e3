//! The description of a plugin: its tools, reducers and origin. A plugin is queried once per digest in an isolated
//! instance, and the result is cached. All of it is untrusted text, which is bounded and validated before use.

mod cache;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use cache::DescriptorCache;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolbay_capabilities::bindings::types;
use toolbay_core::neutral_text;
use toolbay_core::tool::definition_text;
use toolbay_core::tool::json;
use toolbay_core::tool::prompts_and_resources::PromptsAndResourcesDocument;
use toolbay_core::tool::schema::{Schema, SchemaReader};
use toolbay_core::tool::{Keywords, ToolDef, ToolSource, ToolTraits};
use toolbay_policy::capability::{Capability, CapabilityKind};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::hidden_chars::first_hidden;
use toolbay_policy::name::{PluginId, QualifiedName, ToolName};
use toolbay_sandbox::engine::AsyncSupport;

use crate::error::LoadError;
use crate::plugins::bindings::about::exports::toolbay::plugin::about::PluginInfo;
use crate::plugins::bindings::reducers::exports::toolbay::plugin::reducers::ReducerDef;
use crate::plugins::plain_component::ToolEntryPoint;
use crate::plugins::prompts_and_resources;

/// Maximum number of tools of one plugin.
const MAX_TOOLS: usize = 1000;
/// Maximum number of reducers of one plugin.
const MAX_REDUCERS: usize = 100;
/// Maximum length of a description, in characters. A model reads it for each tool in each turn.
const MAX_DESCRIPTION: usize = 8000;
/// Maximum length of a title, toolset, tag, reason or line of the origin, in characters.
const MAX_LABEL: usize = 512;
/// Maximum length of a capability's target, in characters. Comparing two targets takes time up to the product of their
/// lengths.
const MAX_TARGET: usize = 256;
/// Maximum number of capabilities of one kind per tool. Each is compared with each other.
const MAX_OF_KIND: usize = 32;
/// Maximum total length of a plugin's capability targets, in characters, and the overhead added for each. Together with
/// the limits above, this bounds the comparisons at load time.
const MAX_TARGETS: usize = 64 << 10;
const TARGET_OVERHEAD: usize = 32;
/// Maximum number of tags, and of capabilities, per tool.
const MAX_LIST: usize = 64;
/// Maximum size of `meta`, in bytes.
const MAX_META: usize = 64 << 10;

/// The validated description of one component.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Descriptor {
    pub(crate) about: Option<PluginAbout>,
    pub(crate) tools: Vec<ToolDescription>,
    pub(crate) reducers: Vec<ReducerDescription>,
    /// The imported interfaces that have functions.
    pub(crate) imports: Vec<String>,
    /// Whether the plugin exports availability checks.
    pub(crate) availability: bool,
    /// The prompts, resources and icons that it ships.
    pub(crate) prompts_and_resources: Option<PromptsAndResourcesDocument>,
    /// What the plugin has and the host does not use, with the reasons: exports that are not tools, keywords of the
    /// settings' schema, and output schemas.
    pub(crate) left_out: Vec<String>,
    /// The engine that the component needs.
    pub(crate) async_support: AsyncSupport,
}

/// The origin of a plugin, as the plugin claims.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PluginAbout {
    /// The name of the plugin.
    pub name: String,
    /// The version.
    pub version: String,
    /// A description of its purpose.
    pub description: Option<String>,
    /// The authors.
    pub authors: Option<String>,
    /// The license.
    pub license: Option<String>,
    /// The home page.
    pub homepage: Option<String>,
    /// The location of the source code.
    pub source: Option<String>,
    /// The JSON Schema of the settings, which describes an object.
    pub config_schema: Option<Value>,
    /// Whether one instance may safely run several calls, one after another: `"reusable": true` in `meta`. The policy
    /// decides with `reuse`.
    #[serde(default)]
    pub reusable: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ToolDescription {
    pub(crate) name: String,
    title: Option<String>,
    description: String,
    input_schema: Schema,
    output_schema: Option<Schema>,
    toolset: Option<String>,
    tags: Vec<String>,
    traits: ToolTraits,
    pub(crate) max_result_chars: Option<u32>,
    pub(crate) timeout_ms: Option<u32>,
    pub(crate) capabilities: Vec<Capability>,
    meta: Option<Value>,
    pub(crate) entry: ToolEntryPoint,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReducerDescription {
    pub(crate) tool_name: String,
    pub(crate) description: Option<String>,
}

impl Descriptor {
    /// Whether the component imports WASI's file system.
    pub(crate) fn wants_folders(&self) -> bool {
        self.imports.iter().any(|name| name.starts_with("wasi:filesystem/"))
    }

    /// Validates the answers of a plugin.
    pub(crate) fn new(
        about: Option<PluginInfo>,
        tools: Vec<types::ToolDef>,
        reducers: Vec<ReducerDef>,
        imports: Vec<String>,
    ) -> Result<Self, LoadError> {
        if tools.len() > MAX_TOOLS || reducers.len() > MAX_REDUCERS {
            return Err(LoadError::Metadata(format!(
                "has {} tools and {} reducers, but the limits are {MAX_TOOLS} and {MAX_REDUCERS}",
                tools.len(),
                reducers.len()
            )));
        }
        if tools.is_empty() && reducers.is_empty() {
            return Err(LoadError::Metadata("has neither a tool nor a reducer".to_owned()));
        }
        let mut names = HashSet::new();
        let mut left_out = Vec::new();
        let tools = tools.into_iter().map(|tool| ToolDescription::new(tool, &mut left_out));
        let tools: Vec<_> = tools.collect::<Result<_, _>>()?;
        if let Some(twice) = tools.iter().find(|tool| !names.insert(&tool.name)) {
            return Err(LoadError::Metadata(format!("has two tools of the name `{}`", twice.name)));
        }
        check_targets(&tools)?;
        let reducers = reducers.into_iter().map(ReducerDescription::new).collect::<Result<_, _>>()?;
        let about = about.map(|about| PluginAbout::new(about, &mut left_out)).transpose()?;
        Ok(Self {
            about,
            tools,
            reducers,
            imports,
            availability: false,
            prompts_and_resources: None,
            left_out,
            async_support: AsyncSupport::default(),
        })
    }

    /// Adds the entry points and left-out exports of a plain component.
    pub(crate) fn with_entry_points(self, entries: Vec<ToolEntryPoint>, exports: Vec<String>) -> Self {
        let tools = self.tools.into_iter().zip(entries);
        let tools = tools.map(|(tool, entry)| ToolDescription { entry, ..tool }).collect();
        let left_out = self.left_out.into_iter().chain(exports).collect();
        Self { tools, left_out, ..self }
    }

    /// Adds the prompts, resources and icons that the component ships.
    pub(crate) fn with_document(
        self,
        document: Option<PromptsAndResourcesDocument>,
    ) -> Result<Self, LoadError> {
        prompts_and_resources::check(document.as_ref(), self.tools.iter().map(|tool| tool.name.as_str()))?;
        Ok(Self { prompts_and_resources: document, ..self })
    }
}

impl PluginAbout {
    /// `left_out` gets a line about the keywords of the settings' schema that are not checked.
    fn new(info: PluginInfo, left_out: &mut Vec<String>) -> Result<Self, LoadError> {
        let optional = |name, text: Option<String>| text.map(|t| checked_label(name, t)).transpose();
        Ok(Self {
            name: checked_label("about.name", info.name)?,
            version: checked_label("about.version", info.version)?,
            description: info
                .description
                .map(|t| checked_text("about.description", t, MAX_DESCRIPTION))
                .transpose()?,
            authors: optional("about.authors", info.authors)?,
            license: optional("about.license", info.license)?,
            homepage: optional("about.homepage", info.homepage)?,
            source: optional("about.source", info.source)?,
            config_schema: info.config_schema.map(|schema| settings_schema(&schema, left_out)),
            reusable: info.meta.is_some_and(|text| declares_reusable(&text)),
        })
    }
}

/// Whether a plugin's `meta` declares it reusable. Other members are ignored.
fn declares_reusable(text: &str) -> bool {
    meta(text).is_ok_and(|meta| meta.get("reusable") == Some(&Value::Bool(true)))
}

/// Reads the schema of the settings, in the form that is checked.
fn settings_schema(text: &str, left_out: &mut Vec<String>) -> Value {
    let reader = SchemaReader::for_servers(&definition_text::no_redaction);
    let schema = reader.input(Some(text));
    left_out.extend(schema.dropped().map(|dropped| format!("its settings are not checked for {dropped}")));
    schema.checked_value().clone()
}

impl ReducerDescription {
    fn new(def: ReducerDef) -> Result<Self, LoadError> {
        let tool_name = checked_label("reducer's tool-name", def.tool_name)?;
        if tool_name.is_empty() {
            return Err(LoadError::Metadata("has a reducer for a tool without a name".to_owned()));
        }
        let description =
            def.description.map(|t| checked_text("reducer's description", t, MAX_DESCRIPTION)).transpose()?;
        Ok(Self { tool_name, description })
    }
}

impl ToolDescription {
    /// `left_out` gets a line about an output schema that cannot be used.
    fn new(def: types::ToolDef, left_out: &mut Vec<String>) -> Result<Self, LoadError> {
        let name = ToolName::new(&def.name).map_err(|e| LoadError::Metadata(e.to_string()))?;
        Self::from_definition(def, left_out).map_err(|e| match e {
            LoadError::Metadata(problem) => LoadError::Metadata(format!("tool `{name}`: {problem}")),
            other => other,
        })
    }

    fn from_definition(def: types::ToolDef, left_out: &mut Vec<String>) -> Result<Self, LoadError> {
        let description = checked_text("description", def.description, MAX_DESCRIPTION)?;
        if description.trim().is_empty() {
            return Err(LoadError::Metadata(
                "has no description: a model could not know when to call it".to_owned(),
            ));
        }
        if def.timeout_ms == Some(0) || def.max_result_chars == Some(0) {
            return Err(LoadError::Metadata(
                "asks for a time-out or a result of zero; leave it out instead".to_owned(),
            ));
        }
        if def.tags.len() > MAX_LIST || def.capabilities.len() > MAX_LIST {
            return Err(LoadError::Metadata(format!("has more than {MAX_LIST} tags or capabilities")));
        }
        let reader = SchemaReader::for_plugins();
        let input_schema = reader.input(Some(&def.input_schema));
        let output_schema = def.output_schema.map_or(Ok(None), |schema| reader.output(&schema));
        let output_schema = output_schema.unwrap_or_else(|lost| {
            left_out.push(format!("its tool `{}` has no output schema: {lost}", def.name));
            None
        });
        Ok(Self {
            name: def.name,
            title: def.title.map(|t| checked_label("title", t)).transpose()?,
            description,
            input_schema,
            output_schema,
            toolset: def.toolset.map(toolset).transpose()?,
            tags: def.tags.into_iter().map(|t| checked_label("tag", t)).collect::<Result<_, _>>()?,
            traits: traits(def.traits),
            max_result_chars: def.max_result_chars,
            timeout_ms: def.timeout_ms,
            capabilities: def.capabilities.into_iter().map(capability).collect::<Result<_, _>>()?,
            meta: def.meta.map(|m| meta(&m)).transpose()?,
            entry: ToolEntryPoint::Contract,
        })
    }

    /// The tool in the form that the registry takes.
    pub(crate) fn define(
        &self,
        plugin: &PluginId,
        source: &Arc<ToolSource>,
    ) -> Result<(ToolName, ToolDef), LoadError> {
        let name = ToolName::new(&self.name)?;
        let def = ToolDef {
            name: QualifiedName::join(plugin, &name)?,
            source_name: None,
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

fn checked_label(what: &str, value: String) -> Result<String, LoadError> {
    if value.contains(['\n', '\r']) {
        return Err(LoadError::Metadata(format!("{what} `{}` has a line break", one_line(&value, 40))));
    }
    checked_text(what, value, MAX_LABEL)
}

/// A toolset name. Prefixes of OpenAPI services and MCP servers are reserved.
fn toolset(name: String) -> Result<String, LoadError> {
    let name = checked_label("toolset", name)?;
    let folded = name.to_ascii_lowercase();
    match ["openapi:", "mcp:"].into_iter().find(|prefix| folded.starts_with(prefix)) {
        Some(prefix) => Err(LoadError::Metadata(format!(
            "toolset `{name}` begins with `{prefix}`, which is reserved for other sources"
        ))),
        None => Ok(name),
    }
}

/// Validates a text for people and models: limits its length, rejects control and invisible characters, and neutralizes
/// tokens of chat templates.
fn checked_text(what: &str, value: String, max: usize) -> Result<String, LoadError> {
    let count = value.chars().count();
    if count > max {
        return Err(LoadError::Metadata(format!("{what} has {count} characters, but the limit is {max}")));
    }
    if let Some(c) = first_hidden(&value) {
        return Err(LoadError::Metadata(format!(
            "{what} has the control or invisible character U+{:04X}",
            u32::from(c)
        )));
    }
    Ok(match neutral_text::neutralize(&value) {
        Cow::Borrowed(_) => value,
        Cow::Owned(neutral) => neutral,
    })
}

fn meta(source: &str) -> Result<Value, LoadError> {
    if source.len() > MAX_META {
        return Err(LoadError::Metadata(format!(
            "meta has {} bytes, but the limit is {MAX_META}",
            source.len()
        )));
    }
    match json::parse(source) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(LoadError::Metadata("meta is not a JSON object".to_owned())),
        Err(error) => Err(LoadError::Metadata(format!("meta is not JSON: {error}"))),
    }
}

fn target(value: String) -> Result<String, LoadError> {
    let value = checked_label("capability's target", value)?;
    checked_text("capability's target", value, MAX_TARGET)
}

/// Bounds the work of comparing capabilities.
fn check_targets(tools: &[ToolDescription]) -> Result<(), LoadError> {
    for tool in tools {
        let of_kind = |kind| tool.capabilities.iter().filter(|declared| declared.kind == kind).count();
        if let Some(many) =
            tool.capabilities.iter().find(|declared| of_kind(declared.kind.clone()) > MAX_OF_KIND)
        {
            return Err(LoadError::Metadata(format!(
                "tool `{}`: has more than {MAX_OF_KIND} capabilities of the kind `{}`",
                tool.name,
                many.kind.as_str()
            )));
        }
    }
    let declared = tools.iter().flat_map(|tool| &tool.capabilities);
    let characters: usize =
        declared.map(|capability| capability.target.chars().count() + TARGET_OVERHEAD).sum();
    if characters > MAX_TARGETS {
        return Err(LoadError::Metadata(format!(
            "declares capabilities of {characters} characters in total ({TARGET_OVERHEAD} added for each), but the \
             limit is {MAX_TARGETS}: declare fewer and wider ones"
        )));
    }
    Ok(())
}

fn capability(declared: types::Capability) -> Result<Capability, LoadError> {
    Ok(Capability {
        kind: CapabilityKind::parse(&checked_label("capability's kind", declared.kind)?),
        target: target(declared.target)?,
        optional: declared.optional,
        reason: declared.reason.map(|r| checked_label("capability's reason", r)).transpose()?,
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
