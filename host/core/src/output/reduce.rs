//! The port through which a result is shrunk before the model sees it.

use std::fmt;

use crate::call::fault::Fault;
use crate::call::invoke::BoxFuture;
use crate::tool::content::ToolResult;

/// What a reducer may know (`reducers.wit`, `reduce-context`).
#[derive(Debug, Clone, Copy)]
pub struct ReduceContext<'a> {
    /// The tool whose result it is; the name the reducer itself declared.
    pub tool_name: &'a str,
    /// The arguments of the call, a JSON text.
    pub args: &'a str,
    /// Current turn.
    pub turn_count: u32,
    /// Characters the result will be cut to afterwards.
    pub budget_chars: usize,
}

/// Shrinks results of one tool. A pure function: no effects, no memory of earlier calls.
pub trait Reduce: Send + Sync + fmt::Debug {
    /// Returns a shorter result, or `None` to keep it as it is.
    fn reduce<'a>(
        &'a self,
        input: &'a ToolResult,
        ctx: ReduceContext<'a>,
    ) -> BoxFuture<'a, Result<Option<ToolResult>, Fault>>;
}
