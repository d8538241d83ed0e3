//! Nested calls: the port through which a running tool calls others.

use std::fmt;
use std::time::Instant;

use toolbay_policy::refusal::PolicyRefusal;

use super::{BoxFuture, Failure};
use crate::call::ToolCall;
use crate::tool::content::ToolOutput;

/// Most levels of nested calls below a model's call.
pub const MAX_DEPTH: usize = 2;
/// Most characters of text that a nested call returns: far more than a model reads, but little for a program.
pub const MAX_CHARS: usize = 1 << 20;

/// The tools that a tool was granted to call.
pub trait InvokeGrant: fmt::Debug + Send + Sync {
    /// Whether the grant includes this tool.
    fn allows(&self, tool: &str) -> bool;

    /// The refusal for a tool outside of the grant, with a hint that names the policy line that would allow it.
    fn refusal(&self, tool: &str) -> PolicyRefusal;
}

/// A tool that a running tool may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallableTool {
    /// The qualified name.
    pub name: String,
    /// The description for models.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input_schema: String,
    /// The JSON Schema of `structured`, if the tool declares one.
    pub output_schema: Option<String>,
}

/// The result of a nested call.
#[derive(Debug)]
pub struct NestedResult {
    /// The output, or the failure.
    pub result: Result<ToolOutput, Failure>,
    /// Whether the text was cut to [`MAX_CHARS`].
    pub cut: bool,
}

/// A batch of nested calls.
#[derive(Debug)]
pub struct NestedBatch {
    /// The calls. The pipeline prefixes their ids with the id of the parent call and a `/`.
    pub calls: Vec<ToolCall>,
    /// Most calls that run at the same time.
    pub max_concurrent: usize,
    /// The deadline of the parent call.
    pub deadline: Instant,
}

/// Receives the index of a nested call in its batch, and its result.
pub type ResultHandler<'a> = &'a mut (dyn FnMut(usize, NestedResult) + Send);

/// Makes nested calls for a running tool. Only [`crate::pipeline`] implements it, so every nested call passes every
/// gate.
pub trait ToolCaller: fmt::Debug + Send + Sync {
    /// The depth of the nested calls: 1 below a model's call.
    fn depth(&self) -> usize;

    /// Adds `calls` to the number of nested calls below a model's call and returns the previous number. Returns `None`
    /// and adds nothing if the sum would exceed `most`.
    fn count(&self, calls: u32, most: u32) -> Option<u32>;

    /// The callable tools, sorted by name.
    fn tools(&self) -> Vec<CallableTool>;

    /// Runs a batch. `handle` receives the results in the order in which the calls end. Dropping the future cancels all
    /// calls.
    fn call<'a>(&'a self, nested: NestedBatch, handle: ResultHandler<'a>) -> BoxFuture<'a, ()>;
}
