//! Test doubles for the ports of a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use toolbay_policy::limits::Usage;

use crate::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use crate::call::reduce::{Reduce, ReduceContext};
use crate::call::{AdmittedCall, CallContext};
use crate::tool::content::{ErrorCode, ToolError, ToolOutput, ToolResult};
use crate::tool::fault::{Fault, FaultKind};

/// A tool whose argument `do` selects its behaviour.
#[derive(Debug, Default)]
pub(crate) struct ScriptedTool {
    pub(crate) ran: AtomicUsize,
}

impl Invoke for ScriptedTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        self.ran.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let action = call.parsed().get("do").and_then(|v| v.as_str()).unwrap_or("echo");
            let result = match action {
                "fail" => Err(Failure::Refused(ToolError::new(ErrorCode::ExecutionFailed, "e".repeat(300)))),
                "fault" => Err(Failure::Fault(Fault::new(FaultKind::Trap, "trapped"))),
                "panic" => panic!("the invoker panicked"),
                "sleep" => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Ok(ToolOutput::text("slept"))
                }
                "hang" => {
                    ctx.cancel().cancelled().await;
                    Err(Failure::Fault(Fault::new(FaultKind::Cancelled, "cancelled")))
                }
                "long" => Ok(ToolOutput {
                    structured: serde_json::value::to_raw_value(&vec![1, 2, 3]).ok(),
                    cost_usd: Some(0.5),
                    ..ToolOutput::text("🙂".repeat(1000))
                }),
                _ => Ok(ToolOutput::text(call.args())),
            };
            ToolOutcome { result, usage: Usage::default() }
        })
    }
}

/// A reducer with a fixed result.
#[derive(Debug)]
pub(crate) struct FixedReducer(pub(crate) Result<Option<ToolResult>, Fault>);

impl Reduce for FixedReducer {
    fn reduce<'a>(
        &'a self,
        _: &'a ToolResult,
        _: ReduceContext<'a>,
    ) -> BoxFuture<'a, Result<Option<ToolResult>, Fault>> {
        let answer = self.0.clone();
        Box::pin(async move { answer })
    }
}
