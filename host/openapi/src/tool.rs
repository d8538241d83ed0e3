//! Operations in the registry.

use std::sync::Arc;

use toolbay_core::call::{Admitted, CallContext};
use toolbay_core::content::{ErrorCode, ToolError, ToolOutput};
use toolbay_core::invoke::{BoxFuture, Failure, Invocation, Invoke};
use toolbay_core::limits::Usage;
use toolbay_core::registry::{Bundle, Entry};

use crate::exchange::{Exchange, ExchangeError};
use crate::operation::Import;
use crate::request::Plan;
use crate::response;

/// The tools of a document for the registry, all of whose requests go out through `exchange`.
#[must_use]
pub fn bundle(import: Import, exchange: &Arc<dyn Exchange>) -> Bundle {
    let tools = import.operations.into_iter().map(|operation| {
        let tool = Tool { plan: operation.plan, exchange: Arc::clone(exchange) };
        let mut entry = Entry::new(operation.def, Arc::new(tool));
        entry.unavailable = operation.unavailable;
        entry
    });
    Bundle { tools: tools.collect(), ..Bundle::default() }
}

#[derive(Debug)]
struct Tool {
    plan: Plan,
    exchange: Arc<dyn Exchange>,
}

impl Tool {
    async fn run(&self, call: &Admitted, ctx: &Arc<CallContext>) -> Result<ToolOutput, Failure> {
        let request = self.plan.request(call.args(), call.parsed())?;
        let url = request.url.clone();
        let answer = self.exchange.exchange(request, ctx).await.map_err(|error| {
            let code = match &error {
                ExchangeError::Denied(_) | ExchangeError::Unavailable(_) => ErrorCode::NotAvailable,
                ExchangeError::Failed(_) => ErrorCode::ExecutionFailed,
            };
            ToolError::new(code, error.to_string())
        })?;
        Ok(response::result(&url, answer)?)
    }
}

impl Invoke for Tool {
    fn invoke<'a>(&'a self, call: &'a Admitted, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, Invocation> {
        Box::pin(async move {
            let result = self.run(call, ctx).await;
            let result_bytes = result.as_ref().map_or(0, |output| output.value.len() as u64);
            let usage = Usage { args_bytes: call.args().len() as u64, result_bytes, ..Usage::default() };
            Invocation { result, usage }
        })
    }
}
