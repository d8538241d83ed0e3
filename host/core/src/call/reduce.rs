//! The port through which the pipeline reduces a result before the model sees it.

use std::fmt;

use crate::call::compute::ComputeQueue;
use crate::call::invoke::BoxFuture;
use crate::tool::content::ToolResult;
use crate::tool::fault::Fault;

/// The context of a reduction (`reducers.wit`, `reduce-context`).
#[derive(Debug, Clone, Copy)]
pub struct ReduceContext<'a> {
    /// The name of the tool, as the reducer declared it.
    pub tool_name: &'a str,
    /// The arguments of the call, a JSON text.
    pub args: &'a str,
    /// The number of the turn.
    pub turn_count: u32,
    /// The characters that the result will be cut to afterwards.
    pub budget_chars: usize,
    /// Where native code reduces long results.
    pub compute: &'a ComputeQueue,
}

/// Reduces the results of one tool. It is a pure function without effects or state.
pub trait Reduce: Send + Sync + fmt::Debug {
    /// Returns a shorter result, or `None` to keep the input.
    fn reduce<'a>(
        &'a self,
        input: &'a ToolResult,
        ctx: ReduceContext<'a>,
    ) -> BoxFuture<'a, Result<Option<ToolResult>, Fault>>;
}
