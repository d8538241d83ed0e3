//! What an embedder puts around calls: before a tool runs and after it has.
//!
//! An interceptor stands behind the gates: it sees calls that may happen, and none of a dry run. Arguments that it
//! changes pass the gates for arguments and permissions again. One that panics before a call ends it; one that
//! panics after it is logged, and the result stays.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;
use toolbay_policy::wildcard::text_matches;

use super::admit::admit;
use super::batch::EarlyResult;
use super::check::{check_output, redacted};
use super::record::AuditGuard;
use super::resolve::ResolvedTool;
use super::validate::validate_changed;
use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::{BoxFuture, Failure};
use crate::call::{AdmittedCall, CallContext};
use crate::output::redact::Redactor;
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
/// use toolbay_core::call::{AdmittedCall, CallContext};
/// use toolbay_core::pipeline::intercept::{Before, Interceptor, Interceptors, Scope};
/// use toolbay_core::call::invoke::BoxFuture;
///
/// /// Searches find no more than ten things, whatever the model asks for.
/// #[derive(Debug)]
/// struct AtMostTen;
///
/// impl Interceptor for AtMostTen {
///     fn before<'a>(&'a self, call: &'a AdmittedCall, _: &'a Arc<CallContext>) -> BoxFuture<'a, Before> {
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
    fn before<'a>(&'a self, _: &'a AdmittedCall, _: &'a Arc<CallContext>) -> BoxFuture<'a, Before> {
        Box::pin(std::future::ready(Before::Run))
    }

    /// Looks at a result before it is reduced and cut, without the values of secrets; `Some` takes its place.
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
            Self::Toolset(name) => tool.keywords.toolset.as_ref() == Some(name),
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

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that see calls of a tool, from the outside in.
    fn of<'a>(&'a self, tool: &'a ToolDef) -> impl DoubleEndedIterator<Item = &'a Arc<dyn Interceptor>> {
        self.0.iter().filter(|(scope, _)| scope.takes(tool)).map(|(_, interceptor)| interceptor)
    }

    /// Asks the interceptors, from the outside in, until one answers. Arguments that one changes are validated and
    /// admitted again: the approval was for another call.
    pub(super) async fn before(
        &self,
        guard: &mut AuditGuard<'_>,
        tool: ResolvedTool<'_>,
        mut call: AdmittedCall,
    ) -> Result<(AdmittedCall, Option<ToolResult>), EarlyResult> {
        for interceptor in self.of(&tool.entry().def) {
            // In an async block, since the method itself may panic before it makes a future.
            let before = contained(tool.ctx, async { interceptor.before(&call, tool.ctx).await }).await;
            match before? {
                Before::Run => {}
                Before::Answer(answer) => return Ok((call, Some(answer))),
                Before::Args(args) => {
                    let changed = validate_changed(guard, tool, args.to_string())?;
                    call = admit(guard, tool, changed).await?;
                }
            }
        }
        Ok((call, None))
    }

    /// Shows the result to the interceptors, from the inside out.
    pub(super) async fn after(
        &self,
        redactor: &Redactor,
        tool: ResolvedTool<'_>,
        call: &AdmittedCall,
        mut result: Result<ToolOutput, Failure>,
    ) -> Result<ToolOutput, Failure> {
        let def = &tool.entry().def;
        for interceptor in self.of(def).rev() {
            let after = contained(tool.ctx, async { interceptor.after(call, tool.ctx, &result).await }).await;
            let replaced = match after {
                Ok(None) => continue,
                Ok(Some(Ok(output))) => match check_output(def, &output) {
                    Ok(()) => Ok(output),
                    Err(fault) => {
                        report_failed(def, &fault.message);
                        continue;
                    }
                },
                Ok(Some(Err(error))) => Err(error.into()),
                Err(failure) => {
                    report_failed(def, &failure.to_string());
                    continue;
                }
            };
            result = redacted(redactor, replaced);
        }
        result
    }
}

fn report_failed(tool: &ToolDef, problem: &str) {
    tracing::error!(tool = %tool.name, problem, "an interceptor failed after a call; the result stays");
}

/// Runs an interceptor's method to its end, its panic, or the end of the call. Interceptors are foreign code: their
/// mistakes cost no other call anything.
async fn contained<T>(ctx: &CallContext, method: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled").into()),
        done = AssertUnwindSafe(method).catch_unwind() => done.map_err(|_| {
            Failure::Host("an interceptor panicked; see the log".to_owned())
        }),
    }
}
