//! What the tools of the embedder's own code may ask of the program that called them, while they run: a person's input,
//! a model's words, the folders that are open there. Plugins have no way to ask.
//!
//! A protocol may have no way back to its client while a call is open. There an answer comes with the next call of the
//! same tool with the same arguments: [`Dialog::ask`] says [`Unanswered::Later`], the call ends, and the tool is
//! called again from its beginning, where the same question now has its answer. So ask first and act afterwards, and
//! give each question of a call a key of its own that is the same each time.
//!
//! ```
//! use serde_json::json;
//! use toolbay_core::tool::content::{ErrorCode, ToolError, ToolOutput};
//! use toolbay_core::call::dialog::{Ask, AskKind};
//! use toolbay_core::registry::native;
//!
//! let greet = native::tool("greet").description("Greets whoever sits there.").run(|_args, ctx| async move {
//!     let Some(client) = &ctx.turn.dialog else {
//!         return Err(ToolError::new(ErrorCode::NotAvailable, "there is nobody to ask"));
//!     };
//!     let params = json!({
//!         "message": "What is your name?",
//!         "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
//!     });
//!     let answers = client.ask(vec![Ask::new("name", AskKind::Elicit, params)]).await?;
//!     let name = answers.first().and_then(|answer| answer["content"]["name"].as_str());
//!     Ok(ToolOutput::text(format!("Hello, {}!", name.unwrap_or("stranger"))))
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::tool::content::{ErrorCode, ToolError};

/// What an error of a call is about that ended because an answer is to come ([`ToolError::subject`]).
pub const INPUT_REQUIRED: &str = "input_required";

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskKind {
    /// A person fills in a form (MCP `elicitation/create`).
    Elicit,
    /// A model says something (MCP `sampling/createMessage`).
    Sample,
    /// Which folders are open (MCP `roots/list`).
    Roots,
}

impl AskKind {
    /// Its name for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Elicit => "elicitation",
            Self::Sample => "sampling",
            Self::Roots => "roots",
        }
    }
}

/// One question.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Its name among the questions of the call; the same in each call.
    pub key: String,
    /// What is asked.
    pub kind: AskKind,
    /// How, in the words of MCP.
    pub params: Value,
}

impl Ask {
    /// A question.
    #[must_use]
    pub fn new(key: impl Into<String>, kind: AskKind, params: Value) -> Self {
        Self { key: key.into(), kind, params }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// It comes with the next call: end this one with this error.
    Later,
    /// The client cannot be asked that.
    NotOffered(AskKind),
    /// The client failed, or said something else.
    Failed(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later => f.write_str("the client is to answer first"),
            Self::NotOffered(kind) => write!(f, "the client does not offer `{}`", kind.as_str()),
            Self::Failed(problem) => write!(f, "the client did not answer: {problem}"),
        }
    }
}

impl From<Unanswered> for ToolError {
    fn from(why: Unanswered) -> Self {
        let error = Self::new(ErrorCode::NotAvailable, why.to_string());
        match why {
            Unanswered::Later => error.about(INPUT_REQUIRED),
            Unanswered::NotOffered(kind) => error.about(kind.as_str()),
            Unanswered::Failed(_) => error.about("client"),
        }
    }
}

/// How urgent a line of a tool's log is, for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For who looks for a mistake.
    Debug,
    /// What happens.
    Info,
    /// What may be a problem.
    Warning,
    /// What is one.
    Error,
}

/// The program that called. There is one for each call that can ask.
pub trait Dialog: Send + Sync + fmt::Debug {
    /// Whether it can be asked that.
    fn offers(&self, kind: AskKind) -> bool;

    /// Asks all at once; the answers come in the order of the questions. Dropping the future takes the questions back.
    fn ask(&self, asks: Vec<Ask>) -> BoxFuture<'_, Result<Vec<Value>, Unanswered>>;

    /// Tells it a line of the log, if it wants to hear such lines.
    fn log(&self, level: LogLevel, logger: Option<&str>, data: Value) -> BoxFuture<'_, ()>;
}
