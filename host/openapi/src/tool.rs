//! Operations in the registry.

use std::sync::Arc;
use std::time::Instant;

use toolbay_core::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::registry::Entry;
use toolbay_core::tool::content::{BlockBody, ContentBlock, ErrorCode, ResourceLink, ToolError, ToolOutput};
use toolbay_policy::limits::Usage;

use crate::exchange::{Exchange, ExchangeError};
use crate::operation::Operation;
use crate::request::Plan;
use crate::response::{self, Answer, File};

/// The tool of an operation for the registry, whose requests go out through `exchange`.
#[must_use]
pub fn tool(operation: Operation, exchange: Arc<dyn Exchange>) -> Entry {
    let mut entry = Entry::new(operation.def, Arc::new(Tool { plan: operation.plan, exchange }));
    entry.availability.unavailable = operation.unavailable.map(Into::into);
    entry
}

#[derive(Debug)]
struct Tool {
    plan: Plan,
    exchange: Arc<dyn Exchange>,
}

impl Tool {
    async fn run(&self, call: &AdmittedCall, ctx: &Arc<CallContext>) -> Result<ToolOutput, Failure> {
        let request = self.plan.request(call.args(), call.parsed())?;
        let url = request.url.clone();
        let answer = self.exchange.exchange(request, ctx).await.map_err(|error| match error {
            ExchangeError::Fault(fault) => Failure::Fault(fault),
            ExchangeError::Denied(text) => ToolError::new(ErrorCode::NotAvailable, text).into(),
            ExchangeError::Failed(text) => ToolError::new(ErrorCode::ExecutionFailed, text).into(),
        })?;
        match response::result(&url, answer, ctx.budget_chars)? {
            Answer::Output(output) => Ok(output),
            Answer::File(file) => Ok(self.attached(file, ctx).await),
        }
    }

    /// Bytes are handed on as an attachment of the turn, where it takes any.
    async fn attached(&self, file: File, ctx: &CallContext) -> ToolOutput {
        let store = ctx.turn.attachments.as_ref().filter(|_| self.exchange.attaches(&file.media, ctx));
        let Some(store) = store else { return file.embedded() };
        match store.create(&file.name, &file.media, file.data.clone()).await {
            Ok(made) => {
                let link = ResourceLink {
                    uri: format!("attachment:{}", made.id),
                    name: made.name,
                    title: None,
                    description: None,
                    mime_type: Some(made.media_type),
                    size: Some(made.size),
                };
                let block = ContentBlock { body: BlockBody::Link(link), annotations: None };
                let text = format!("{} It is attached as `{}`.", file.note, made.id);
                ToolOutput { content: vec![block], ..ToolOutput::text(text) }
            }
            Err(error) => {
                let mut output = file.embedded();
                output.value += &format!(" It could not be attached: {error}.");
                output
            }
        }
    }
}

impl Invoke for Tool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let started = Instant::now();
            ctx.spend(|spent| spent.args_bytes = call.args().len() as u64);
            let result = self.run(call, ctx).await;
            let usage = Usage {
                args_bytes: call.args().len() as u64,
                result_bytes: result.as_ref().map_or(0, |output| output.value.len() as u64),
                wall_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
                ..Usage::default()
            };
            ToolOutcome { result, usage }
        })
    }
}
