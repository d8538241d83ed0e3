//! Between the domain and the wire: how a tool, a result and a failure look in MCP.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, OnceLock};

use rmcp::model::{
    Annotations, AudioContent, CallToolResult, ContentBlock, EmbeddedResource, ErrorData, ImageContent,
    Implementation, JsonObject, MetaObject, ProtocolVersion, Resource, ResourceContents, Role, TextContent,
    Tool, ToolAnnotations,
};
use serde_json::{Number, Value, json};
use toolbay_core::call;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::call::invoke::Failure;
use toolbay_core::output::budget;
use toolbay_core::output::untrusted::Mark;
use toolbay_core::pipeline::CallResult;
use toolbay_core::registry::view::Entry;
use toolbay_core::tool::ToolSource;
use toolbay_core::tool::content::{self, BlockBody, ResourceBody, ToolError, ToolOutput};
use toolbay_policy::limits::LimitHit;
use toolbay_policy::output::Truncation;

use crate::client::mirror;
use crate::protocol::{base64, legacy, raw};
use crate::server::{changes, outputs, shelf};

/// Which half of MCP's history a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Up to 2025-11-25: a handshake, objects only.
    Legacy,
    /// From 2026-07-28 on: stateless, any JSON value, caching hints.
    Modern,
}

impl Era {
    /// The era of a protocol version; none is known where a session was set up without a handshake.
    pub(crate) fn of(version: Option<&ProtocolVersion>) -> Self {
        // The names are ISO dates: they compare as text.
        match version {
            Some(version) if version.as_str() >= ProtocolVersion::V_2026_07_28.as_str() => Self::Modern,
            Some(_) | None => Self::Legacy,
        }
    }
}

/// Whether a client of this version knows links to resources in results; one that does not may refuse them all.
pub(crate) fn knows_links(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2025_06_18.as_str())
}

/// What the server says of itself.
pub(crate) fn implementation() -> Implementation {
    Implementation::new("toolbay", env!("CARGO_PKG_VERSION")).with_title("Toolbay")
}

/// Adds what 2026-07-28 wants in each result: who made it.
pub(crate) fn sign(meta: &mut Option<MetaObject>, era: Era) {
    static OURS: LazyLock<Value> = LazyLock::new(|| json!(implementation()));
    if era == Era::Modern {
        let key = "io.modelcontextprotocol/serverInfo".to_owned();
        meta.get_or_insert_default().insert(key, OURS.clone());
    }
}

/// A tool as lists show it, in each era; made when it is first listed.
#[derive(Default)]
struct Listed {
    made: [OnceLock<Tool>; 2],
    written: [OnceLock<Box<str>>; 2],
    number: OnceLock<u64>,
    mirrored: OnceLock<bool>,
}

/// That of an era.
fn of<T>([legacy, modern]: &[T; 2], era: Era) -> &T {
    if era == Era::Legacy { legacy } else { modern }
}

/// A tool as `tools/list` shows it.
pub(crate) fn tool(entry: &Entry, era: Era) -> Cow<'_, Tool> {
    match entry.form(|_| Listed::default()) {
        Some(form) => Cow::Borrowed(of(&form.made, era).get_or_init(|| listed(entry, era))),
        None => Cow::Owned(listed(entry, era)),
    }
}

/// The same as JSON.
pub(crate) fn written(entry: &Entry, era: Era) -> Cow<'_, str> {
    // Of text and JSON, nothing can fail to be written.
    let write = || serde_json::to_string(&listed(entry, era)).unwrap_or_default();
    match entry.form(|_| Listed::default()) {
        Some(form) => Cow::Borrowed(of(&form.written, era).get_or_init(|| write().into())),
        None => Cow::Owned(write()),
    }
}

/// The same as a number: another tool is another number.
pub(crate) fn number(entry: &Entry) -> u64 {
    let count = || changes::numbered(std::iter::once(listed(entry, Era::Modern)));
    entry.form(|_| Listed::default()).map_or_else(count, |form| *form.number.get_or_init(count))
}

/// Whether arguments of a tool may have to be in headers of a request, too (SEP-2243).
pub(crate) fn is_mirrored(entry: &Entry) -> bool {
    fn marks(value: &Value) -> bool {
        match value {
            Value::Object(members) => members.contains_key(mirror::MARK) || members.values().any(marks),
            Value::Array(items) => items.iter().any(marks),
            _ => false,
        }
    }
    let look = || marks(entry.def.input_schema.value());
    entry.form(|_| Listed::default()).map_or_else(look, |form| *form.mirrored.get_or_init(look))
}

fn listed(entry: &Entry, era: Era) -> Tool {
    let def = &entry.def;
    let input = object(def.input_schema.value());
    let mut tool = Tool::new(def.name.as_str().to_owned(), def.description.clone(), input);
    tool.title.clone_from(&def.title);
    tool.annotations = hints(entry);
    tool.icons = shelf::icons(entry.offers.as_deref(), def.bare());
    tool.output_schema = def.output_schema.as_ref().map(|schema| match era {
        Era::Legacy if !legacy::is_object_schema(schema.value()) => {
            Arc::new(legacy::wrap_schema(schema.value()))
        }
        Era::Legacy | Era::Modern => object(schema.value()),
    });
    tool.meta = origin(&def.source);
    tool
}

fn object(schema: &Value) -> Arc<JsonObject> {
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

/// What the grants prove, and else what the author claims; where there is neither there is no hint, and the client
/// assumes the worst. A claim that the grants contradict is none: a tool that may write files is not read-only for
/// saying so.
fn hints(entry: &Entry) -> Option<ToolAnnotations> {
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

fn origin(source: &ToolSource) -> Option<MetaObject> {
    let ToolSource::Plugin { id, version, digest } = source else { return None };
    let mut meta = MetaObject::new();
    put(&mut meta, "toolbay/plugin", id.as_str());
    if let Some(version) = version {
        put(&mut meta, "toolbay/version", version);
    }
    put(&mut meta, "toolbay/digest", &**digest);
    Some(meta)
}

/// The answer to a call. Only a name that nothing has is a protocol error; everything else is a result the model
/// can read and learn from.
pub(crate) fn answer(
    delivered: CallResult,
    entry: Option<&Entry>,
    era: Era,
    links: bool,
) -> Result<CallToolResult, ErrorData> {
    let mut meta = MetaObject::new();
    put(&mut meta, "toolbay/usage", &delivered.usage);
    put(&mut meta, "toolbay/duration_us", &delivered.duration_us);
    if let Some(age) = delivered.cached {
        put(&mut meta, "toolbay/cached_ms", &age.as_millis());
    }
    let hints = delivered.hints.for_model();
    let mut result = match delivered.result {
        Ok(output) => success(output, delivered.shaping.mark.as_ref(), entry, era, &mut meta),
        Err(Failure::Refused(error)) if delivered.source.is_none() => {
            return Err(ErrorData::invalid_params(error.message, None));
        }
        Err(failure) => refusal(failure, hints.is_some(), &mut meta),
    };
    // By default they are for the operator alone.
    result.content.extend(hints.map(ContentBlock::text));
    if links {
        let whole =
            delivered.shaping.saved.iter().map(|kept| ContentBlock::ResourceLink(outputs::resource(kept)));
        result.content.extend(whole);
    }
    result.meta = Some(meta);
    Ok(result)
}

fn success(
    output: ToolOutput,
    mark: Option<&Mark>,
    entry: Option<&Entry>,
    era: Era,
    meta: &mut MetaObject,
) -> CallToolResult {
    let ToolOutput { mut value, structured, content, cost_usd, meta: own } = output;
    cost(meta, cost_usd);
    if let Some(own) = own.and_then(|own| raw::value(own.get())) {
        meta.insert("toolbay/meta".to_owned(), own);
    }
    // Some clients show the model only the text, some only the structured part: each must stand for itself.
    if let (true, Some(raw)) = (value.is_empty(), &structured) {
        raw.get().clone_into(&mut value);
        let most = call::DEFAULT_BUDGET_CHARS;
        match mark {
            Some(mark) => value = mark.fit(&value, most, Truncation::Head, value.chars().count(), ""),
            None => _ = budget::cut(&mut value, most),
        }
    }
    let mut blocks = Vec::with_capacity(content.len() + 1);
    // Model APIs refuse an empty text block, and with it the whole conversation.
    if !value.is_empty() {
        blocks.push(ContentBlock::text(value));
    }
    blocks.extend(content.into_iter().map(block));
    let mut result = CallToolResult::success(blocks);
    let promised = entry.and_then(|entry| entry.def.output_schema.as_ref());
    result.structured_content =
        structured.and_then(|text| raw::value(text.get()).map(|value| (text, value))).map(|(text, value)| {
            let is_object = text.get().trim_start().starts_with('{');
            let wrap = promised.map_or(!is_object, |s| !legacy::is_object_schema(s.value()));
            if wrap && era == Era::Legacy { legacy::wrap_value(value) } else { value }
        });
    result
}

fn refusal(failure: Failure, shows_lines: bool, meta: &mut MetaObject) -> CallToolResult {
    put(meta, "toolbay/code", failure.code().as_str());
    let text = failure.to_string();
    match failure {
        Failure::Refused(ToolError { subject, cost_usd, .. }) => {
            cost(meta, cost_usd);
            if let Some(subject) = subject {
                put(meta, "toolbay/subject", &subject);
            }
        }
        Failure::Fault(Fault { kind, limit, retry_after_ms, .. }) => {
            put(meta, "toolbay/fault", kind.as_str());
            if let Some(after) = retry_after_ms {
                put(meta, "toolbay/retry_after_ms", &after);
            }
            if let Some(LimitHit { name, value, setting }) = limit {
                let mut limit = json!({ "name": name, "value": value });
                if let (Value::Object(limit), true) = (&mut limit, shows_lines) {
                    limit.insert("setting".to_owned(), setting.into());
                }
                put(meta, "toolbay/limit", &limit);
            }
        }
        Failure::Host(_) => put(meta, "toolbay/fault", "host_failed"),
    }
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// The answer when a connection has as many calls running as it may.
pub(crate) fn busy(most: usize) -> CallToolResult {
    let limit =
        LimitHit {
            name: "max_in_flight", value: most.to_string(), setting: "max_in_flight = …".to_owned()
        };
    let message = format!(
        "the server is busy: {most} calls of this connection are running, as many as may run at once; retry when \
         one of them has ended"
    );
    failed(Fault { kind: FaultKind::Busy, message, limit: Some(limit), retry_after_ms: None })
}

/// The answer to a call that did not end after it was cancelled.
pub(crate) fn abandoned() -> CallToolResult {
    failed(Fault::new(FaultKind::Cancelled, "the call was cancelled"))
}

/// The answer to a call that was cancelled because the server ends.
pub(crate) fn cut_off() -> CallToolResult {
    let text =
        "the server is shutting down and cancelled the call before it ended; its effects up to then remain";
    failed(Fault::new(FaultKind::Cancelled, text))
}

/// The answer to a call that did not run, or whose answer is lost.
pub(crate) fn failed(fault: Fault) -> CallToolResult {
    let mut meta = MetaObject::new();
    let mut result = refusal(Failure::Fault(fault), false, &mut meta);
    result.meta = Some(meta);
    result
}

fn block(block: content::ContentBlock) -> ContentBlock {
    let annotations = block.annotations.map(annotations);
    match block.body {
        BlockBody::Text(text) => {
            let mut block = TextContent::new(text);
            block.annotations = annotations;
            ContentBlock::Text(block)
        }
        BlockBody::Image(blob) => {
            let mut block = ImageContent::new(base64::encode(&blob.data), blob.mime_type);
            block.annotations = annotations;
            ContentBlock::Image(block)
        }
        BlockBody::Audio(blob) => {
            let mut block = AudioContent::new(base64::encode(&blob.data), blob.mime_type);
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
                    let blob = base64::encode(&bytes);
                    ResourceContents::BlobResourceContents { uri, mime_type, blob, meta }
                }
            });
            block.annotations = annotations;
            ContentBlock::Resource(block)
        }
    }
}

fn annotations(hints: content::BlockAnnotations) -> Annotations {
    let role = |role: &content::Role| match role {
        content::Role::User => Role::User,
        content::Role::Assistant => Role::Assistant,
    };
    let mut out = Annotations::default();
    out.audience = (!hints.audience.is_empty()).then(|| hints.audience.iter().map(role).collect());
    // Outside of 0 to 1, clients that check refuse the whole result.
    out.priority = hints.priority.filter(|p| (0.0..=1.0).contains(p));
    out.last_modified = hints.last_modified;
    out
}

fn cost(meta: &mut MetaObject, usd: Option<f64>) {
    if let Some(usd) = usd.and_then(Number::from_f64) {
        meta.insert("toolbay/cost_usd".to_owned(), Value::Number(usd));
    }
}

fn put<T: serde::Serialize + ?Sized>(meta: &mut MetaObject, key: &str, value: &T) {
    meta.insert(key.to_owned(), json!(value));
}
