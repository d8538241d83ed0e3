//! The three search tools: definitions, arguments and results.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolbay_core::call::invoke::{BoxFuture, Failure, ForwardTarget, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::registry::view::View;
use toolbay_core::registry::{Bundle, ToolEntry};
use toolbay_core::tool::content::{ErrorCode, ToolError, ToolOutput};
use toolbay_core::tool::refusal::RefusalReason;
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_policy::excerpt::{first_sentence, one_line};
use toolbay_policy::limits::Usage;
use toolbay_policy::name::{QualifiedName, ToolName};
use toolbay_policy::similar::TypedName;

use super::{ToolHit, search};
use crate::search::Index;

/// The tool that searches for tools.
pub const SEARCH: &str = "tool_search";
/// The tool that returns the full definition of a tool.
pub const DESCRIBE: &str = "tool_describe";
/// The tool that calls another tool.
pub const CALL: &str = "tool_call";

/// Most tools in a result of [`SEARCH`].
pub const MAX_HITS: usize = 50;
/// The default number of tools in a result.
const DEFAULT_HITS: usize = 10;
/// Most bytes of schemas in one result. Hits beyond it have no schema; the model can get it with [`DESCRIBE`].
const SCHEMA_BYTES: usize = 32 << 10;
/// Most bytes of arguments of [`CALL`]. The limit of the called tool applies as well.
const CALL_BYTES: u64 = 64 << 20;
/// Longest name in a result, in characters.
const MAX_NAME: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchTool {
    Search,
    Describe,
    Call,
}

/// The tools without a view, built once.
static TOOLS: LazyLock<Vec<(SearchTool, ToolEntry)>> = LazyLock::new(|| {
    [SearchTool::Search, SearchTool::Describe, SearchTool::Call]
        .into_iter()
        .filter_map(|meta| Some((meta, build_entry(meta)?)))
        .collect()
});

/// The three tools, bound to a view.
pub(super) fn bundle(view: &View) -> Bundle {
    let bound = |(meta, entry): &(SearchTool, ToolEntry)| {
        let invoker = Arc::new(BoundTool { meta: *meta, view: Some(view.clone()) });
        ToolEntry { invoker, ..entry.clone() }
    };
    TOOLS.iter().map(bound).collect::<Vec<ToolEntry>>().into()
}

/// Whether a tool of a view is one of the three. A tool of another source with one of the names is not.
pub(super) fn is_search_tool(entry: &ToolEntry) -> bool {
    let is_it = |own: &ToolDef| own.name == entry.def.name && own.description == entry.def.description;
    TOOLS.iter().any(|(_, own)| is_it(&own.def))
}

fn build_entry(meta: SearchTool) -> Option<ToolEntry> {
    let (name, about, schema) = match meta {
        SearchTool::Search => (
            SEARCH,
            "Find tools that are not in your list, by words for what they should do. Returns names, summaries and, for \
             tools outside of your list, the schemas of the arguments. Then call a tool by its name or through \
             tool_call.",
            json!({
                "query": {"type": "string", "description": "Words for what the tool should do, or its name."},
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": DEFAULT_HITS,
                    "description": "The maximum number of tools.",
                },
            }),
        ),
        SearchTool::Describe => (
            DESCRIBE,
            "Show the full definition of a tool: its description and the schema of its arguments.",
            json!({"name": {"type": "string", "description": "The tool's name, as in a result of tool_search."}}),
        ),
        SearchTool::Call => (
            CALL,
            "Call a tool that is not in your list. Get the schema of its arguments first, from tool_search or \
             tool_describe.",
            json!({
                "name": {"type": "string", "description": "The tool's name, as in a result of tool_search."},
                "arguments": {"type": "object", "description": "The arguments, which must match the tool's schema."},
            }),
        ),
    };
    let required = match meta {
        SearchTool::Search => json!(["query"]),
        SearchTool::Describe => json!(["name"]),
        SearchTool::Call => json!(["name", "arguments"]),
    };
    let schema = json!({
        "type": "object", "properties": schema, "required": required, "additionalProperties": false,
    });
    let name = QualifiedName::from_native(&ToolName::new(name).ok()?);
    let mut def = ToolDef::new(name, about, Schema::input(&schema.to_string()).ok()?, ToolSource::Builtin);
    // `tool_call` has the effects of the tool that it calls, so it has no traits.
    let read_only = meta != SearchTool::Call;
    def.traits =
        ToolTraits { read_only, idempotent: read_only, closed_world: read_only, ..ToolTraits::default() };
    let mut entry = ToolEntry::new(def, Arc::new(BoundTool { meta, view: None }));
    entry.flags.always_include = true;
    // The tool that it calls asks for the reason.
    entry.call.toolcall_reason = Some(false);
    if meta == SearchTool::Call {
        entry.call.args_bytes = CALL_BYTES;
    }
    Some(entry)
}

/// A search tool with its view.
#[derive(Debug)]
struct BoundTool {
    meta: SearchTool,
    view: Option<View>,
}

impl Invoke for BoundTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let result = match &self.view {
                Some(view) => {
                    let (meta, owned, args) = (self.meta, view.clone(), call.args().clone());
                    let work = move || run_tool(meta, &owned, &args);
                    match ctx.compute(search_steps(view), work).await {
                        Ok(result) => result.map_err(Failure::Refused),
                        Err(cancelled) => Err(cancelled.into()),
                    }
                }
                None => Err(Failure::Host("a search tool was called without a view".to_owned())),
            };
            ToolOutcome { result, usage: Usage::default() }
        })
    }

    /// Returns `None` if the call cannot be forwarded: [`CALL`] then runs and returns the reason.
    fn forward(&self, args: &str) -> Option<ForwardTarget> {
        let (SearchTool::Call, Some(view), true) = (self.meta, &self.view, args.len() as u64 <= CALL_BYTES)
        else {
            return None;
        };
        // The reason why a call cannot be forwarded takes longer to find.
        let CallArgs { name, arguments } = parse_args(args).ok()?;
        let entry = find_by_name(view, &name).filter(|_| arguments.get().starts_with('{'))?;
        Some(forward_to(entry, &arguments))
    }
}

#[derive(Deserialize)]
struct SearchArgs {
    query: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct DescribeArgs {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallArgs {
    name: String,
    /// The original text, so that numbers keep all digits.
    arguments: Box<RawValue>,
}

fn parse_args<'a, T: Deserialize<'a>>(args: &'a str) -> Result<T, ToolError> {
    serde_json::from_str(args).map_err(|error| ToolError::new(ErrorCode::InputInvalid, error.to_string()))
}

/// An estimate of the steps of a search, of about ten nanoseconds each. The first search in a catalog builds its index.
fn search_steps(view: &View) -> u64 {
    let per_tool = if view.catalog().derived::<Index>().is_some() { 50 } else { 5000 };
    (view.catalog().tools().len() as u64).saturating_mul(per_tool)
}

fn run_tool(meta: SearchTool, view: &View, args: &str) -> Result<ToolOutput, ToolError> {
    let value = match meta {
        SearchTool::Search => {
            let SearchArgs { query, limit } = parse_args(args)?;
            let hits =
                search(view, &query, limit.unwrap_or(DEFAULT_HITS).min(MAX_HITS)).map_err(|error| {
                    ToolError::new(ErrorCode::InputInvalid, error.to_string()).with_subject("/query")
                })?;
            format_hits(&hits)
        }
        SearchTool::Describe => {
            let DescribeArgs { name } = parse_args(args)?;
            format_definition(require_by_name(view, &name)?)
        }
        SearchTool::Call => {
            // A call that can be forwarded does not reach this point.
            let ForwardTarget { tool, .. } = forward_target(view, args)?;
            let text = format!("`{tool}` cannot be called through `{CALL}`: call it directly");
            return Err(ToolError::new(ErrorCode::InputInvalid, text).with_subject("/name"));
        }
    };
    let structured = serde_json::value::to_raw_value(&value).ok();
    Ok(ToolOutput { structured, ..ToolOutput::text(value.to_string()) })
}

/// The target of a call of [`CALL`].
fn forward_target(view: &View, args: &str) -> Result<ForwardTarget, ToolError> {
    let CallArgs { name, arguments } = parse_args(args)?;
    if !arguments.get().starts_with('{') {
        return Err(ToolError::new(ErrorCode::InputInvalid, "`arguments` is not an object")
            .with_subject("/arguments"));
    }
    if TOOLS.iter().any(|(_, entry)| entry.def.name.as_str() == name) && view.get(&name).is_none() {
        let text = format!("`{name}` is not called through `{CALL}`: call it directly");
        return Err(ToolError::new(ErrorCode::InputInvalid, text).with_subject("/name"));
    }
    Ok(forward_to(require_by_name(view, &name)?, &arguments))
}

fn forward_to(entry: &ToolEntry, arguments: &RawValue) -> ForwardTarget {
    ForwardTarget { tool: entry.def.name.as_str().to_owned(), args: arguments.get().to_owned() }
}

/// The callable tool with this name, ignoring case and separators.
fn find_by_name<'v>(view: &'v View, name: &str) -> Option<&'v Arc<ToolEntry>> {
    if view.is_visible(name) {
        return view.get_callable(name);
    }
    let typed = TypedName::new(name);
    let mut matching = view.discoverable().filter(|entry| typed.is_same(entry.def.name.as_str()));
    matching.next().filter(|_| matching.next().is_none())
}

/// The callable tool with this name, ignoring case and separators, or why there is none.
fn require_by_name<'v>(view: &'v View, name: &str) -> Result<&'v Arc<ToolEntry>, ToolError> {
    find_by_name(view, name).ok_or_else(|| match view.find(name) {
        // The caller may know the tool, which is not callable: return the reason and suggest no other tool.
        Err(error) if matches!(error.refusal, Some(RefusalReason::Disabled | RefusalReason::Unavailable)) => {
            error
        }
        Err(error) => suggest(view, name, error),
        Ok(_) => suggest(view, name, view.unknown_tool_error(name)),
    })
}

/// Adds a pointer to [`SEARCH`], if the error suggests no similar name.
fn suggest(view: &View, name: &str, mut error: ToolError) -> ToolError {
    let names_source = matches!(error.refusal, Some(RefusalReason::LeftOut | RefusalReason::SourceAbsent));
    if names_source || view.similar(name).is_empty() {
        error.message.push_str(". Find tools with `tool_search`.");
    }
    error.with_subject("/name")
}

/// The result of [`SEARCH`]: for each tool the name, the first sentence of the description, the score, the source and
/// whether it is deferred. Deferred tools and the hit for an exact name also have the schema of their arguments.
#[must_use]
pub fn format_hits(hits: &[ToolHit]) -> Value {
    let mut room = SCHEMA_BYTES;
    let tools: Vec<Value> = hits.iter().map(|hit| format_hit(hit, &mut room)).collect();
    let mut answer = json!({ "tools": tools });
    if let (Value::Object(map), true) = (&mut answer, hits.is_empty()) {
        let hint = "no tool matches; try other words for its subject or its action";
        map.insert("hint".to_owned(), hint.into());
    }
    answer
}

fn format_hit(hit: &ToolHit, room: &mut usize) -> Value {
    let def = &hit.entry.def;
    let mut tool = Map::new();
    let mut set = |key: &str, value: Value| drop(tool.insert(key.to_owned(), value));
    set("name", def.name.as_str().into());
    set("description", one_line(first_sentence(&def.description), 300).into());
    set("score", ((hit.score * 100.0).round() / 100.0).into());
    set("source", def.source.label().into());
    set("deferred", hit.entry.flags.deferred.into());
    if hit.entry.flags.deferred || hit.exact {
        let bytes = def.input_schema.value().to_string().len();
        match room.checked_sub(bytes) {
            Some(left) => {
                *room = left;
                set("schema", def.input_schema.value().clone());
            }
            None => set("schema_at", DESCRIBE.into()),
        }
    }
    Value::Object(tool)
}

/// The result of [`DESCRIBE`]: the full definition.
fn format_definition(entry: &ToolEntry) -> Value {
    let def = &entry.def;
    let mut tool = Map::new();
    let mut set = |key: &str, value: Value| {
        if !value.is_null() {
            tool.insert(key.to_owned(), value);
        }
    };
    set("name", one_line(def.name.as_str(), MAX_NAME).into());
    set("title", json!(def.title));
    set("description", def.description.as_str().into());
    set("schema", def.input_schema.value().clone());
    set("output_schema", json!(def.output_schema.as_ref().map(Schema::value)));
    set("toolset", json!(def.keywords.toolset));
    set("tags", entry.tags().iter().map(|tag| Value::from(&**tag)).collect());
    set("source", def.source.label().into());
    set("deferred", entry.flags.deferred.into());
    set("traits", json!(def.traits));
    Value::Object(tool)
}
