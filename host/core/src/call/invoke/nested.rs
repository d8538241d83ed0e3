//! Nested calls: the port through which a running tool calls others.

use std::fmt;
use std::time::Instant;

use toolbay_policy::refusal::Refusal;

use super::{BoxFuture, Failure};
use crate::call::ToolCall;
use crate::tool::content::ToolOutput;

/// How deep calls may nest below the one that a model makes.
pub const MAX_DEPTH: usize = 2;
/// Most characters of text that a nested call returns: far more than a model reads, little for a program.
pub const MAX_CHARS: usize = 1 << 20;

/// The tools that a tool was granted to call.
pub trait InvokeGrant: fmt::Debug + Send + Sync {
    /// Whether the tool of this name may be called.
    fn allows(&self, tool: &str) -> bool;

    /// Why the tool of this name may not be called; the hint names the policy line that would allow it.
    fn refusal(&self, tool: &str) -> Refusal;
}

/// A tool that may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallableTool {
    /// Its qualified name.
    pub name: String,
    /// Its description for models.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: String,
    /// JSON Schema of `structured`, if it promises one.
    pub output_schema: Option<String>,
}

/// The result of a nested call.
#[derive(Debug)]
pub struct NestedResult {
    /// The output, or why there is none.
    pub result: Result<ToolOutput, Failure>,
    /// Whether its text had more than [`MAX_CHARS`].
    pub cut: bool,
}

/// Calls that a running call makes at once.
#[derive(Debug)]
pub struct NestedBatch {
    /// The calls. Their ids follow that of the call that makes them, after a `/`.
    pub calls: Vec<ToolCall>,
    /// How many run side by side.
    pub at_once: usize,
    /// When the call that makes them ends at the latest.
    pub ends: Instant,
}

/// Takes the result of a nested call and its place in the batch.
pub type ResultHandler<'a> = &'a mut (dyn FnMut(usize, NestedResult) + Send);

/// Makes nested calls for a running tool. Only [`crate::pipeline`] implements it, so every nested call passes every gate.
pub trait ToolCaller: fmt::Debug + Send + Sync {
    /// The depth of the calls that it makes: 1 for those of a call that a model made.
    fn depth(&self) -> usize;

    /// Counts `calls` more of the nested calls to which a model's call has led, unless they would exceed `most`; returns
    /// how many there were before.
    fn count(&self, calls: u32, most: u32) -> Option<u32>;

    /// The tools that may be called, in the order of their names.
    fn tools(&self) -> Vec<CallableTool>;

    /// Makes calls. `handle` gets each result in the order in which the calls end. Dropping the future ends them all.
    fn call<'a>(&'a self, nested: NestedBatch, handle: ResultHandler<'a>) -> BoxFuture<'a, ()>;
}
