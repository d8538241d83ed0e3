//! Operations as tools of the registry.

use std::sync::Arc;
use std::time::Instant;

use toolbay_core::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::content::{BlockBody, ContentBlock, ErrorCode, ResourceLink, ToolError, ToolOutput};
use toolbay_policy::limits::Usage;

use crate::exchange::{ExchangeError, HttpExchange};
use crate::importer::ImportedOperation;
use crate::request::RequestPlan;
use crate::response::{self, BinaryBody, DecodedResponse};
use crate::routes::Routes;

/// The registry entry of an operation, which sends its requests through `exchange`. `routes` are those of the document
/// ([`Import::routes`](crate::Import::routes)).
#[must_use]
pub fn tool_entry(
    operation: ImportedOperation,
    exchange: Arc<dyn HttpExchange>,
    routes: Arc<Routes>,
) -> ToolEntry {
    let tool = OperationTool { plan: operation.plan, exchange, routes };
    let mut entry = ToolEntry::new(operation.def, Arc::new(tool));
    entry.availability.unavailable = operation.unavailable.map(Into::into);
    entry
}

#[derive(Debug)]
struct OperationTool {
    plan: RequestPlan,
    exchange: Arc<dyn HttpExchange>,
    routes: Arc<Routes>,
}

impl OperationTool {
    async fn run(&self, call: &AdmittedCall, ctx: &Arc<CallContext>) -> Result<ToolOutput, Failure> {
        let request = self.plan.request(call.args(), call.parsed())?;
        let url = request.url.clone();
        let answer = self.exchange.send(request, ctx).await.map_err(|error| match error {
            ExchangeError::Fault(fault) => Failure::Fault(fault),
            ExchangeError::Denied(text) => ToolError::new(ErrorCode::NotAvailable, text).into(),
            ExchangeError::Failed(text) => ToolError::new(ErrorCode::ExecutionFailed, text).into(),
        })?;
        let (routes, budget, steps) = (Arc::clone(&self.routes), ctx.budget_chars, answer.body.len() as u64);
        let decoded = ctx.compute(steps, move || response::decode(&url, answer, budget, &routes)).await??;
        match decoded {
            DecodedResponse::Output(output) => Ok(output),
            DecodedResponse::Binary(file) => Ok(self.attach(file, ctx).await),
        }
    }

    /// Bytes become an attachment of the turn, if the turn takes attachments.
    async fn attach(&self, file: BinaryBody, ctx: &CallContext) -> ToolOutput {
        let store = ctx.turn.attachments.as_ref().filter(|_| self.exchange.may_attach(&file.media, ctx));
        let Some(store) = store else { return file.into_embedded() };
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
                let mut output = file.into_embedded();
                output.value += &format!(" It could not be attached: {error}.");
                output
            }
        }
    }
}

impl Invoke for OperationTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let started = Instant::now();
            ctx.update_usage(|spent| spent.args_bytes = call.args().len() as u64);
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
