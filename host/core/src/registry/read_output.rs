//! `read_output`: the tool with which a model reads what was cut from a result.
//!
//! One tool with a mode, not a family: its definition is in every prompt, and a model that was told one name and one id
//! finds the rest in the schema. It is always listed, so that a prompt's cache stays good when the first text is cut.
//! It reads what its own session was given, and what it says is marked as the tool's own words were.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolbay_policy::limits::Usage;
use toolbay_policy::name::{QualifiedName, ToolName};
use toolbay_policy::output::Truncation;

use crate::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use crate::call::{AdmittedCall, CallContext};
use crate::output::untrusted::Mark;
use crate::registry::{Entry, Flags};
use crate::session::spool::question::{self, MAX_PATTERN, Pattern, Question};
use crate::session::spool::{Spool, SpoolId, SpooledText};
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};
use crate::tool::schema::Schema;
use crate::tool::{ToolDef, ToolSource, ToolTraits};

/// The tool's name.
pub const NAME: &str = "read_output";

/// Lines of `head` and `tail`, unless the call says how many.
const DEFAULT_LINES: u64 = 200;
/// Texts that are in memory at once to be read: one may have as much as a call may answer, 16 MiB by default.
const MAX_READS: usize = 4;
/// Most lines around a match.
const MAX_AROUND: u64 = 100;

/// The tool over a spool, for a registry.
///
/// # Errors
/// None that a caller could bring about: the definition is fixed.
pub fn entry(spool: Arc<dyn Spool>) -> Result<Entry, String> {
    let name = ToolName::new(NAME).map_err(|e| e.to_string())?;
    let schema = Schema::input(&schema().to_string()).map_err(|e| e.to_string())?;
    let about = "Read a tool result that was too long and was cut, by the id that the cut result names. Shows the \
                 beginning unless `mode` says otherwise. Line and character numbers start at 1.";
    let mut def = ToolDef::new(QualifiedName::native(&name), about, schema, ToolSource::Builtin);
    def.title = Some("Read a cut result".to_owned());
    def.traits =
        ToolTraits { read_only: true, idempotent: true, closed_world: true, ..ToolTraits::default() };
    let flags = Flags { always_include: true, ..Flags::default() };
    Ok(Entry { flags, ..Entry::new(def, Arc::new(ReadOutput { spool, reads: Semaphore::new(MAX_READS) })) })
}

fn schema() -> Value {
    let number = |about: &str| json!({"type": "integer", "minimum": 1, "description": about});
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id that the cut result names."},
            "mode": {
                "enum": ["head", "tail", "lines", "chars", "grep", "size"],
                "description": "head or tail: the first or last lines. lines or chars: those from `from` to `to`; \
                                `chars` is for texts with very long lines. grep: the lines that match `pattern`. \
                                size: how long it is. Default: grep with a `pattern`, lines with `from` or `to`, \
                                else head."
            },
            "count": number("head, tail: how many lines. Default: 200."),
            "from": number("lines, chars: the first one. Default: 1."),
            "to": number("lines, chars: the last one. Default: as many as have room."),
            "pattern": {
                "type": "string", "minLength": 1, "maxLength": MAX_PATTERN,
                "description": "grep: words, taken as they are unless `regex` is true."
            },
            "regex": {"type": "boolean", "description": "grep: `pattern` is a regular expression."},
            "ignore_case": {"type": "boolean", "description": "grep: capital letters do not count."},
            "around": {
                "type": "integer", "minimum": 0, "maximum": MAX_AROUND,
                "description": "grep: lines shown before and after each match. Default: 0."
            }
        },
        "required": ["id"],
        "additionalProperties": false
    })
}

#[derive(Debug)]
struct ReadOutput {
    spool: Arc<dyn Spool>,
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
    async fn read(&self, args: &Value, ctx: &CallContext) -> Result<ToolOutput, Failure> {
        let id = args.get("id").and_then(Value::as_str).unwrap_or_default();
        let question = question(args)?;
        let id = SpoolId::parse(id).ok_or_else(|| absent(id))?;
        let session = ctx.turn.session.key();
        // The semaphore is never closed.
        let permit = self.reads.acquire().await;
        let text = match session {
            Some(session) => self.spool.get(session, &id).await,
            None => None,
        };
        let (text, most) = (text.ok_or_else(|| absent(id.as_str()))?, ctx.budget_chars);
        // Searching sixteen megabytes takes longer than others should wait for this thread.
        let answered = tokio::task::spawn_blocking(move || answer(&text, &question, most)).await;
        drop(permit);
        answered.map(ToolOutput::text).map_err(|_| Failure::Host("the text could not be searched".to_owned()))
    }
}

/// The answer in at most `most` characters, marked as the text is.
fn answer(text: &SpooledText, question: &Question, most: usize) -> String {
    if !text.untrusted {
        return question::answer(&text.text, question, most);
    }
    let mark = Mark::new(&text.source, &text.tool);
    let answer = question::answer(&text.text, question, most.saturating_sub(mark.chars()));
    let rest = "; ask for less at once";
    mark.fit(&answer, most, Truncation::Head, answer.chars().count(), rest)
}

fn absent(id: &str) -> ToolError {
    let id: String = id.chars().take(50).collect();
    let text = format!(
        "no text `{id}` is kept for this session: ids are in the results that were cut, and a text goes after a while \
         or when there are too many. Call the tool again if you need it."
    );
    ToolError::new(ErrorCode::NotAvailable, text).about("/id")
}

/// What the arguments ask; they match the schema.
fn question(args: &Value) -> Result<Question, ToolError> {
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
        "tail" => Question::Tail(number("count", DEFAULT_LINES)),
        "lines" => Question::Lines(number("from", 1), number("to", u64::MAX)),
        "chars" => Question::Chars(number("from", 1), number("to", u64::MAX)),
        "size" => Question::Size,
        "grep" => {
            let words = args.get("pattern").and_then(Value::as_str).unwrap_or_default();
            let pattern = Pattern::new(words, flag("regex"), flag("ignore_case"));
            let invalid = |problem| ToolError::new(ErrorCode::InputInvalid, problem).about("/pattern");
            Question::Grep { pattern: pattern.map_err(invalid)?, around: number("around", 0) }
        }
        _ => Question::Head(number("count", DEFAULT_LINES)),
    })
}
