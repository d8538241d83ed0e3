//! The second stage: validation of the arguments.

use std::sync::Arc;

use serde_json::Value;
use toolbay_policy::quantity;

use super::record::AuditGuard;
use super::resolve::ResolvedTool;
use crate::registry::view::ToolEntry;
use crate::tool::canonical::{self, Digest};
use crate::tool::content::{ErrorCode, ToolError};
use crate::tool::json;
use crate::tool::toolcall_reason;

/// A call whose arguments match the schema of its tool.
pub(super) struct ValidatedCall {
    pub(super) args: String,
    pub(super) parsed: Arc<Value>,
}

/// The digests of a call in canonical form ([`crate::tool::canonical`]).
#[derive(Clone, Copy)]
pub(super) struct CallDigests {
    pub(super) call: Digest,
    pub(super) args: Digest,
}

/// Gates 11 to 14: size, JSON, repetition, schema.
pub(super) fn validate(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    args: String,
) -> Result<ValidatedCall, ToolError> {
    let arguments = ParsedArguments::parse(guard, tool.entry(), args)?;
    if let Some(digests) = &guard.digests {
        let (batch, name) = (guard.batch, tool.entry().def.name.as_str());
        let (limits, turn) = (&batch.call_policy.session, batch.turn_count.as_deref());
        batch.turn.session.count_identical_call(limits, turn, name, &digests.call)?;
    }
    arguments.match_schema(tool.entry())
}

/// Gates 11, 12 and 14, for arguments that an interceptor changed.
pub(super) fn validate_changed(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    args: String,
) -> Result<ValidatedCall, ToolError> {
    ParsedArguments::parse(guard, tool.entry(), args)?.match_schema(tool.entry())
}

/// Arguments that are small enough and JSON without duplicate keys.
struct ParsedArguments {
    text: String,
    parsed: Value,
}

impl ParsedArguments {
    /// Parses arguments and records their digests and the caller's reason in the guard.
    fn parse(guard: &mut AuditGuard<'_>, entry: &ToolEntry, args: String) -> Result<Self, ToolError> {
        if args.len() as u64 > entry.call.args_bytes {
            let most = quantity::show_bytes(entry.call.args_bytes);
            let limit = "`args_bytes` in the policy's limits";
            return Err(invalid(
                entry,
                &format!("they have {} bytes; the limit is {most} ({limit})", args.len()),
            ));
        }
        let mut text = if args.trim().is_empty() { "{}".to_owned() } else { args };
        let mut parsed = json::parse(&text).map_err(|e| invalid(entry, &not_json(&text, &e)))?;
        if entry.has_reason_argument() {
            guard.reason = toolcall_reason::take(&mut parsed, &mut text).or(guard.reason.take());
        }
        let (call, args) = canonical::sha256_of_call(entry.def.name.as_str(), &parsed);
        guard.digests = Some(CallDigests { call, args });
        Ok(Self { text, parsed })
    }

    fn match_schema(self, entry: &ToolEntry) -> Result<ValidatedCall, ToolError> {
        let schema = entry.original_schema.as_ref().unwrap_or(&entry.def.input_schema);
        schema.check(&self.parsed).map_err(|m| invalid(entry, &m.message).with_subject(m.pointer))?;
        Ok(ValidatedCall { args: self.text, parsed: Arc::new(self.parsed) })
    }
}

fn invalid(entry: &ToolEntry, problem: &str) -> ToolError {
    let name = entry.def.name.as_str();
    let text = format!(
        "the arguments of `{name}` were not accepted: {problem}. Do not retry with the same arguments."
    );
    ToolError::new(ErrorCode::InputInvalid, text)
}

/// Models wrap JSON in prose or code fences, or stop in the middle of it, so the message says how to send it.
fn not_json(text: &str, error: &serde_json::Error) -> String {
    let text = text.trim();
    let whole = text.starts_with('{') && text.ends_with('}');
    let hint = if whole { "" } else { "; send one complete JSON object without any text around it" };
    format!("not valid JSON: {error}{hint}")
}
