//! Interceptors: the embedder's code that runs before and after a tool.
//!
//! Interceptors run after the gates: they see admitted calls only, and no dry runs. Arguments that an interceptor
//! changes pass the gates for arguments and permissions again. A panic before the tool runs ends the call. A panic
//! after it is logged, and the result does not change.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use toolbay_policy::wildcard::text_matches;

use crate::call::invoke::{BoxFuture, Failure};
use crate::call::{AdmittedCall, CallContext};
use crate::tool::ToolDef;
use crate::tool::content::{ToolOutput, ToolResult};

/// The decision of an interceptor about a call before it runs.
#[derive(Debug)]
pub enum InterceptorAction {
    /// The call continues.
    Run,
    /// The call continues with these arguments.
    Args(Value),
    /// The tool does not run; this is the result.
    Answer(ToolResult),
}

/// The embedder's code around calls. Both methods may wait; a cancellation of the call drops their futures.
///
/// ```
/// use std::sync::Arc;
/// use toolbay_core::call::{AdmittedCall, CallContext};
/// use toolbay_core::pipeline::intercept::{Interceptor, InterceptorAction, InterceptorScope, Interceptors};
/// use toolbay_core::call::invoke::BoxFuture;
///
/// /// Limits searches to ten results.
/// #[derive(Debug)]
/// struct AtMostTen;
///
/// impl Interceptor for AtMostTen {
///     fn before<'a>(
///         &'a self,
///         call: &'a AdmittedCall,
///         _: &'a Arc<CallContext>,
///     ) -> BoxFuture<'a, InterceptorAction> {
///         let mut args = serde_json::Value::clone(call.parsed());
///         args["limit"] = args["limit"].as_u64().unwrap_or(10).min(10).into();
///         Box::pin(std::future::ready(InterceptorAction::Args(args)))
///     }
/// }
///
/// let mut interceptors = Interceptors::default();
/// interceptors.push(InterceptorScope::Tool("*__search".to_owned()), Arc::new(AtMostTen));
/// ```
pub trait Interceptor: Send + Sync + fmt::Debug {
    /// Decides about a call that is about to run.
    fn before<'a>(
        &'a self,
        _: &'a AdmittedCall,
        _: &'a Arc<CallContext>,
    ) -> BoxFuture<'a, InterceptorAction> {
        Box::pin(std::future::ready(InterceptorAction::Run))
    }

    /// Inspects a redacted result before it is reduced and cut. `Some` replaces the result.
    fn after<'a>(
        &'a self,
        _: &'a AdmittedCall,
        _: &'a Arc<CallContext>,
        _: &'a Result<ToolOutput, Failure>,
    ) -> BoxFuture<'a, Option<ToolResult>> {
        Box::pin(std::future::ready(None))
    }
}

/// The calls that an interceptor sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterceptorScope {
    /// All calls.
    All,
    /// Calls of tools whose qualified name matches; `*` matches any run of characters.
    Tool(String),
    /// Calls of tools in a toolset.
    Toolset(String),
    /// Calls of tools from a source, with patterns as in a rule: `builtin`, `plugin:text*`, `mcp`.
    Source(String),
}

impl InterceptorScope {
    fn matches(&self, tool: &ToolDef) -> bool {
        match self {
            Self::All => true,
            Self::Tool(pattern) => text_matches(pattern, tool.name.as_str()),
            Self::Toolset(name) => tool.keywords.toolset.as_ref() == Some(name),
            Self::Source(pattern) => tool.source.as_label().matches(pattern),
        }
    }
}

/// The interceptors of a host. `before` runs in the order of registration and `after` in reverse, so the first
/// interceptor is the outermost.
#[derive(Debug, Clone, Default)]
pub struct Interceptors(Vec<(InterceptorScope, Arc<dyn Interceptor>)>);

impl Interceptors {
    /// Adds an interceptor as the innermost one.
    pub fn push(&mut self, scope: InterceptorScope, interceptor: Arc<dyn Interceptor>) {
        self.0.push((scope, interceptor));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The interceptors for calls of a tool, from the outside in.
    pub(super) fn for_tool<'a>(
        &'a self,
        tool: &'a ToolDef,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<dyn Interceptor>> {
        self.0.iter().filter(|(scope, _)| scope.matches(tool)).map(|(_, interceptor)| interceptor)
    }
}
