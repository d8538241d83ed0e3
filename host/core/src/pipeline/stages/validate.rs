//! The second stage: validation of the arguments.

use std::sync::Arc;

use serde_json::Value;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::quantity;

use super::resolve::ResolvedTool;
use crate::call::CallContext;
use crate::call::compute::INLINE_STEPS;
use crate::pipeline::context::early_result::EarlyResult;
use crate::pipeline::context::guard::{AuditGuard, CallDigests};
use crate::registry::view::ToolEntry;
use crate::tool::ToolSource;
use crate::tool::canonical::{self, Digest};
use crate::tool::fault::Fault;
use crate::tool::json;
use crate::tool::refusal::{Refusal, RefusalReason};
use crate::tool::schema::{Mismatch, Schema};
use crate::tool::toolcall_reason;

/// A call whose arguments match the schema of its tool.
pub(crate) struct ValidatedCall {
    pub(super) args: String,
    pub(super) parsed: Arc<Value>,
    /// The digest of the arguments.
    pub(super) sha256: Digest,
}

/// Gates 11 to 14: size, JSON, repetition, schema.
pub(crate) async fn validate(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    args: String,
) -> Result<ValidatedCall, EarlyResult> {
    let arguments = read(guard, tool, args).await?;
    if let Some(digests) = &guard.digests {
        let (batch, name) = (guard.batch, tool.entry().def.name.as_str());
        let (limits, turn) = (&batch.call_policy.session, batch.turn_count.as_deref());
        batch.turn.session.count_identical_call(limits, turn, name, &digests.call)?;
    }
    match_schema(tool, arguments).await
}

/// Gates 11, 12 and 14, for arguments that an interceptor changed.
pub(super) async fn validate_changed(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    args: String,
) -> Result<ValidatedCall, EarlyResult> {
    let arguments = read(guard, tool, args).await?;
    match_schema(tool, arguments).await
}

/// Longest reason of an edge that could not write arguments, in characters.
const MAX_REASON: usize = 300;
/// Steps to read a byte of arguments: to parse it, and to write it in canonical form.
const STEPS_PER_BYTE: u64 = 3;

/// Arguments that are small enough and JSON without duplicate keys.
struct ParsedArguments {
    text: String,
    parsed: Value,
    digests: CallDigests,
    /// The caller's reason for the call.
    reason: Option<Arc<str>>,
}

/// Reads arguments, and records their digests and the caller's reason in the guard.
async fn read(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    args: String,
) -> Result<ParsedArguments, EarlyResult> {
    let (entry, bytes) = (tool.entry(), args.len() as u64);
    let steps = bytes.saturating_mul(STEPS_PER_BYTE);
    // A text that is too long is refused by its length.
    let mut arguments = if steps <= INLINE_STEPS || bytes > entry.call.args_bytes {
        ParsedArguments::parse(entry, args)?
    } else {
        let entry = Arc::clone(entry);
        tool.ctx.compute(steps, move || ParsedArguments::parse(&entry, args)).await??
    };
    guard.digests = Some(arguments.digests);
    guard.reason = arguments.reason.take().or(guard.reason.take());
    Ok(arguments)
}

/// Gate 14. Most arguments are validated quickly; explaining a mismatch can take longer.
async fn match_schema(
    tool: ResolvedTool<'_>,
    arguments: ParsedArguments,
) -> Result<ValidatedCall, EarlyResult> {
    let ParsedArguments { text, parsed, digests, .. } = arguments;
    let parsed = Arc::new(parsed);
    let checked = check_schema(tool.ctx, &tool.entry().def.input_schema, &parsed).await?;
    checked.map_err(|mismatch| {
        invalid(RefusalReason::ArgumentsInvalid, tool.entry(), &mismatch.message)
            .with_subject(mismatch.pointer)
    })?;
    Ok(ValidatedCall { args: text, parsed, sha256: digests.args })
}

/// Validates a value against a schema.
pub(super) async fn check_schema(
    ctx: &CallContext,
    schema: &Schema,
    value: &Arc<Value>,
) -> Result<Result<(), Mismatch>, Fault> {
    let matches = match schema.match_within(INLINE_STEPS, value) {
        Some(matches) => matches,
        None => {
            let (owned, shared) = (schema.clone(), Arc::clone(value));
            ctx.compute(u64::MAX, move || owned.matches(&shared)).await?
        }
    };
    match matches {
        Ok(true) => Ok(Ok(())),
        Ok(false) => {
            let (owned, shared) = (schema.clone(), Arc::clone(value));
            let steps = if schema.explains_within(INLINE_STEPS, value) { 0 } else { u64::MAX };
            // Boxed to keep the future of values that match small.
            Box::pin(ctx.compute(steps, move || owned.explain(&shared))).await.map(Err)
        }
        Err(mismatch) => Ok(Err(mismatch)),
    }
}

impl ParsedArguments {
    fn parse(entry: &ToolEntry, args: String) -> Result<Self, Refusal> {
        if args.len() as u64 > entry.call.args_bytes {
            let most = quantity::show_bytes(entry.call.args_bytes);
            let setting = match &*entry.def.source {
                ToolSource::Plugin { .. } | ToolSource::OpenApi { .. } => {
                    " (`args_bytes` in the policy's limits)"
                }
                // No line of the policy changes it.
                ToolSource::Builtin | ToolSource::Mcp { .. } => "",
            };
            let problem = format!("they have {} bytes; the limit is {most}{setting}", args.len());
            return Err(invalid(RefusalReason::ArgumentsTooLarge, entry, &problem));
        }
        let mut text = if args.trim().is_empty() { "{}".to_owned() } else { args };
        let mut parsed = json::parse(&text)
            .map_err(|e| invalid(RefusalReason::ArgumentsNotJson, entry, &not_json(&text, &e)))?;
        let reason = match entry.has_reason_argument() {
            true => toolcall_reason::take(&mut parsed, &mut text),
            false => None,
        };
        let name = entry.def.name.as_str();
        let (call, args) = if json::has_rounded_integer(&parsed) {
            // Different calls would have equal digests.
            canonical::sha256_of_call(name, &Value::String(text.clone()))
        } else {
            canonical::sha256_of_call(name, &parsed)
        };
        Ok(Self { text, parsed, digests: CallDigests { call, args }, reason })
    }
}

fn invalid(reason: RefusalReason, entry: &ToolEntry, problem: &str) -> Refusal {
    let name = entry.def.name.as_str();
    let text = format!(
        "the arguments of `{name}` were not accepted: {problem}. Do not retry with the same arguments."
    );
    Refusal::new(reason, text)
}

/// Models wrap JSON in prose or code fences, or stop in the middle of it, so the message says how to send it.
fn not_json(text: &str, error: &serde_json::Error) -> String {
    if let Some(reason) = text.strip_prefix(json::INVALID_BYTE) {
        return one_line(reason, MAX_REASON);
    }
    let text = text.trim();
    let whole = text.starts_with('{') && text.ends_with('}');
    let hint = if whole { "" } else { "; send one complete JSON object without any text around it" };
    if text.contains(json::INVALID_BYTE) {
        return "not valid JSON: they are not UTF-8, or have a NUL character".to_owned();
    }
    format!("not valid JSON: {error}{hint}")
}
