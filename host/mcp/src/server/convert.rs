//! Converts tools, results and failures to their MCP representation.

use std::hash::Hasher as _;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    Annotations, AudioContent, ContentBlock, EmbeddedResource, ErrorData, ImageContent, Implementation,
    JsonObject, MetaObject, ProtocolVersion, Resource, ResourceContents, Role, TextContent, Tool,
    ToolAnnotations,
};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolbay_core::call;
use toolbay_core::call::invoke::Failure;
use toolbay_core::output::budget;
use toolbay_core::output::untrusted::UntrustedMark;
use toolbay_core::pipeline::{CallResult, Shaping};
use toolbay_core::registry::view::ToolEntry;
use toolbay_core::tool::ToolSource;
use toolbay_core::tool::content::{self, BlockBody, ErrorDetails, ResourceBody, ToolError, ToolOutput};
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::tags;
use toolbay_policy::limits::{LimitHit, LimitSetting};
use toolbay_policy::output::Truncation;

use crate::protocol::legacy_tasks::{self, TaskSupport, ToolExecution};
use crate::protocol::lifecycle::Era;
use crate::protocol::mirror::HeaderMirror;
use crate::protocol::{legacy, message};
use crate::server::{outputs, prompts_and_resources};

/// The result of a call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallToolResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    pub(crate) content: Vec<ContentBlock>,
    /// Raw JSON of the tool, since a parsed tree takes up to 50 times the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<Box<RawValue>>,
    is_error: bool,
    #[serde(rename = "_meta", skip_serializing_if = "CallMeta::is_empty")]
    meta: CallMeta,
}

/// The `_meta` of a result.
#[derive(Debug, Default)]
struct CallMeta(Vec<(&'static str, Box<RawValue>)>);

/// Prefix of the members of `_meta` that are sent only if the operator wants them.
const OWN_META: &str = "toolbay/";

impl CallMeta {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn put<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) {
        // Text and numbers always serialize.
        self.0.extend(to_raw_value(value).ok().map(|value| (key, value)));
    }
}

impl Serialize for CallMeta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl CallToolResult {
    fn new(content: Vec<ContentBlock>, is_error: bool, meta: CallMeta) -> Self {
        Self { result_type: None, content, structured_content: None, is_error, meta }
    }

    /// Names the task of this result, as 2025-11-25 requires.
    pub(crate) fn set_related_task(&mut self, id: &str) {
        self.meta.put(legacy_tasks::RELATED_TASK, &legacy_tasks::related_task(id));
    }

    /// Adds the members that the era requires in each result, and removes `toolbay/…` from `_meta` unless `usage_meta` is
    /// set.
    pub(crate) fn finish(mut self, era: Era, usage_meta: bool) -> Self {
        self.meta.0.retain(|(key, _)| usage_meta || !key.starts_with(OWN_META));
        if era == Era::Modern {
            self.result_type = Some("complete");
            self.meta.put(SERVER_INFO, &SERVER_INFO_META.get(SERVER_INFO));
        }
        self
    }
}

/// Whether clients of this version support resource links. Other clients may refuse the whole result.
pub(crate) fn supports_resource_links(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2025_06_18.as_str())
}

/// The name and version of the server.
pub(crate) fn implementation() -> Implementation {
    Implementation::new("toolbay", env!("CARGO_PKG_VERSION")).with_title("Toolbay")
}

/// Metadata key for the server, in results of 2026-07-28.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
static SERVER_INFO_META: LazyLock<MetaObject> = LazyLock::new(|| {
    let mut meta = MetaObject::new();
    insert_meta(&mut meta, SERVER_INFO, &implementation());
    meta
});

/// The `_meta` that 2026-07-28 requires in each result.
pub(crate) fn server_info_meta() -> &'static MetaObject {
    &SERVER_INFO_META
}

/// The serialized forms of a tool, created on first use.
#[derive(Default)]
struct CachedToolForms {
    /// By form, without and with `_meta`.
    written: [[OnceLock<Box<RawValue>>; 2]; 3],
    /// Without and with `_meta`.
    fingerprints: [OnceLock<u64>; 2],
    mirror: OnceLock<HeaderMirror>,
}

/// The forms that are cached in the registry entry. `None` if an embedder stores another type there.
fn cached_forms(entry: &ToolEntry) -> Option<&CachedToolForms> {
    entry.cached_form(|_| CachedToolForms::default())
}

/// A tool in the result of `tools/list`, serialized only once.
pub(crate) struct ToolListItem<'a> {
    pub(crate) entry: &'a ToolEntry,
    pub(crate) form: ToolForm,
    /// Whether `_meta` names its plugin.
    pub(crate) usage_meta: bool,
}

/// The form of a tool in the revision of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolForm {
    /// Before 2026-07-28, without tasks.
    Legacy,
    /// With the member `execution` of 2025-11-25.
    LegacyWithTasks,
    /// Since 2026-07-28.
    Modern,
}

impl ToolForm {
    /// The form for a protocol version.
    pub(crate) fn from_version(version: Option<&ProtocolVersion>) -> Self {
        match Era::from_version(version) {
            Era::Modern => Self::Modern,
            Era::Legacy if legacy_tasks::are_supported(version) => Self::LegacyWithTasks,
            Era::Legacy => Self::Legacy,
        }
    }

    fn to_json(self, entry: &ToolEntry, usage_meta: bool) -> Box<RawValue> {
        #[derive(Serialize)]
        struct ToolWithExecution {
            #[serde(flatten)]
            tool: Tool,
            execution: ToolExecution,
        }
        let era = if self == Self::Modern { Era::Modern } else { Era::Legacy };
        let mut tool = to_mcp_tool(entry, era);
        tool.meta.take_if(|_| !usage_meta);
        let written = match self {
            Self::Legacy | Self::Modern => to_raw_value(&tool),
            Self::LegacyWithTasks => {
                let required = entry.has_tag(tags::TASK_REQUIRED);
                let task_support = if required { TaskSupport::Required } else { TaskSupport::Optional };
                to_raw_value(&ToolWithExecution { tool, execution: ToolExecution { task_support } })
            }
        };
        // Text and JSON always serialize.
        written.unwrap_or_default()
    }
}

impl Serialize for ToolListItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { entry, form, usage_meta } = *self;
        let write = || form.to_json(entry, usage_meta);
        let cached = cached_forms(entry)
            .and_then(|cached| cached.written.get(form as usize)?.get(usize::from(usage_meta)));
        match cached {
            Some(cached) => cached.get_or_init(write).serialize(serializer),
            None => write().serialize(serializer),
        }
    }
}

/// Fingerprint of serializable items. An item that fails to serialize counts as empty, as it does in the list.
pub(crate) fn fingerprint_items<T: serde::Serialize>(things: impl Iterator<Item = T>) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for thing in things {
        hasher.write(&serde_json::to_vec(&thing).unwrap_or_default());
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

/// Fingerprint of a tool as clients see it, to detect changes.
pub(crate) fn tool_fingerprint(entry: &ToolEntry, usage_meta: bool) -> u64 {
    let count = || {
        let mut tool = to_mcp_tool(entry, Era::Modern);
        tool.meta.take_if(|_| !usage_meta);
        fingerprint_items(std::iter::once(tool))
    };
    let cached = cached_forms(entry).and_then(|cached| cached.fingerprints.get(usize::from(usage_meta)));
    cached.map_or_else(count, |cached| *cached.get_or_init(count))
}

/// The arguments of a tool that must be mirrored in headers (SEP-2243). A schema with invalid marks has none.
pub(crate) fn header_mirror(entry: &ToolEntry) -> HeaderMirror {
    let read = || HeaderMirror::from_schema(entry.def.input_schema.value()).unwrap_or_default();
    cached_forms(entry).map_or_else(read, |cached| cached.mirror.get_or_init(read).clone())
}

fn to_mcp_tool(entry: &ToolEntry, era: Era) -> Tool {
    let def = &entry.def;
    let input = schema_object(def.input_schema.value());
    let mut tool = Tool::new(def.name.as_str().to_owned(), def.description.clone(), input);
    tool.title.clone_from(&def.title);
    tool.annotations = tool_annotations(entry);
    tool.icons = prompts_and_resources::tool_icons(entry.prompts_and_resources.as_deref(), def.bare());
    tool.output_schema = def.output_schema.as_ref().map(|schema| match era {
        Era::Legacy if !legacy::is_object_schema(schema.value()) => {
            Arc::new(legacy::wrap_schema(schema.value()))
        }
        Era::Legacy | Era::Modern => schema_object(schema.value()),
    });
    tool.meta = source_meta(&def.source);
    tool
}

fn schema_object(schema: &Value) -> Arc<JsonObject> {
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

/// Converts effects and traits to hints. Grants prove a hint; otherwise the claim of the author counts. Without either
/// there is no hint, and the client assumes the worst. A claim that contradicts the grants is dropped: a tool that may
/// write files is not read-only, whatever it claims.
fn tool_annotations(entry: &ToolEntry) -> Option<ToolAnnotations> {
    let (claims, effects) = (entry.def.traits, entry.effects);
    let when = |holds: bool, hint: bool| holds.then_some(hint);
    let bound = effects.is_some_and(|it| !it.changes && !it.may_change && !it.adds);
    let read_only = bound || (claims.read_only && !effects.is_some_and(|it| it.changes));
    let adds_only = effects.is_some_and(|it| !it.changes && !it.may_change);
    let inside = claims.closed_world || effects.is_some_and(|it| !it.network);
    let hints = ToolAnnotations::from_raw(
        None,
        when(read_only, true),
        when(claims.additive || adds_only || read_only, false),
        when(claims.idempotent, true),
        when(inside, false),
    );
    (hints != ToolAnnotations::default()).then_some(hints)
}

fn source_meta(source: &ToolSource) -> Option<MetaObject> {
    let ToolSource::Plugin { id, version, digest, .. } = source else { return None };
    let mut meta = MetaObject::new();
    insert_meta(&mut meta, "toolbay/plugin", id.as_str());
    if let Some(version) = version {
        insert_meta(&mut meta, "toolbay/version", version);
    }
    insert_meta(&mut meta, "toolbay/digest", &**digest);
    Some(meta)
}

/// Converts the result of a call. Only an unknown tool name is a protocol error; every other failure is a result that
/// the model can read.
pub(crate) fn call_result(
    delivered: CallResult,
    entry: Option<&ToolEntry>,
    era: Era,
    links: bool,
) -> Result<CallToolResult, ErrorData> {
    let mut meta = CallMeta::default();
    meta.put("toolbay/usage", &delivered.usage);
    meta.put("toolbay/duration_us", &delivered.duration_us);
    if let Some(age) = delivered.cached {
        meta.put("toolbay/cached_ms", &age.as_millis());
    }
    let mark = delivered.shaping.mark.as_ref();
    let hints = delivered.hints.for_model(mark);
    let mut result = match delivered.result {
        Ok(output) => output_result(output, &delivered.shaping, entry, era, meta),
        Err(Failure::Refused(error)) if delivered.source.is_none() => {
            return Err(ErrorData::invalid_params(error.message, None));
        }
        Err(failure) => failure_result(failure, hints.is_some(), mark, entry, era, meta),
    };
    // By default only the operator sees hints.
    result.content.extend(hints.map(ContentBlock::text));
    if links {
        let whole = delivered
            .shaping
            .saved
            .iter()
            .map(|saved| ContentBlock::ResourceLink(outputs::to_resource(saved)));
        result.content.extend(whole);
    }
    Ok(result)
}

fn output_result(
    output: ToolOutput,
    shaping: &Shaping,
    entry: Option<&ToolEntry>,
    era: Era,
    mut meta: CallMeta,
) -> CallToolResult {
    let ToolOutput { value, structured, content, cost_usd, meta: own } = output;
    if let Some(cost) = cost_usd.filter(|cost| cost.is_finite()) {
        meta.put("toolbay/cost_usd", &cost);
    }
    if let Some(own) = own {
        meta.0.push(("toolbay/meta", message::without_newlines(own)));
    }
    // Some clients show the model only the text, others only the structured content: each must be complete.
    let mark = shaping.mark.as_ref();
    // Beside a listed output schema, the official clients refuse a whole result without matching data, unless it is an
    // error without any.
    let is_refused = output_schema(entry).is_some() && (shaping.mismatch || structured.is_none());
    let is_lost = |raw: &RawValue| value.is_empty() || (is_refused && !is_same_json(&value, raw, mark));
    let text = structured.as_deref().filter(|raw| is_lost(raw)).map(|raw| structured_text(raw, mark));
    let mut blocks = Vec::with_capacity(content.len() + 2);
    // Model APIs refuse the whole conversation for an empty text block.
    blocks.extend([value].into_iter().chain(text).filter(|text| !text.is_empty()).map(ContentBlock::text));
    blocks.extend(content.into_iter().map(to_mcp_block));
    let mut result = CallToolResult::new(blocks, is_refused, meta);
    let structured = structured.filter(|_| !is_refused);
    result.structured_content = structured.map(|raw| to_structured_content(raw, entry, era));
    result
}

/// The output schema that a tool lists.
fn output_schema(entry: Option<&ToolEntry>) -> Option<&Schema> {
    entry?.def.output_schema.as_ref()
}

/// Structured data as a text for models.
fn structured_text(raw: &RawValue, mark: Option<&UntrustedMark>) -> String {
    let (mut text, most) = (raw.get().to_owned(), call::DEFAULT_BUDGET_CHARS);
    match mark {
        Some(mark) => mark.fit(&text, most, Truncation::Head, text.chars().count(), ""),
        None => {
            budget::cut(&mut text, most);
            text
        }
    }
}

/// Whether a text is the structured data beside it, as many servers write it for clients that read only text.
fn is_same_json(text: &str, structured: &RawValue, mark: Option<&UntrustedMark>) -> bool {
    let text = mark.map_or(text, |mark| mark.strip_mark(text));
    let text = serde_json::from_str::<Value>(text).ok();
    text.is_some() && text == serde_json::from_str(structured.get()).ok()
}

/// Structured data in the form that the era has. The older one has objects only.
fn to_structured_content(raw: Box<RawValue>, entry: Option<&ToolEntry>, era: Era) -> Box<RawValue> {
    let promised = output_schema(entry);
    let is_object = raw.get().trim_start().starts_with('{');
    let wrap = promised.map_or(!is_object, |s| !legacy::is_object_schema(s.value()));
    let raw = message::without_newlines(raw);
    if wrap && era == Era::Legacy { legacy::wrap_value(raw) } else { raw }
}

fn failure_result(
    failure: Failure,
    shows_lines: bool,
    mark: Option<&UntrustedMark>,
    entry: Option<&ToolEntry>,
    era: Era,
    mut meta: CallMeta,
) -> CallToolResult {
    let mut details = ErrorDetails::default();
    meta.put("toolbay/code", failure.code().as_str());
    let text = failure.to_string();
    let mut message = String::new();
    match failure {
        Failure::Refused(ToolError { message: said, subject, cost_usd, details: returned, .. }) => {
            message = said;
            details = returned.map(|returned| *returned).unwrap_or_default();
            if let Some(cost) = cost_usd.filter(|cost| cost.is_finite()) {
                meta.put("toolbay/cost_usd", &cost);
            }
            if let Some(subject) = subject {
                meta.put("toolbay/subject", &subject);
            }
        }
        Failure::Fault(Fault { kind, limit, retry_after_ms, .. }) => {
            meta.put("toolbay/fault", kind.as_str());
            if let Some(after) = retry_after_ms {
                meta.put("toolbay/retry_after_ms", &after);
            }
            if let Some(LimitHit { name, value, setting }) = limit {
                let mut limit = json!({ "name": name, "value": value });
                if let (Value::Object(limit), true) = (&mut limit, shows_lines) {
                    limit.insert("setting".to_owned(), setting.to_string().into());
                }
                meta.put("toolbay/limit", &limit);
            }
        }
        Failure::Host(_) => meta.put("toolbay/fault", "host_failed"),
    }
    // The official TypeScript client compares the data of an error with the listed output schema, too.
    let listed = details.structured.take_if(|_| output_schema(entry).is_some());
    let listed = listed.filter(|raw| !is_same_json(&message, raw, mark));
    let listed = listed.map(|raw| ContentBlock::text(structured_text(&raw, mark)));
    let blocks = listed.into_iter().chain(details.content.into_iter().map(to_mcp_block));
    let blocks = std::iter::once(ContentBlock::text(text)).chain(blocks).collect();
    let mut result = CallToolResult::new(blocks, true, meta);
    result.structured_content = details.structured.map(|raw| to_structured_content(raw, entry, era));
    result
}

/// The fault of a call beyond the limit on concurrent calls of a connection.
pub(crate) fn busy_fault(most: usize) -> Fault {
    let limit = LimitHit {
        name: "max_in_flight",
        value: most.to_string(),
        setting: LimitSetting::Nothing("the program that serves sets this `max_in_flight`".to_owned()),
    };
    let message = format!(
        "the server is busy: this connection has reached its limit of {most} concurrent calls; retry when one of \
         them has ended"
    );
    Fault { kind: FaultKind::Busy, message, limit: Some(limit), retry_after_ms: None }
}

/// The result of a call that did not end after its cancellation.
pub(crate) fn cancelled_result() -> CallToolResult {
    fault_result(Fault::new(FaultKind::Cancelled, "the call was cancelled"))
}

/// The result of a call that was cancelled because the server shuts down.
pub(crate) fn shutdown_result() -> CallToolResult {
    let text = "the server is shutting down and cancelled the call; effects up to this point remain";
    fault_result(Fault::new(FaultKind::Cancelled, text))
}

/// The result of a call that failed before or after it ran.
pub(crate) fn fault_result(fault: Fault) -> CallToolResult {
    failure_result(Failure::Fault(fault), false, None, None, Era::Modern, CallMeta::default())
}

fn to_mcp_block(block: content::ContentBlock) -> ContentBlock {
    let annotations = block.annotations.map(to_mcp_annotations);
    match block.body {
        BlockBody::Text(text) => {
            let mut block = TextContent::new(text);
            block.annotations = annotations;
            ContentBlock::Text(block)
        }
        BlockBody::Image(blob) => {
            let mut block = ImageContent::new(STANDARD.encode(&blob.data), blob.mime_type);
            block.annotations = annotations;
            ContentBlock::Image(block)
        }
        BlockBody::Audio(blob) => {
            let mut block = AudioContent::new(STANDARD.encode(&blob.data), blob.mime_type);
            block.annotations = annotations;
            ContentBlock::Audio(block)
        }
        BlockBody::Link(link) => {
            let mut block = Resource::new(link.uri, link.name);
            block.title = link.title;
            block.description = link.description;
            block.mime_type = link.mime_type;
            block.size = link.size;
            block.annotations = annotations;
            ContentBlock::ResourceLink(block)
        }
        BlockBody::Embedded(resource) => {
            let (uri, mime_type, meta) = (resource.uri, resource.mime_type, None);
            let mut block = EmbeddedResource::new(match resource.body {
                ResourceBody::Text(text) => {
                    ResourceContents::TextResourceContents { uri, mime_type, text, meta }
                }
                ResourceBody::Blob(bytes) => {
                    let blob = STANDARD.encode(&bytes);
                    ResourceContents::BlobResourceContents { uri, mime_type, blob, meta }
                }
            });
            block.annotations = annotations;
            ContentBlock::Resource(block)
        }
    }
}

fn to_mcp_annotations(hints: content::BlockAnnotations) -> Annotations {
    let role = |role: &content::Role| match role {
        content::Role::User => Role::User,
        content::Role::Assistant => Role::Assistant,
    };
    let mut out = Annotations::default();
    out.audience = (!hints.audience.is_empty()).then(|| hints.audience.iter().map(role).collect());
    // Strict clients refuse the whole result if a priority is outside 0 to 1.
    out.priority = hints.priority.filter(|p| (0.0..=1.0).contains(p));
    out.last_modified = hints.last_modified;
    out
}

fn insert_meta<T: serde::Serialize + ?Sized>(meta: &mut MetaObject, key: &str, value: &T) {
    meta.insert(key.to_owned(), json!(value));
}

/// A time in milliseconds, as MCP writes it.
pub(crate) fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
