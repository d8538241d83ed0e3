//! The port through which the pipeline shrinks a result: a sealed instance of the reducer's plugin. It has no clock,
//! no randomness, no files, no context; whatever it does, its answer is a function of its input.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::output::reduce::{Reduce, ReduceContext};
use toolbay_core::tool::content::ToolResult;
use toolbay_policy::limits::{HostLimits, Limits};

use crate::capability::Capabilities;
use crate::engine::Metering;
use crate::engine::bindings::reducers::exports::toolbay::plugin::reducers::ReduceContext as GuestContext;
use crate::engine::breaker::Breaker;
use crate::engine::instance::{Bounds, as_fault};
use crate::engine::state::{GuestState, Seal};
use crate::plugins::answer::{from_guest, to_guest};
use crate::plugins::code;
use crate::plugins::plugin::Plugin;

/// The reducers of one plugin.
#[derive(Debug)]
pub(crate) struct PluginReducer {
    pub(crate) plugin: Arc<Plugin>,
    limits: Arc<Limits>,
    breaker: Breaker,
}

impl PluginReducer {
    /// The reducer of `plugin` for the tool `target`.
    pub(crate) fn new(plugin: Arc<Plugin>, limits: &Limits, target: &str, host: &HostLimits) -> Self {
        let breaker = Breaker::new(format!("the reducer of `{}` for `{target}`", plugin.id), host);
        Self { plugin, limits: Arc::new(code::sealed(limits)), breaker }
    }

    async fn run(&self, input: &ToolResult, ctx: ReduceContext<'_>) -> Result<Option<ToolResult>, Fault> {
        let shared = &self.plugin.shared;
        let failed = |problem: String| Fault::new(FaultKind::Trap, problem);
        // Never fires: who cancels the call drops this future.
        let cancel = CancellationToken::new();
        self.breaker.check()?;
        let code = self.plugin.code(Metering::of(&self.limits)).await.map_err(|e| failed(e.to_string()))?;
        let _place = shared.admission.enter(&self.plugin.id, self.limits.concurrency, &cancel).await?;
        let pass = self.breaker.pass()?;
        let Some(pre) = &code.reducers else { return Err(failed("it has lost its reducers".to_owned())) };
        let capabilities = Capabilities::sealed(self.plugin.id.clone(), Arc::clone(&self.limits));
        let state =
            GuestState::new(Seal::Sealed, &self.limits, capabilities).map_err(|e| failed(e.to_string()))?;
        let bounds =
            Bounds { engine: code.engine(), plugin: &self.plugin.id, limits: &self.limits, cancel: &cancel };
        let input = to_guest(input);
        let context = GuestContext {
            tool_name: ctx.tool_name.to_owned(),
            args: ctx.args.to_owned(),
            turn_count: ctx.turn_count,
            budget_chars: u32::try_from(ctx.budget_chars).unwrap_or(u32::MAX),
        };
        let run = bounds.enter(state, async |store| {
            let guest = pre.instantiate_async(&mut *store).await?;
            guest.toolbay_plugin_reducers().call_reduce(store, &input, &context).await
        });
        let reduced = match run.await.0 {
            Ok(None) => Ok(None),
            Ok(Some(answer)) => from_guest(answer).map(Some).map_err(|p| Fault::new(FaultKind::BadOutput, p)),
            Err(failure) => Err(as_fault(failure)),
        };
        pass.ended(reduced.as_ref().err().map(|fault| fault.kind));
        reduced
    }
}

impl Reduce for PluginReducer {
    fn reduce<'a>(
        &'a self,
        input: &'a ToolResult,
        ctx: ReduceContext<'a>,
    ) -> BoxFuture<'a, Result<Option<ToolResult>, Fault>> {
        Box::pin(self.run(input, ctx))
    }
}
