//! Between the domain and the wire: how a tool, a result and a failure look in MCP.

use std::sync::{Arc, LazyLock, OnceLock};

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

use crate::protocol::lifecycle::Era;
use crate::protocol::mirror::HeaderMirror;
use crate::protocol::{legacy, message};
use crate::server::{changes, outputs, prompts_and_resources};

/// The result of a call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallToolResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    pub(crate) content: Vec<ContentBlock>,
    /// As the tool wrote it: a tree takes up to fifty times the memory of its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<Box<RawValue>>,
    is_error: bool,
    #[serde(rename = "_meta")]
    meta: CallMeta,
}

/// What is said beside a result.
#[derive(Debug, Default)]
struct CallMeta(Vec<(&'static str, Box<RawValue>)>);

impl CallMeta {
    fn put<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) {
        // Of text and numbers, nothing can fail to be written.
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

    /// Adds what clients of the era want in each result.
    pub(crate) fn signed(mut self, era: Era) -> Self {
        if era == Era::Modern {
            self.result_type = Some("complete");
            self.meta.put(SERVER_INFO, &OURS.get(SERVER_INFO));
        }
        self
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

/// Under which key a result of 2026-07-28 says who made it.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
static OURS: LazyLock<MetaObject> = LazyLock::new(|| {
    let mut meta = MetaObject::new();
    put(&mut meta, SERVER_INFO, &implementation());
    meta
});

/// What 2026-07-28 wants in each result: who made it.
pub(crate) fn signature() -> &'static MetaObject {
    &OURS
}

/// A tool as lists show it, in each era; made when it is first listed.
#[derive(Default)]
struct ListedTool {
    written: [OnceLock<Box<RawValue>>; 2],
    number: OnceLock<u64>,
    mirror: OnceLock<HeaderMirror>,
}

/// What was made of a tool, kept with it; `None`: an embedder keeps something else there.
fn kept(entry: &Entry) -> Option<&ListedTool> {
    entry.form(|_| ListedTool::default())
}

/// A tool as `tools/list` shows it: the text that was written of it once.
pub(crate) struct ShownTool<'a>(pub(crate) &'a Entry, pub(crate) Era);

impl Serialize for ShownTool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(entry, era) = *self;
        let Some(kept) = kept(entry) else { return listed(entry, era).serialize(serializer) };
        let [legacy, modern] = &kept.written;
        let written = if era == Era::Legacy { legacy } else { modern };
        // Of text and JSON, nothing can fail to be written.
        written.get_or_init(|| to_raw_value(&listed(entry, era)).unwrap_or_default()).serialize(serializer)
    }
}

/// The same as a number: another tool is another number.
pub(crate) fn number(entry: &Entry) -> u64 {
    let count = || changes::numbered(std::iter::once(listed(entry, Era::Modern)));
    kept(entry).map_or_else(count, |kept| *kept.number.get_or_init(count))
}

/// Which arguments of a tool also have to be in headers of a request (SEP-2243). A schema that marks them wrongly marks
/// none.
pub(crate) fn mirror(entry: &Entry) -> HeaderMirror {
    let read = || HeaderMirror::of(entry.def.input_schema.value()).unwrap_or_default();
    kept(entry).map_or_else(read, |kept| kept.mirror.get_or_init(read).clone())
}

fn listed(entry: &Entry, era: Era) -> Tool {
    let def = &entry.def;
    let input = object(def.input_schema.value());
    let mut tool = Tool::new(def.name.as_str().to_owned(), def.description.clone(), input);
    tool.title.clone_from(&def.title);
    tool.annotations = hints(entry);
    tool.icons = prompts_and_resources::icons(entry.offers.as_deref(), def.bare());
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
    let mut meta = CallMeta::default();
    meta.put("toolbay/usage", &delivered.usage);
    meta.put("toolbay/duration_us", &delivered.duration_us);
    if let Some(age) = delivered.cached {
        meta.put("toolbay/cached_ms", &age.as_millis());
    }
    let hints = delivered.hints.for_model();
    let mut result = match delivered.result {
        Ok(output) => success(output, delivered.shaping.mark.as_ref(), entry, era, meta),
        Err(Failure::Refused(error)) if delivered.source.is_none() => {
            return Err(ErrorData::invalid_params(error.message, None));
        }
        Err(failure) => refusal(failure, hints.is_some(), meta),
    };
    // By default they are for the operator alone.
    result.content.extend(hints.map(ContentBlock::text));
    if links {
        let whole =
            delivered.shaping.saved.iter().map(|kept| ContentBlock::ResourceLink(outputs::resource(kept)));
        result.content.extend(whole);
    }
    Ok(result)
}

fn success(
    output: ToolOutput,
    mark: Option<&Mark>,
    entry: Option<&Entry>,
    era: Era,
    mut meta: CallMeta,
) -> CallToolResult {
    let ToolOutput { mut value, structured, content, cost_usd, meta: own } = output;
    if let Some(cost) = cost_usd.filter(|cost| cost.is_finite()) {
        meta.put("toolbay/cost_usd", &cost);
    }
    if let Some(own) = own {
        meta.0.push(("toolbay/meta", message::in_line(own)));
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
    let mut result = CallToolResult::new(blocks, false, meta);
    let promised = entry.and_then(|entry| entry.def.output_schema.as_ref());
    result.structured_content = structured.map(|raw| {
        let is_object = raw.get().trim_start().starts_with('{');
        let wrap = promised.map_or(!is_object, |s| !legacy::is_object_schema(s.value()));
        let raw = message::in_line(raw);
        if wrap && era == Era::Legacy { legacy::wrap_value(raw) } else { raw }
    });
    result
}

fn refusal(failure: Failure, shows_lines: bool, mut meta: CallMeta) -> CallToolResult {
    meta.put("toolbay/code", failure.code().as_str());
    let text = failure.to_string();
    match failure {
        Failure::Refused(ToolError { subject, cost_usd, .. }) => {
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
                    limit.insert("setting".to_owned(), setting.into());
                }
                meta.put("toolbay/limit", &limit);
            }
        }
        Failure::Host(_) => meta.put("toolbay/fault", "host_failed"),
    }
    CallToolResult::new(vec![ContentBlock::text(text)], true, meta)
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
    refusal(Failure::Fault(fault), false, CallMeta::default())
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

fn put<T: serde::Serialize + ?Sized>(meta: &mut MetaObject, key: &str, value: &T) {
    meta.insert(key.to_owned(), json!(value));
}
