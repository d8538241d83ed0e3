//! The embedder's interceptors around a call. They are foreign code: what they do wrong costs no other call anything.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use super::Batch;
use super::admit::matching;
use super::deliver::{check_output, redacted};
use super::way::Way;
use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::Failure;
use crate::call::{Admitted, CallContext};
use crate::pipeline::intercept::Before;
use crate::registry::view::{Entry, Held};
use crate::tool::content::{ToolOutput, ToolResult};

/// Runs an interceptor's method to its end, its panic, or the end of the call.
async fn contained<T>(ctx: &CallContext, method: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled").into()),
        done = AssertUnwindSafe(method).catch_unwind() => done.map_err(|_| {
            Failure::Host("an interceptor panicked; see the log".to_owned())
        }),
    }
}

impl Way {
    /// Asks the interceptors, from the outside in, until one answers. What they make of the arguments passes the gates
    /// again: another call than the one that was approved is not approved.
    pub(super) async fn before(
        &mut self,
        batch: Batch<'_>,
        held: Held<'_>,
        mut call: Admitted,
        ctx: &Arc<CallContext>,
    ) -> Result<(Admitted, Option<ToolResult>), Failure> {
        let entry = held.entry();
        for interceptor in batch.pipeline.interceptors.of(&entry.def) {
            // In a block of its own: the method itself may panic before it makes a future.
            let before = contained(ctx, async { interceptor.before(&call, ctx).await }).await;
            match before? {
                Before::Run => {}
                Before::Answer(answer) => return Ok((call, Some(answer))),
                Before::Args(args) => {
                    let args = args.to_string();
                    let read = self.read(entry, args)?;
                    call = matching(entry, read)?;
                    self.permit(batch, held, &call, ctx).await?;
                }
            }
        }
        Ok((call, None))
    }

    /// Shows the result to the interceptors, from the inside out.
    pub(super) async fn after(
        &mut self,
        batch: Batch<'_>,
        entry: &Entry,
        call: &Admitted,
        ctx: &Arc<CallContext>,
        mut result: Result<ToolOutput, Failure>,
    ) -> Result<ToolOutput, Failure> {
        for interceptor in batch.pipeline.interceptors.of(&entry.def).rev() {
            let after = contained(ctx, async { interceptor.after(call, ctx, &result).await }).await;
            let problem = match after {
                Ok(None) => continue,
                Ok(Some(Err(error))) => {
                    result = redacted(&self.redactor, Err(error.into()));
                    continue;
                }
                Ok(Some(Ok(output))) => match check_output(&entry.def, &output) {
                    Ok(()) => {
                        result = redacted(&self.redactor, Ok(output));
                        continue;
                    }
                    Err(fault) => fault.message,
                },
                Err(failure) => failure.to_string(),
            };
            tracing::error!(tool = %entry.def.name, problem, "an interceptor failed after a call; the result stays");
        }
        result
    }
}
