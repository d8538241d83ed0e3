//! Calls with an idempotency key: the tool runs once, and a repeated call gets the result of the first one.

use std::sync::Arc;
use std::time::Duration;

use super::resolve::ResolvedTool;
use crate::call::CallContext;
use crate::call::idempotency::{
    CallEnd, CallKey, CallKeys, KeyState, MAX_KEY_BYTES, MAX_RESULT_BYTES, RecordedResult,
};
use crate::call::invoke::Failure;
use crate::pipeline::context::batch::BatchContext;
use crate::tool::canonical::Digest;
use crate::tool::content::{ToolError, ToolOutput};
use crate::tool::fault::{Fault, FaultKind};
use crate::tool::refusal::{Refusal, RefusalReason};

/// When to ask again for the result of a call that runs.
const RETRY: Duration = Duration::from_secs(1);
/// The policy line that lets an idempotent tool run again.
const RERUN_LINE: &str = "[shared] rerun_idempotent = true";

/// What a call with a key does.
pub(super) enum KeyedCall {
    /// The call runs, under this claim.
    Run(KeyClaim),
    /// The call has run: its result, and the time since then.
    Ended(Result<ToolOutput, ToolError>, Duration),
}

/// A claimed key. If the call is dropped while it runs, its result is recorded as unknown.
pub(super) struct KeyClaim {
    keys: Arc<dyn CallKeys>,
    key: Option<CallKey>,
    claim: u64,
    ctx: Arc<CallContext>,
}

/// Claims the key of a call, or returns the result of the first call with this key.
pub(super) async fn claim(
    batch: &BatchContext,
    tool: ResolvedTool<'_>,
    key: &Arc<str>,
    call: Digest,
) -> Result<KeyedCall, Failure> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(refused(format!(
            "The idempotency key has {} bytes; 1 to {MAX_KEY_BYTES} are allowed",
            key.len()
        )));
    }
    let session = &batch.turn.session;
    let Some(of_session) = session.key() else {
        return Err(refused("An idempotency key needs a session: this call has none".to_owned()));
    };
    let keys = match batch.pipeline.shared_state_of(session) {
        Some((shared, _)) => &shared.calls,
        None => &batch.pipeline.calls,
    };
    let key = CallKey { session: of_session.into(), key: Arc::clone(key) };
    let (ctx, is_idempotent) = (tool.ctx, tool.entry().def.traits.idempotent);
    let reruns_unknown = is_idempotent && batch.call_policy.reruns_idempotent;
    let state = keys.claim(&key, call, reruns_unknown).await;
    match state.map_err(|error| Fault::new(FaultKind::Busy, error.to_string()).retry_after(RETRY))? {
        KeyState::Claimed(claim) => Ok(KeyedCall::Run(KeyClaim {
            keys: Arc::clone(keys),
            key: Some(key),
            claim,
            ctx: Arc::clone(ctx),
        })),
        KeyState::Ended(RecordedResult::Output(output), age) => Ok(KeyedCall::Ended(Ok(output), age)),
        KeyState::Ended(RecordedResult::Error(error), age) => Ok(KeyedCall::Ended(Err(error), age)),
        KeyState::Running => {
            let text = "a call with this idempotency key is running: repeat it later for its result";
            Err(Fault::new(FaultKind::Busy, text).retry_after(RETRY).into())
        }
        KeyState::Unknown => {
            if is_idempotent {
                ctx.add_hint(RERUN_LINE);
            }
            let text = "a call with this idempotency key has begun, and its result is not known: check whether it had \
                        its effects before you call again with another key";
            Err(Fault::new(FaultKind::OutcomeUnknown, text).into())
        }
        KeyState::OtherCall => {
            Err(refused("The idempotency key was used for another tool or other arguments".to_owned()))
        }
    }
}

fn refused(text: String) -> Failure {
    Refusal::new(RefusalReason::IdempotencyKey, text).with_subject("idempotency_key").into()
}

impl KeyClaim {
    /// Records how the call ended.
    pub(super) async fn settle(mut self, result: &Result<ToolOutput, Failure>) {
        let Some(key) = self.key.take() else { return };
        let end = match self.ctx.has_begun() {
            true => recorded(result).map_or(CallEnd::Unknown, CallEnd::Result),
            false => CallEnd::NotBegun,
        };
        self.keys.settle(key, self.claim, end).await;
    }
}

impl Drop for KeyClaim {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let end = if self.ctx.has_begun() { CallEnd::Unknown } else { CallEnd::NotBegun };
            let settled = self.keys.settle(key, self.claim, end);
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                // One request to the store; ends with it.
                runtime.spawn(settled);
            }
        }
    }
}

/// The text of a result that can be saved. It has no cost, since a repeated call costs nothing.
fn recorded(result: &Result<ToolOutput, Failure>) -> Option<Box<str>> {
    let result = match result {
        Ok(output) => RecordedResult::Output(ToolOutput { cost_usd: None, ..output.clone() }),
        Err(Failure::Refused(error)) => RecordedResult::Error(ToolError { cost_usd: None, ..error.clone() }),
        Err(Failure::Fault(_) | Failure::Host(_)) => return None,
    };
    let text = serde_json::to_string(&result).ok()?;
    (text.len() <= MAX_RESULT_BYTES).then(|| text.into())
}
