//! The three tools: what they are told as, what they take, what they answer.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolbay_core::call::invoke::{BoxFuture, Failure, Invoke, Target, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::registry::view::View;
use toolbay_core::registry::{Bundle, Entry};
use toolbay_core::tool::content::{ErrorCode, ToolError, ToolOutput};
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_policy::limits::Usage;
use toolbay_policy::name::{QualifiedName, ToolName};
use toolbay_policy::similar::same_name;
use toolbay_policy::text::{first_sentence, one_line};

use super::{Hit, index_of, search};
use crate::search::Index;

/// Finds tools.
pub const SEARCH: &str = "tool_search";
/// Tells the whole definition of one.
pub const DESCRIBE: &str = "tool_describe";
/// Calls one.
pub const CALL: &str = "tool_call";

/// Most tools of one answer of [`SEARCH`]; more are not read.
pub const MAX_HITS: usize = 50;
/// Tools of an answer if nothing else is asked for.
const HITS: usize = 10;
/// Bytes of schemas in one answer; hits for which there is no room have none, and are described one by one.
const SCHEMA_BYTES: usize = 32 << 10;
/// Most bytes of arguments of [`CALL`]: those of the tool it names have their own bound, which holds as well.
const CALL_BYTES: u64 = 64 << 20;
/// Longest name that an answer repeats, in characters.
const MAX_NAME: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meta {
    Search,
    Describe,
    Call,
}

/// The tools without a view, made once.
static TOOLS: LazyLock<Vec<(Meta, Entry)>> = LazyLock::new(|| {
    [Meta::Search, Meta::Describe, Meta::Call]
        .into_iter()
        .filter_map(|meta| Some((meta, entry(meta)?)))
        .collect()
});

/// The three tools, which see a view.
pub(super) fn bundle(view: &View) -> Bundle {
    let bound = |(meta, entry): &(Meta, Entry)| {
        let invoker = Arc::new(Bound { meta: *meta, view: Some(view.clone()) });
        Entry { invoker, ..entry.clone() }
    };
    TOOLS.iter().map(bound).collect::<Vec<Entry>>().into()
}

fn entry(meta: Meta) -> Option<Entry> {
    let (name, about, schema) = match meta {
        Meta::Search => (
            SEARCH,
            "Find tools that are not in your list, by words for what they should do. Gives name, summary and, for \
             tools that can be called at once, the schema of the arguments. Then call what you found by its name, or \
             through tool_call.",
            json!({
                "query": {"type": "string", "description": "Words for what the tool should do, or its name."},
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": HITS,
                    "description": "How many tools to show at most.",
                },
            }),
        ),
        Meta::Describe => (
            DESCRIBE,
            "Show the whole definition of a tool: what it does and the schema of its arguments.",
            json!({"name": {"type": "string", "description": "The tool's name, as tool_search shows it."}}),
        ),
        Meta::Call => (
            CALL,
            "Call a tool that is not in your list. Learn its arguments first, from tool_search or tool_describe.",
            json!({
                "name": {"type": "string", "description": "The tool's name, as tool_search shows it."},
                "arguments": {"type": "object", "description": "Its arguments, as its schema says."},
            }),
        ),
    };
    let required = match meta {
        Meta::Search => json!(["query"]),
        Meta::Describe => json!(["name"]),
        Meta::Call => json!(["name", "arguments"]),
    };
    let schema = json!({
        "type": "object", "properties": schema, "required": required, "additionalProperties": false,
    });
    let name = QualifiedName::native(&ToolName::new(name).ok()?);
    let mut def = ToolDef::new(name, about, Schema::input(&schema.to_string()).ok()?, ToolSource::Builtin);
    // A call changes what the tool it names changes: it claims nothing.
    let looks = meta != Meta::Call;
    def.traits =
        ToolTraits { read_only: looks, idempotent: looks, closed_world: looks, ..ToolTraits::default() };
    let mut entry = Entry::new(def, Arc::new(Bound { meta, view: None }));
    entry.flags.always_include = true;
    if meta == Meta::Call {
        entry.call.args_bytes = CALL_BYTES;
    }
    Some(entry)
}

/// One of the tools with the view it sees.
#[derive(Debug)]
struct Bound {
    meta: Meta,
    view: Option<View>,
}

impl Invoke for Bound {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, _: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let result = match &self.view {
                Some(view) => answer(self.meta, view, call.args()).await.map_err(Failure::Refused),
                None => Err(Failure::Host("a tool that belongs to a view has none".to_owned())),
            };
            ToolOutcome { result, usage: Usage::default() }
        })
    }

    /// Nothing if it cannot be done: the call then goes on as one of [`CALL`], which says why.
    fn forward(&self, args: &str) -> Option<Target> {
        let (Meta::Call, Some(view), true) = (self.meta, &self.view, args.len() as u64 <= CALL_BYTES) else {
            return None;
        };
        target(view, args).ok()
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
    /// As they stand, to the last digit of a number.
    arguments: Box<RawValue>,
}

fn read<'a, T: Deserialize<'a>>(args: &'a str) -> Result<T, ToolError> {
    serde_json::from_str(args).map_err(|error| ToolError::new(ErrorCode::InputInvalid, error.to_string()))
}

async fn answer(meta: Meta, view: &View, args: &str) -> Result<ToolOutput, ToolError> {
    index(view).await;
    let value = match meta {
        Meta::Search => {
            let SearchArgs { query, limit } = read(args)?;
            let hits = search(view, &query, limit.unwrap_or(HITS).min(MAX_HITS)).map_err(|error| {
                ToolError::new(ErrorCode::InputInvalid, error.to_string()).about("/query")
            })?;
            found(&hits)
        }
        Meta::Describe => {
            let DescribeArgs { name } = read(args)?;
            described(&*named(view, &name)?)
        }
        Meta::Call => {
            // What can be called was called in its place.
            let Target { tool, .. } = target(view, args)?;
            let text = format!("`{tool}` cannot be called through `{CALL}`: call it directly");
            return Err(ToolError::new(ErrorCode::InputInvalid, text).about("/name"));
        }
    };
    let structured = serde_json::value::to_raw_value(&value).ok();
    Ok(ToolOutput { structured, ..ToolOutput::text(value.to_string()) })
}

/// Makes the index, if it is not there, where nobody waits for this thread.
async fn index(view: &View) {
    if view.catalog().derived::<Index>().is_none() {
        let catalog = Arc::clone(view.catalog());
        // If it panics, whoever searches makes the index, or panics again where it is caught.
        tokio::task::spawn_blocking(move || drop(index_of(&catalog))).await.ok();
    }
}

/// The call that a call of [`CALL`] stands for.
fn target(view: &View, args: &str) -> Result<Target, ToolError> {
    let CallArgs { name, arguments } = read(args)?;
    if !arguments.get().starts_with('{') {
        return Err(
            ToolError::new(ErrorCode::InputInvalid, "`arguments` is not an object").about("/arguments")
        );
    }
    if TOOLS.iter().any(|(_, entry)| entry.def.name.as_str() == name) && view.get(&name).is_none() {
        let text = format!("`{name}` is not called through `{CALL}`: call it directly");
        return Err(ToolError::new(ErrorCode::InputInvalid, text).about("/name"));
    }
    let entry = named(view, &name)?;
    Ok(Target { tool: entry.def.name.as_str().to_owned(), args: arguments.get().to_owned() })
}

/// The tool of a name, if it may be called; case and separators are forgiven.
fn named(view: &View, name: &str) -> Result<Arc<Entry>, ToolError> {
    match view.find(name) {
        Ok(entry) => Ok(Arc::clone(entry)),
        // It is there and may not be called: why is told, and no other is offered in its place.
        Err(error) if view.get(name).is_some() => Err(error),
        Err(error) => {
            let mut meant = view.discoverable().filter(|entry| same_name(entry.def.name.as_str(), name));
            match (meant.next(), meant.next()) {
                (Some(entry), None) => Ok(Arc::clone(entry)),
                _ => Err(suggest(error)),
            }
        }
    }
}

/// Adds the way to find tools where no name is like the one that was asked for.
fn suggest(mut error: ToolError) -> ToolError {
    if !error.message.ends_with('?') {
        error.message.push_str(". Find tools with `tool_search`.");
    }
    error.about("/name")
}

/// What [`SEARCH`] answers: for each tool its name, the first sentence of its description, score, source and whether it
/// is deferred; the schema of its arguments if it is deferred, or the only hit for an exact name.
#[must_use]
pub fn found(hits: &[Hit]) -> Value {
    let mut room = SCHEMA_BYTES;
    let tools: Vec<Value> = hits.iter().map(|hit| one(hit, &mut room)).collect();
    let mut answer = json!({ "tools": tools });
    if let (Value::Object(map), true) = (&mut answer, hits.is_empty()) {
        let hint = "no tool fits; try other words, for what it acts on or what it does";
        map.insert("hint".to_owned(), hint.into());
    }
    answer
}

fn one(hit: &Hit, room: &mut usize) -> Value {
    let def = &hit.entry.def;
    let mut tool = Map::new();
    let mut put = |key: &str, value: Value| drop(tool.insert(key.to_owned(), value));
    put("name", def.name.as_str().into());
    put("description", one_line(first_sentence(&def.description), 300).into());
    put("score", ((hit.score * 100.0).round() / 100.0).into());
    put("source", def.source.label().into());
    put("deferred", hit.entry.flags.deferred.into());
    if hit.entry.flags.deferred || hit.exact {
        let bytes = def.input_schema.value().to_string().len();
        match room.checked_sub(bytes) {
            Some(left) => {
                *room = left;
                put("schema", def.input_schema.value().clone());
            }
            None => put("schema_at", DESCRIBE.into()),
        }
    }
    Value::Object(tool)
}

/// What [`DESCRIBE`] answers: the whole definition.
fn described(entry: &Entry) -> Value {
    let def = &entry.def;
    let mut tool = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            tool.insert(key.to_owned(), value);
        }
    };
    put("name", one_line(def.name.as_str(), MAX_NAME).into());
    put("title", json!(def.title));
    put("description", def.description.as_str().into());
    put("schema", def.input_schema.value().clone());
    put("output_schema", json!(def.output_schema.as_ref().map(Schema::value)));
    put("toolset", json!(def.keywords.toolset));
    put("tags", entry.tags().iter().map(|tag| Value::from(&**tag)).collect());
    put("source", def.source.label().into());
    put("deferred", entry.flags.deferred.into());
    put("traits", json!(def.traits));
    Value::Object(tool)
}
