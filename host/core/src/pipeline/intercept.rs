//! What an embedder puts around calls: before a tool runs and after it has.
//!
//! An interceptor stands behind the gates: it sees calls that may happen, and none of a dry run. Arguments that it
//! changes pass the gates for arguments and permissions again. One that panics before a call ends it; one that
//! panics after it is logged, and the result stays.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use toolbay_policy::wildcard::text_matches;

use crate::call::invoke::{BoxFuture, Failure};
use crate::call::{Admitted, CallContext};
use crate::tool::ToolDef;
use crate::tool::content::{ToolOutput, ToolResult};

/// What becomes of a call before it runs.
#[derive(Debug)]
pub enum Before {
    /// It goes on.
    Run,
    /// It goes on with these arguments.
    Args(Value),
    /// The tool is not run; this is the answer.
    Answer(ToolResult),
}

/// Code of the embedder around calls. Both methods may wait; the cancellation of the call ends the waiting.
///
/// ```
/// use std::sync::Arc;
/// use toolbay_core::call::{Admitted, CallContext};
/// use toolbay_core::pipeline::intercept::{Before, Interceptor, Interceptors, Scope};
/// use toolbay_core::call::invoke::BoxFuture;
///
/// /// Searches find no more than ten things, whatever the model asks for.
/// #[derive(Debug)]
/// struct AtMostTen;
///
/// impl Interceptor for AtMostTen {
///     fn before<'a>(&'a self, call: &'a Admitted, _: &'a Arc<CallContext>) -> BoxFuture<'a, Before> {
///         let mut args = serde_json::Value::clone(call.parsed());
///         args["limit"] = args["limit"].as_u64().unwrap_or(10).min(10).into();
///         Box::pin(std::future::ready(Before::Args(args)))
///     }
/// }
///
/// let mut interceptors = Interceptors::default();
/// interceptors.push(Scope::Tool("*__search".to_owned()), Arc::new(AtMostTen));
/// ```
pub trait Interceptor: Send + Sync + fmt::Debug {
    /// Decides what becomes of a call that is about to run.
    fn before<'a>(&'a self, _: &'a Admitted, _: &'a Arc<CallContext>) -> BoxFuture<'a, Before> {
        Box::pin(std::future::ready(Before::Run))
    }

    /// Looks at a result before it is reduced and cut, without the values of secrets; `Some` takes its place.
    fn after<'a>(
        &'a self,
        _: &'a Admitted,
        _: &'a Arc<CallContext>,
        _: &'a Result<ToolOutput, Failure>,
    ) -> BoxFuture<'a, Option<ToolResult>> {
        Box::pin(std::future::ready(None))
    }
}

/// The calls that an interceptor sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Of tools whose qualified name fits; `*` stands for any run of characters.
    Tool(String),
    /// Of tools of a toolset.
    Toolset(String),
    /// Of tools from a source, as in a rule: `builtin`, `plugin:text*`, `mcp`.
    Source(String),
}

impl Scope {
    fn takes(&self, tool: &ToolDef) -> bool {
        match self {
            Self::All => true,
            Self::Tool(pattern) => text_matches(pattern, tool.name.as_str()),
            Self::Toolset(name) => tool.toolset.as_ref() == Some(name),
            Self::Source(pattern) => tool.source.as_label().matches(pattern),
        }
    }
}

/// The interceptors of a host: `before` is called in the order in which they were put in, `after` in the reverse one,
/// so that the first is the outermost.
#[derive(Debug, Clone, Default)]
pub struct Interceptors(Vec<(Scope, Arc<dyn Interceptor>)>);

impl Interceptors {
    /// Puts one in, inside those that are there.
    pub fn push(&mut self, scope: Scope, interceptor: Arc<dyn Interceptor>) {
        self.0.push((scope, interceptor));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that see calls of a tool, from the outside in.
    pub(crate) fn of<'a>(
        &'a self,
        tool: &'a ToolDef,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<dyn Interceptor>> {
        self.0.iter().filter(|(scope, _)| scope.takes(tool)).map(|(_, interceptor)| interceptor)
    }
}
