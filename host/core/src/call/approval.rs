//! Asking a person whether a call happens: the port, the question, the answer, and what is recorded of it.

use std::fmt;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use toolbay_policy::permission::Action;

/// What was decided of a call, for the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// What the rules said.
    pub action: Action,
    /// The place of the rule among the `[[rule]]`s, from 1; absent when none fitted.
    pub rule: Option<usize>,
    /// Whether the rules were the profile's.
    pub of_profile: bool,
    /// Whether the call happened.
    pub allowed: bool,
    /// Who was asked: `client`, `session`, `host`, or `before` for an answer that was to last; absent when nobody was.
    pub by: Option<&'static str>,
}

/// What a person is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The caller's id of the call.
    pub call_id: String,
    /// The tool's qualified name.
    pub tool: String,
    /// Where the tool comes from, as [`ToolSource::label`](crate::tool::ToolSource::label).
    pub source: String,
    /// The arguments.
    pub args: Value,
    /// Why they are asked.
    pub reason: String,
}

/// What they answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Yes, this once.
    Yes,
    /// Yes, and whenever the same rule asks about this tool, as it is now, in this session: whatever the arguments.
    Always,
    /// No, with what they said.
    No(Option<String>),
    /// The answer comes with the next call: this one ends without running, and counts for nothing.
    Later,
}

/// Somebody who can be asked: a prompt on a terminal, an MCP client, a program of the embedder. A session is asked one
/// thing at a time.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use toolbay_core::call::approval::{Answer, Approver, Question};
///
/// #[derive(Debug)]
/// struct OfficeHours;
///
/// impl Approver for OfficeHours {
///     fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
///         let quick = question.args.to_string().len() < 1000;
///         let answer = if quick { Answer::Yes } else { Answer::No(Some("too much to read".to_owned())) };
///         Box::pin(std::future::ready(answer))
///     }
/// }
/// ```
pub trait Approver: Send + Sync + fmt::Debug {
    /// Asks. Dropping the future takes the question back; a panic is a no.
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer>;
}
