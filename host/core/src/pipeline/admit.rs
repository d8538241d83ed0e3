//! The gates for the arguments of one call.

use std::sync::Arc;

use serde_json::Value;
use toolbay_policy::quantity;

use super::Batch;
use super::way::Way;
use crate::call::Admitted;
use crate::registry::view::Entry;
use crate::tool::canonical;
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};
use crate::tool::json;
use crate::tool::reason;

/// Longest string argument that a dry run repeats, in characters.
const DRY_RUN_CHARS: usize = 500;

/// The arguments of a call, small enough and JSON, but not compared with anything yet.
pub(super) struct Read {
    text: String,
    parsed: Value,
}

impl Way {
    /// Small enough, and JSON without a key twice? The digests of the call are known from here on.
    pub(super) fn read(&mut self, entry: &Entry, args: String) -> Result<Read, ToolError> {
        if args.len() as u64 > entry.args_bytes {
            let most = quantity::show_bytes(entry.args_bytes);
            let limit = "`args_bytes` in the policy's limits";
            return Err(invalid(entry, &format!("{} bytes, where {limit} allows {most}", args.len())));
        }
        let mut text = if args.trim().is_empty() { "{}".to_owned() } else { args };
        let mut parsed = json::parse(&text).map_err(|e| invalid(entry, &not_json(&text, &e)))?;
        if entry.asks_reason() {
            self.reason = reason::take(&mut parsed, &mut text).or(self.reason.take());
        }
        let (call, args) = canonical::sha256_of_call(entry.def.name.as_str(), &parsed);
        (self.call_sha256, self.args_sha256) = (Some(call), Some(args));
        Ok(Read { text, parsed })
    }

    /// Not the same call once too often?
    pub(super) fn not_again(&self, batch: Batch<'_>, entry: &Entry) -> Result<(), ToolError> {
        let (limits, turn) = (&batch.gates.session, batch.turn_count.as_deref());
        match &self.call_sha256 {
            Some(call) => batch.turn.session.count_same(limits, turn, entry.def.name.as_str(), call),
            None => Ok(()),
        }
    }
}

/// As the schema says? Only here an [`Admitted`] is made.
pub(super) fn matching(entry: &Entry, read: Read) -> Result<Admitted, ToolError> {
    let Read { text, parsed } = read;
    let schema = entry.unasked.as_ref().unwrap_or(&entry.def.input_schema);
    let checked = schema.check(&parsed);
    checked.map_err(|m| invalid(entry, &m.message).about(m.pointer))?;
    Ok(Admitted { tool: Arc::clone(&entry.def), args: text, parsed: Arc::new(parsed) })
}

fn invalid(entry: &Entry, problem: &str) -> ToolError {
    let name = entry.def.name.as_str();
    let text = format!(
        "the arguments of `{name}` were not accepted: {problem}. Do not retry with the same arguments."
    );
    ToolError::new(ErrorCode::InputInvalid, text)
}

/// Models wrap JSON in prose and fences, and are cut off in the middle of it.
fn not_json(text: &str, error: &serde_json::Error) -> String {
    let text = text.trim();
    let whole = text.starts_with('{') && text.ends_with('}');
    let hint = if whole { "" } else { "; send one whole JSON object and nothing around it" };
    format!("not valid JSON: {error}{hint}")
}

pub(super) fn dry_run(call: &Admitted, would_ask: bool) -> ToolOutput {
    let mut args = Value::clone(&call.parsed);
    shorten(&mut args);
    let asked = if would_ask { ", if it is approved" } else { "" };
    ToolOutput::text(format!("[dry-run] {} would be called{asked} with: {args}", call.tool.name))
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => {
            let total = text.chars().count();
            if total > DRY_RUN_CHARS {
                let head: String = text.chars().take(DRY_RUN_CHARS).collect();
                *text = format!("{head}...[truncated, {total} chars]");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(map) => map.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
