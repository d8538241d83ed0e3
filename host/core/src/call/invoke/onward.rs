//! Calls in the middle of a call: the port through which a running tool calls others.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use toolbay_policy::refusal::Refusal;

use super::{BoxFuture, Failure};
use crate::call::ToolCall;
use crate::tool::content::ToolOutput;

/// How deep calls may lie in one another below the one that a model makes.
pub const MAX_DEPTH: usize = 2;
/// Most characters of the text of a result that a call gets of another: far more than a model reads, little for a program.
pub const MAX_CHARS: usize = 1 << 20;

/// Which tools a tool was granted to call.
pub trait MayCall: fmt::Debug + Send + Sync {
    /// Whether it may call this one.
    fn may_call(&self, tool: &str) -> bool;

    /// Why it may not call this one; the hint names the line of the policy that would allow it.
    fn refusal(&self, tool: &str) -> Refusal;
}

/// A tool that may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callable {
    /// Its qualified name.
    pub name: String,
    /// What a model reads of it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: String,
    /// JSON Schema of `structured`, if it promises one.
    pub output_schema: Option<String>,
}

/// What became of a call.
#[derive(Debug)]
pub struct Answered {
    /// The output, or why there is none.
    pub result: Result<ToolOutput, Failure>,
    /// Whether its text had more than [`MAX_CHARS`].
    pub cut: bool,
}

/// Calls that a running call makes, all at once.
#[derive(Debug)]
pub struct Inner {
    /// The calls. Their ids are told behind that of the call that makes them.
    pub calls: Vec<ToolCall>,
    /// How many run side by side.
    pub at_once: usize,
    /// When the call that makes them ends at the latest.
    pub ends: Instant,
}

/// Takes the answer of a call, under its place in the list.
pub type TakeAnswer<'a> = &'a mut (dyn FnMut(usize, Answered) + Send);

/// The way from a running call to further ones. Only [`crate::pipeline`] makes one: what is called through it passes
/// every gate.
pub trait Onward: fmt::Debug + Send + Sync {
    /// How deep the calls lie that are made through it: 1 for those of a call that a model made.
    fn depth(&self) -> usize;

    /// Counts so many calls more of all to which a model's call has led, unless it would be more than `most`; returns how
    /// many there were.
    fn count(&self, calls: u32, most: u32) -> Option<u32>;

    /// The tools that may be called, in the order of their names.
    fn tools(&self) -> Vec<Callable>;

    /// Makes calls. Each gets an answer, in the order in which they end; what is not taken is kept nowhere. Dropping the
    /// future ends them all.
    fn call<'a>(&'a self, inner: Inner, take: TakeAnswer<'a>) -> BoxFuture<'a, ()>;
}

/// The way on of a tool that was granted to call others.
pub type WayOn = Arc<dyn Onward>;
