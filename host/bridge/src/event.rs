//! What a mailbox delivers to its event loop.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use toolbay::{ApprovalRequest, CallContext, ProgressAudience, ProgressEvent};

use crate::error::BridgeError;
use crate::result::ResultDocument;

/// An event.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    /// A request is done.
    Done { id: u64, value: Value },
    /// A request failed.
    Failed { id: u64, error: &'a BridgeError },
    /// A batch of calls is done; its results in the order of the calls. A stream has its results already.
    Results { id: u64, results: Vec<ResultDocument> },
    /// One call of a stream ended.
    Result { id: u64, index: usize, result: Box<ResultDocument> },
    /// A call of the batch `id` reports progress.
    Progress {
        id: u64,
        call_id: &'a str,
        tool: &'a str,
        message: &'a str,
        percent: Option<f32>,
        audience: &'static str,
    },
    /// A native tool is called. The reply has the same `id`.
    Call { id: u64, batch: u64, tool: &'a str, args: &'a str, context: Box<ContextDocument> },
    /// A person is asked. The reply has the same `id`.
    Approval { id: u64, batch: u64, request: Box<ApprovalDocument> },
    /// A call or a request for approval is over; a reply would come too late.
    Withdrawn { id: u64 },
    /// The host warns: `warning` or `error`.
    Log { level: &'static str, message: &'a str },
}

impl<'a> Event<'a> {
    pub(crate) fn progress(id: u64, event: &'a ProgressEvent) -> Self {
        let ProgressEvent { call_id, tool, message, percent, audience } = event;
        let audience = match audience {
            ProgressAudience::Internal => "internal",
            ProgressAudience::User => "user",
            ProgressAudience::Dashboard => "dashboard",
        };
        Self::Progress { id, call_id, tool, message, percent: *percent, audience }
    }
}

/// What a native tool can ask about its call.
#[derive(Serialize)]
pub(crate) struct ContextDocument {
    call_id: String,
    tool: String,
    budget_chars: usize,
    dry_run: bool,
    profile: Option<String>,
    session_id: Option<String>,
    session_key: Option<String>,
    platform: Option<String>,
    agent_id: Option<String>,
    personality_id: Option<String>,
    team_id: Option<String>,
    turn: Option<u32>,
    message_count: Option<u32>,
    attributes: serde_json::Map<String, Value>,
}

impl From<&CallContext> for ContextDocument {
    fn from(context: &CallContext) -> Self {
        let (turn, identity) = (&context.turn, &context.turn.identity);
        Self {
            call_id: context.call_id.to_string(),
            tool: context.tool.to_string(),
            budget_chars: context.budget_chars,
            dry_run: turn.dry_run,
            profile: context.profile.as_deref().map(ToOwned::to_owned),
            session_id: turn.session.id().map(ToOwned::to_owned),
            session_key: identity.session_key.clone(),
            platform: identity.platform.clone(),
            agent_id: identity.agent_id.clone(),
            personality_id: identity.personality_id.clone(),
            team_id: identity.team_id.clone(),
            turn: identity.turn,
            message_count: identity.message_count,
            attributes: identity.attributes.clone(),
        }
    }
}

/// A request for approval.
#[derive(Serialize)]
pub(crate) struct ApprovalDocument {
    call_id: String,
    tool: String,
    source: String,
    caller: BTreeMap<&'static str, String>,
    /// The JSON text that the caller wrote.
    args: String,
    preview: String,
    args_sha256: String,
    reason: String,
}

impl From<&ApprovalRequest> for ApprovalDocument {
    fn from(request: &ApprovalRequest) -> Self {
        let caller = &request.caller;
        let fields = [
            ("client", &caller.client),
            ("agent", &caller.agent),
            ("platform", &caller.platform),
            ("session", &caller.session),
            ("profile", &caller.profile),
        ];
        Self {
            call_id: request.call_id.clone(),
            tool: request.tool.clone(),
            source: request.source.clone(),
            caller: fields.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect(),
            args: request.args_text.to_string(),
            preview: request.preview.beginning.clone(),
            args_sha256: request.preview.sha256.to_string(),
            reason: request.reason.clone(),
        }
    }
}
