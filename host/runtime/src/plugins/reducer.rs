//! Runs the reducers of a plugin in [isolated](IsolatedEntry) instances.

use std::sync::Arc;

use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::reduce::{Reduce, ReduceContext};
use toolbay_core::tool::content::ToolResult;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::limits::{CallLimits, HostLimits};

use crate::plugins::bindings::reducers::exports::toolbay::plugin::reducers::ReduceContext as GuestContext;
use crate::plugins::code;
use crate::plugins::isolated_entry::{IsolatedEntry, lost_export};
use crate::plugins::plugin::Plugin;
use crate::plugins::tool_result::{from_guest, to_guest};

/// A reducer of one plugin.
#[derive(Debug)]
pub(crate) struct PluginReducer(IsolatedEntry);

impl PluginReducer {
    /// Creates the reducer of `plugin` for the tool `target`.
    pub(crate) fn new(plugin: &Arc<Plugin>, limits: &CallLimits, target: &str, host: &HostLimits) -> Self {
        let what = format!("the reducer of `{}` for `{target}`", plugin.id);
        Self(IsolatedEntry::new(plugin, code::isolated_limits(limits), Arc::default(), what, host))
    }
}

impl Reduce for PluginReducer {
    fn reduce<'a>(
        &'a self,
        input: &'a ToolResult,
        ctx: ReduceContext<'a>,
    ) -> BoxFuture<'a, Result<Option<ToolResult>, Fault>> {
        Box::pin(async move {
            let ask = async |code: &code::Code, store: &mut _| {
                let pre = code.reducers.as_ref().ok_or_else(|| lost_export("reducers"))?;
                let context = GuestContext {
                    tool_name: ctx.tool_name.to_owned(),
                    args: ctx.args.to_owned(),
                    turn_count: ctx.turn_count,
                    budget_chars: u32::try_from(ctx.budget_chars).unwrap_or(u32::MAX),
                };
                let guest = pre.instantiate_async(&mut *store).await?;
                guest.toolbay_plugin_reducers().call_reduce(store, &to_guest(input), &context).await
            };
            let read = |answer: Option<_>| answer.map(from_guest).transpose();
            self.0.run(ask, |answer| read(answer).map_err(|p| Fault::new(FaultKind::BadOutput, p))).await
        })
    }
}
