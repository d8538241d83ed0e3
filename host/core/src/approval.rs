//! Approval of calls: the port that asks a person, the request, the reply and the recorded decision.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolbay_policy::permission::Action;

use crate::tool::canonical::Digest;
use crate::tool::json;

/// The decision about a call, for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The action that the rules chose.
    pub action: Action,
    /// The position of the matching rule among the `[[rule]]`s, from 1; absent if no rule matched.
    pub rule: Option<usize>,
    /// Whether the rules of the profile decided.
    #[serde(default)]
    pub of_profile: bool,
    /// Whether the call was allowed.
    pub allowed: bool,
    /// The approver: `client`, `session`, `host`, or `before` for an earlier [`ApprovalReply::Always`]; absent if no
    /// approval was needed. A reader of records does not get it.
    #[serde(skip_deserializing)]
    pub by: Option<&'static str>,
}

/// The caller who asks for a call, as far as the host knows. The texts are cut, and come from callers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ApprovalCaller {
    /// The program, as it names itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The agent. Over HTTP it is verified: `token:NAME` or `oauth:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The platform: `cli`, `mcp`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

impl fmt::Display for ApprovalCaller {
    /// Writes the known fields: `client inspector 1.2, token:ci, session s-1, profile few`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, agent, platform, session, profile } = self;
        // The platform adds little if the client or the agent is known.
        let platform = platform.as_ref().filter(|_| client.is_none() && agent.is_none());
        let parts = [
            ("client ", client.as_ref()),
            ("", agent.as_ref()),
            ("", platform),
            ("session ", session.as_ref()),
            ("profile ", profile.as_ref()),
        ];
        let named = parts.into_iter().filter_map(|(what, name)| Some((what, name?)));
        for (at, (what, name)) in named.enumerate() {
            write!(f, "{}{what}{name}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Most characters of arguments that an [`ArgumentsPreview`] has.
pub const MAX_PREVIEW: usize = 4000;

/// The part of the arguments that is shown to the person who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentsPreview {
    /// The beginning of the arguments as JSON: at most [`MAX_PREVIEW`] characters.
    pub beginning: String,
    /// The number of characters of all arguments as JSON.
    pub chars: usize,
    /// SHA-256 of all arguments in [canonical form](crate::tool::canonical), or of their text if it has integers beyond 64
    /// bits.
    pub sha256: Digest,
}

impl ArgumentsPreview {
    /// The preview of arguments with this JSON text and digest. The work grows with them.
    #[must_use]
    pub fn new(text: &str, sha256: Digest) -> Self {
        let text = json::compact(text);
        Self { beginning: text.chars().take(MAX_PREVIEW).collect(), chars: text.chars().count(), sha256 }
    }

    /// At most `most` characters of the arguments, and the number of all characters if there are more.
    #[must_use]
    pub fn cut(&self, most: usize) -> String {
        let mut shown: String = self.beginning.chars().take(most).collect();
        if self.chars > most.min(MAX_PREVIEW) {
            shown.push_str(&format!("… ({} characters)", self.chars));
        }
        shown
    }
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
    /// Who asks.
    pub caller: ApprovalCaller,
    /// The arguments. Integers beyond 64 bits are rounded.
    pub args: Arc<Value>,
    /// The arguments as they were written.
    pub args_text: Arc<str>,
    /// The part of the arguments that a person sees.
    pub preview: ArgumentsPreview,
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
    /// A person refuses the call, with an optional comment.
    No(Option<String>),
    /// Nobody could be asked, or nobody answered; the text is the reason. The call is refused.
    Unanswered(String),
    /// The reply comes with the next attempt of the call. This attempt ends without running and does not count.
    Deferred,
}

/// Asks a person to approve calls, through a terminal prompt, an MCP client or the embedder's program. A session has
/// one open request at a time.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use toolbay_core::approval::{ApprovalReply, ApprovalRequest, Approver};
///
/// #[derive(Debug)]
/// struct OfficeHours;
///
/// impl Approver for OfficeHours {
///     fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
///         let reply = match request.preview.chars < 1000 {
///             true => ApprovalReply::Yes,
///             false => ApprovalReply::No(Some("too much to read".to_owned())),
///         };
///         Box::pin(std::future::ready(reply))
///     }
/// }
/// ```
pub trait Approver: Send + Sync + fmt::Debug {
    /// Requests an approval. Dropping the future withdraws the request; a panic refuses the call.
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply>;
}
