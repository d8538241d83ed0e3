//! The second stage: the arguments of a call.

use std::sync::Arc;

use serde_json::Value;
use toolbay_policy::quantity;

use super::record::AuditGuard;
use super::resolve::ResolvedTool;
use crate::registry::view::Entry;
use crate::tool::canonical::{self, Digest};
use crate::tool::content::{ErrorCode, ToolError};
use crate::tool::json;
use crate::tool::reason;

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

/// Gates 10 to 13: size, JSON, repetition, schema.
pub(super) fn validate(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    args: String,
) -> Result<ValidatedCall, ToolError> {
    let arguments = Arguments::parse(guard, tool.entry(), args)?;
    if let Some(digests) = &guard.digests {
        let (batch, name) = (guard.batch, tool.entry().def.name.as_str());
        let (limits, turn) = (&batch.gates.session, batch.turn_count.as_deref());
        batch.turn.session.count_same(limits, turn, name, &digests.call)?;
    }
    arguments.match_schema(tool.entry())
}

/// Gates 10, 11 and 13, for arguments that an interceptor changed.
pub(super) fn validate_changed(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    args: String,
) -> Result<ValidatedCall, ToolError> {
    Arguments::parse(guard, tool.entry(), args)?.match_schema(tool.entry())
}

/// Arguments that are small enough and JSON without duplicate keys.
struct Arguments {
    text: String,
    parsed: Value,
}

impl Arguments {
    /// Parses arguments and tells the guard their digests and the caller's reason.
    fn parse(guard: &mut AuditGuard<'_>, entry: &Entry, args: String) -> Result<Self, ToolError> {
        if args.len() as u64 > entry.call.args_bytes {
            let most = quantity::show_bytes(entry.call.args_bytes);
            let limit = "`args_bytes` in the policy's limits";
            return Err(invalid(entry, &format!("{} bytes, where {limit} allows {most}", args.len())));
        }
        let mut text = if args.trim().is_empty() { "{}".to_owned() } else { args };
        let mut parsed = json::parse(&text).map_err(|e| invalid(entry, &not_json(&text, &e)))?;
        if entry.asks_reason() {
            guard.reason = reason::take(&mut parsed, &mut text).or(guard.reason.take());
        }
        let (call, args) = canonical::sha256_of_call(entry.def.name.as_str(), &parsed);
        guard.digests = Some(CallDigests { call, args });
        Ok(Self { text, parsed })
    }

    fn match_schema(self, entry: &Entry) -> Result<ValidatedCall, ToolError> {
        let schema = entry.unasked.as_ref().unwrap_or(&entry.def.input_schema);
        schema.check(&self.parsed).map_err(|m| invalid(entry, &m.message).about(m.pointer))?;
        Ok(ValidatedCall { args: self.text, parsed: Arc::new(self.parsed) })
    }
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
