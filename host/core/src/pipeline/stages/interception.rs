//! Runs the [interceptors](crate::pipeline::intercept) around a tool.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::admit::admit;
use super::check::{check_output, redact_result};
use super::resolve::ResolvedTool;
use super::validate::validate_changed;
use crate::call::invoke::Failure;
use crate::call::{AdmittedCall, CallContext};
use crate::output::redact::Redactor;
use crate::pipeline::context::early_result::EarlyResult;
use crate::pipeline::context::guard::AuditGuard;
use crate::pipeline::intercept::{InterceptorAction, Interceptors};
use crate::tool::ToolDef;
use crate::tool::content::{ToolError, ToolOutput, ToolResult};
use crate::tool::fault::{Fault, FaultKind};
use crate::tool::refusal::RefusalReason;

/// Runs `before` of the interceptors, from the outside in, until one returns a result. Changed arguments are
/// validated and admitted again, since the approval was for other arguments.
pub(super) async fn before(
    interceptors: &Interceptors,
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    mut call: AdmittedCall,
) -> Result<(AdmittedCall, Option<ToolResult>), EarlyResult> {
    for interceptor in interceptors.for_tool(&tool.entry().def) {
        // In an async block, since the method itself may panic before it returns a future.
        let before = run_contained(tool.ctx, async { interceptor.before(&call, tool.ctx).await }).await;
        match before? {
            InterceptorAction::Run => {}
            InterceptorAction::Answer(answer) => {
                let reason = Some(RefusalReason::Interceptor);
                let answer = answer.map_err(|error| ToolError { refusal: reason, ..error });
                return Ok((call, Some(answer)));
            }
            InterceptorAction::Args(args) => {
                let changed = validate_changed(guard, tool, args.to_string()).await?;
                call = admit(guard, tool, changed).await?;
            }
        }
    }
    Ok((call, None))
}

/// Runs `after` of the interceptors, from the inside out.
pub(super) async fn after(
    interceptors: &Interceptors,
    redactor: &Redactor,
    tool: ResolvedTool<'_>,
    call: &AdmittedCall,
    mut result: Result<ToolOutput, Failure>,
) -> Result<ToolOutput, Failure> {
    let def = &tool.entry().def;
    for interceptor in interceptors.for_tool(def).rev() {
        let after = run_contained(tool.ctx, async { interceptor.after(call, tool.ctx, &result).await }).await;
        let replaced = match after {
            Ok(None) => continue,
            Ok(Some(Ok(mut output))) => match check_output(tool.ctx, def, &mut output).await {
                Ok(None) => Ok(output),
                Ok(Some(mismatch)) => {
                    log_failure(def, &mismatch.fault.message);
                    continue;
                }
                Err(fault) => {
                    log_failure(def, &fault.message);
                    continue;
                }
            },
            Ok(Some(Err(error))) => Err(error.into()),
            Err(early) => {
                let problem = early.into_result(&tool.ctx.tool).err().map(|failure| failure.to_string());
                log_failure(def, &problem.unwrap_or_default());
                continue;
            }
        };
        result = redact_result(tool.ctx, redactor, replaced).await;
    }
    result
}

fn log_failure(tool: &ToolDef, problem: &str) {
    tracing::error!(tool = %tool.name, problem, "an interceptor failed after a call; the result is unchanged");
}

/// Runs a method of an interceptor until it returns, panics or the call is cancelled. A bug in an interceptor must not
/// affect other calls.
async fn run_contained<T>(ctx: &CallContext, method: impl Future<Output = T>) -> Result<T, EarlyResult> {
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled").into()),
        done = AssertUnwindSafe(method).catch_unwind() => {
            done.map_err(|_| EarlyResult::HostFailed("an interceptor panicked; see the log".to_owned()))
        }
    }
}
