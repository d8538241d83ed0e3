//! `read_output`: the tool with which a model reads the full text of a result that was cut.
//!
//! It is one tool with a mode instead of several tools, since every prompt contains its definition. It is always
//! listed, so that the first cut result does not invalidate the prompt cache. It reads only the texts of its own
//! session, and its output is marked as untrusted if the saved text was.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolbay_policy::limits::Usage;
use toolbay_policy::name::{QualifiedName, ToolName};
use toolbay_policy::output::Truncation;

use crate::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use crate::call::{AdmittedCall, CallContext};
use crate::output::untrusted::UntrustedMark;
use crate::registry::{ToolEntry, ToolFlags};
use crate::session::output_store::query::{self, MAX_PATTERN, SearchPattern, TextQuery};
use crate::session::output_store::{OutputId, OutputStore, SavedText};
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};
use crate::tool::schema::Schema;
use crate::tool::{ToolDef, ToolSource, ToolTraits};

/// The tool's name.
pub const NAME: &str = "read_output";

/// Default number of lines for `head` and `tail`.
const DEFAULT_LINES: u64 = 200;
/// Most concurrent reads: each holds a text of up to 16 MiB (by default) in memory.
const MAX_READS: usize = 4;
/// Most context lines around a match.
const MAX_AROUND: u64 = 100;

/// The registry entry of the tool, reading from `store`.
///
/// # Errors
/// The built-in definition is invalid, which no caller can cause.
pub fn entry(store: Arc<dyn OutputStore>) -> Result<ToolEntry, String> {
    let name = ToolName::new(NAME).map_err(|e| e.to_string())?;
    let schema = Schema::input(&schema().to_string()).map_err(|e| e.to_string())?;
    let description = "Read the full text of a tool result that was cut. The cut result contains the id. Shows the beginning \
                 unless `mode` says otherwise. Line and character numbers start at 1.";
    let mut def = ToolDef::new(QualifiedName::from_native(&name), description, schema, ToolSource::Builtin);
    def.title = Some("Read a cut result".to_owned());
    def.traits =
        ToolTraits { read_only: true, idempotent: true, closed_world: true, ..ToolTraits::default() };
    let flags = ToolFlags { always_include: true, ..ToolFlags::default() };
    let mut entry = ToolEntry::new(def, Arc::new(ReadOutput { store, reads: Semaphore::new(MAX_READS) }));
    // The call that it continues has already given its reason.
    entry.call.toolcall_reason = Some(false);
    Ok(ToolEntry { flags, ..entry })
}

fn schema() -> Value {
    let number = |about: &str| json!({"type": "integer", "minimum": 1, "description": about});
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id from the cut result."},
            "mode": {
                "enum": ["head", "tail", "lines", "chars", "grep", "size"],
                "description": "head or tail: the first or last lines. lines or chars: the range from `from` to `to`; \
                                `chars` is for texts with very long lines. grep: the lines that match `pattern`. \
                                size: the size of the text. Default: grep with a `pattern`, lines with `from` or `to`, \
                                else head."
            },
            "count": number("head, tail: the number of lines. Default: 200."),
            "from": number("lines, chars: the start of the range. Default: 1."),
            "to": number("lines, chars: the end of the range, included. Default: as much as fits."),
            "pattern": {
                "type": "string", "minLength": 1, "maxLength": MAX_PATTERN,
                "description": "grep: the text to find, taken literally unless `regex` is true."
            },
            "regex": {"type": "boolean", "description": "grep: `pattern` is a regular expression."},
            "ignore_case": {"type": "boolean", "description": "grep: ignore upper and lower case."},
            "around": {
                "type": "integer", "minimum": 0, "maximum": MAX_AROUND,
                "description": "grep: context lines before and after each match. Default: 0."
            }
        },
        "required": ["id"],
        "additionalProperties": false
    })
}

#[derive(Debug)]
struct ReadOutput {
    store: Arc<dyn OutputStore>,
    reads: Semaphore,
}

impl Invoke for ReadOutput {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let usage = Usage { args_bytes: call.args().len() as u64, ..Usage::default() };
            ToolOutcome { result: self.read(call.parsed(), ctx).await, usage }
        })
    }
}

impl ReadOutput {
    async fn read(&self, args: &Arc<Value>, ctx: &CallContext) -> Result<ToolOutput, Failure> {
        let id = args.get("id").and_then(Value::as_str).unwrap_or_default();
        let id = OutputId::parse(id).ok_or_else(|| unknown_id(id))?;
        let session = ctx.turn.session.key();
        // One search of a session at a time: those of one session delay no other.
        let turn = ctx.compute_queue_of(session.unwrap_or(NAME)).acquire_permit().await?;
        // The semaphore is never closed.
        let permit = self.reads.acquire().await;
        let text = match session {
            Some(session) => self.store.get(session, &id).await,
            None => None,
        };
        let (text, most) = (text.ok_or_else(|| unknown_id(id.as_str()))?, ctx.budget_chars);
        let args = Arc::clone(args);
        // Reading a pattern, and searching 16 MiB, would block an async worker thread for too long.
        let search = move || {
            let answer = query(&args).map(|query| answer(&text, &query, most));
            drop(turn);
            answer
        };
        let result = tokio::task::spawn_blocking(search).await;
        drop(permit);
        let result = result.map_err(|_| Failure::Host("the text could not be searched".to_owned()))?;
        Ok(result.map(ToolOutput::text)?)
    }
}

/// The answer in at most `most` characters, with the mark of the text.
fn answer(text: &SavedText, query: &TextQuery, most: usize) -> String {
    if !text.untrusted {
        return query::answer(&text.text, query, most);
    }
    let mark = UntrustedMark::new(&text.source, &text.tool);
    let answer = query::answer(&text.text, query, most.saturating_sub(mark.chars()));
    let advice = "; ask for less at once";
    mark.fit(&answer, most, Truncation::Head, answer.chars().count(), advice)
}

fn unknown_id(id: &str) -> ToolError {
    let id: String = id.chars().take(50).collect();
    let text = format!(
        "no text `{id}` is saved for this session. Cut results contain the ids; saved texts expire, and the oldest are \
         removed first. Call the original tool again if you need its output."
    );
    ToolError::new(ErrorCode::NotAvailable, text).with_subject("/id")
}

/// The query from arguments that match the schema.
fn query(args: &Value) -> Result<TextQuery, ToolError> {
    let number = |key: &str, default: u64| {
        let number = args.get(key).and_then(Value::as_u64).unwrap_or(default);
        usize::try_from(number).unwrap_or(usize::MAX)
    };
    let flag = |key: &str| args.get(key).and_then(Value::as_bool).unwrap_or(false);
    let has = |key: &str| args.get(key).is_some();
    let default = match (has("pattern"), has("from") || has("to")) {
        (true, _) => "grep",
        (false, true) => "lines",
        (false, false) => "head",
    };
    Ok(match args.get("mode").and_then(Value::as_str).unwrap_or(default) {
        "tail" => TextQuery::Tail(number("count", DEFAULT_LINES)),
        "lines" => TextQuery::Lines(number("from", 1), number("to", u64::MAX)),
        "chars" => TextQuery::Chars(number("from", 1), number("to", u64::MAX)),
        "size" => TextQuery::Size,
        "grep" => {
            let words = args.get("pattern").and_then(Value::as_str).unwrap_or_default();
            let pattern = SearchPattern::new(words, flag("regex"), flag("ignore_case"));
            let invalid = |problem| ToolError::new(ErrorCode::InputInvalid, problem).with_subject("/pattern");
            TextQuery::Grep { pattern: pattern.map_err(invalid)?, around: number("around", 0) }
        }
        _ => TextQuery::Head(number("count", DEFAULT_LINES)),
    })
}
