//! Approval of calls: the port that asks a person, the request, the reply and the recorded decision.

use std::fmt;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use toolbay_policy::permission::Action;

/// The decision about a call, for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The action that the rules chose.
    pub action: Action,
    /// The position of the matching rule among the `[[rule]]`s, from 1; absent if no rule matched.
    pub rule: Option<usize>,
    /// Whether the rules of the profile decided.
    pub of_profile: bool,
    /// Whether the call was allowed.
    pub allowed: bool,
    /// The approver: `client`, `session`, `host`, or `before` for an earlier [`ApprovalReply::Always`]; absent if no
    /// approval was needed.
    pub by: Option<&'static str>,
}

/// A request to approve a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    /// The caller's id of the call.
    pub call_id: String,
    /// The tool's qualified name.
    pub tool: String,
    /// The [label](crate::tool::ToolSource::label) of the tool's source.
    pub source: String,
    /// The arguments.
    pub args: Value,
    /// The reason why the call needs approval.
    pub reason: String,
}

/// The reply to an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalReply {
    /// Approves this call.
    Yes,
    /// Approves this call and, for the rest of the session, all calls of this version of the tool for which the same
    /// rule asks, whatever their arguments.
    Always,
    /// Refuses the call, with an optional comment.
    No(Option<String>),
    /// The reply comes with the next attempt of the call. This attempt ends without running and does not count.
    Deferred,
}

/// Asks a person to approve calls, through a terminal prompt, an MCP client or the embedder's program. A session has
/// one open request at a time.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use toolbay_core::call::approval::{ApprovalReply, ApprovalRequest, Approver};
///
/// #[derive(Debug)]
/// struct OfficeHours;
///
/// impl Approver for OfficeHours {
///     fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
///         let reply = match request.args.to_string().len() < 1000 {
///             true => ApprovalReply::Yes,
///             false => ApprovalReply::No(Some("too much to read".to_owned())),
///         };
///         Box::pin(std::future::ready(reply))
///     }
/// }
/// ```
pub trait Approver: Send + Sync + fmt::Debug {
    /// Requests an approval. Dropping the future withdraws the request; a panic counts as [`ApprovalReply::No`].
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply>;
}
