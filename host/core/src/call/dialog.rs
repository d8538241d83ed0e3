//! The port through which a running native tool sends requests to the calling program: input of a person, a completion
//! of a model, the open folders. Plugins have no access to it.
//!
//! Some protocols cannot send a request to the client while a call is open. In that case [`Dialog::ask`] returns
//! [`DialogError::InputRequired`] and the call ends with that error. The client then repeats the call with the reply,
//! and the tool runs again from its beginning. A tool should therefore send its requests before it has any effect, and
//! give each request of a call a unique key that is the same in each attempt.
//!
//! ```
//! use serde_json::json;
//! use toolbay_core::tool::content::{ErrorCode, ToolError, ToolOutput};
//! use toolbay_core::call::dialog::{DialogRequest, DialogRequestKind};
//! use toolbay_core::registry::native;
//!
//! let greet = native::tool("greet").description("Greets the user by name.").run(|_args, ctx| async move {
//!     let Some(client) = &ctx.turn.dialog else {
//!         return Err(ToolError::new(ErrorCode::NotAvailable, "the client takes no requests"));
//!     };
//!     let params = json!({
//!         "message": "What is your name?",
//!         "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
//!     });
//!     let replies = client.ask(vec![DialogRequest::new("name", DialogRequestKind::Elicit, params)]).await?;
//!     let name = replies.first().and_then(|reply| reply["content"]["name"].as_str());
//!     Ok(ToolOutput::text(format!("Hello, {}!", name.unwrap_or("stranger"))))
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::tool::content::{ErrorCode, ToolError};

/// The [subject](ToolError::subject) of the error with which a call waits for the client's reply.
pub const INPUT_REQUIRED: &str = "input_required";

/// The kind of a request to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialogRequestKind {
    /// A person fills in a form (MCP `elicitation/create`).
    Elicit,
    /// A model generates a message (MCP `sampling/createMessage`).
    Sample,
    /// The client lists its open folders (MCP `roots/list`).
    Roots,
}

impl DialogRequestKind {
    /// The name for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Elicit => "elicitation",
            Self::Sample => "sampling",
            Self::Roots => "roots",
        }
    }
}

/// A request to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct DialogRequest {
    /// The key of the request, unique within the call and the same in each attempt.
    pub key: String,
    /// The kind of request.
    pub kind: DialogRequestKind,
    /// The parameters, as MCP defines them for the kind.
    pub params: Value,
}

impl DialogRequest {
    /// A request with its key and its MCP parameters.
    #[must_use]
    pub fn new(key: impl Into<String>, kind: DialogRequestKind, params: Value) -> Self {
        Self { key: key.into(), kind, params }
    }
}

/// The reason why a request has no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialogError {
    /// The reply comes with the next attempt of the call. The tool must end this attempt with this error.
    InputRequired,
    /// The client does not support this kind of request.
    Unsupported(DialogRequestKind),
    /// The client failed or sent an invalid reply.
    Failed(String),
}

impl fmt::Display for DialogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InputRequired => f.write_str("the call needs the client's reply first"),
            Self::Unsupported(kind) => write!(f, "the client does not support `{}`", kind.as_str()),
            Self::Failed(problem) => write!(f, "the client did not answer: {problem}"),
        }
    }
}

impl From<DialogError> for ToolError {
    fn from(why: DialogError) -> Self {
        let error = Self::new(ErrorCode::NotAvailable, why.to_string());
        match why {
            DialogError::InputRequired => error.with_subject(INPUT_REQUIRED),
            DialogError::Unsupported(kind) => error.with_subject(kind.as_str()),
            DialogError::Failed(_) => error.with_subject("client"),
        }
    }
}

/// The level of a log message to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Details for debugging.
    Debug,
    /// Normal events.
    Info,
    /// Possible problems.
    Warning,
    /// Problems.
    Error,
}

/// The connection of a call to the calling program. Each call has its own.
pub trait Dialog: Send + Sync + fmt::Debug {
    /// Whether the client supports this kind of request.
    fn supports(&self, kind: DialogRequestKind) -> bool;

    /// Sends all requests at once and returns the replies in their order. Dropping the future cancels the requests.
    fn ask(&self, asks: Vec<DialogRequest>) -> BoxFuture<'_, Result<Vec<Value>, DialogError>>;

    /// Sends a log message, if the client's log level includes it.
    fn log(&self, level: LogLevel, logger: Option<&str>, data: Value) -> BoxFuture<'_, ()>;
}
