//! The port through which a plugin is asked whether one of its tools is available: a sealed instance of it, which sees
//! its settings and nothing else, neither a clock nor the network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::registry::Check;
use toolbay_policy::limits::{HostLimits, Limits};
use toolbay_policy::name::ToolName;
use toolbay_policy::refusal::Refusal;
use toolbay_policy::text::one_line;

use crate::capability::Capabilities;
use crate::engine::Metering;
use crate::engine::breaker::Breaker;
use crate::engine::instance::{Bounds, as_fault};
use crate::engine::state::{GuestState, Seal};
use crate::plugins::plugin::Plugin;

/// Bounds of a check, unless the plugin's own are lower: it is asked for every tool, again and again.
const FUEL: u64 = 200_000_000;
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest reason that is shown, in characters.
const MAX_REASON: usize = 300;

/// What all checks of one plugin share.
#[derive(Debug)]
pub(crate) struct Availability {
    plugin: Arc<Plugin>,
    limits: Arc<Limits>,
    config: Arc<BTreeMap<String, String>>,
    /// One for all tools: it is one function that is asked.
    breaker: Breaker,
}

/// The check of one tool.
#[derive(Debug)]
struct ToolCheck {
    of: Arc<Availability>,
    tool: ToolName,
}

impl Availability {
    /// What asks a plugin, if it can say.
    pub(crate) fn of(
        plugin: &Arc<Plugin>,
        limits: &Limits,
        config: &Arc<BTreeMap<String, String>>,
        host: &HostLimits,
    ) -> Option<Arc<Self>> {
        let mut limits = limits.clone();
        limits.seal(FUEL, TIMEOUT);
        plugin.descriptor.availability.then(|| {
            Arc::new(Self {
                plugin: Arc::clone(plugin),
                limits: Arc::new(limits),
                config: Arc::clone(config),
                breaker: Breaker::new(format!("the check of `{}`", plugin.id), host),
            })
        })
    }

    /// The check of one of its tools.
    pub(crate) fn check(self: &Arc<Self>, tool: &ToolName) -> Arc<dyn Check> {
        Arc::new(ToolCheck { of: Arc::clone(self), tool: tool.clone() })
    }

    async fn ask(&self, tool: &ToolName) -> Result<Result<(), String>, Fault> {
        let shared = &self.plugin.shared;
        let failed = |problem: String| Fault::new(FaultKind::Trap, problem);
        // Never fires: who gives up drops this future.
        let cancel = CancellationToken::new();
        self.breaker.check()?;
        let code = self.plugin.code(Metering::of(&self.limits)).await.map_err(|e| failed(e.to_string()))?;
        let Some(pre) = &code.availability else {
            return Err(failed("it has lost its check".to_owned()));
        };
        let _place = shared.admission.enter(&self.plugin.id, self.limits.concurrency, &cancel).await?;
        let pass = self.breaker.pass()?;
        let sealed = Capabilities::sealed(self.plugin.id.clone(), Arc::clone(&self.limits));
        let capabilities = Capabilities { config: Arc::clone(&self.config), ..sealed };
        let state =
            GuestState::new(Seal::Sealed, &self.limits, capabilities).map_err(|e| failed(e.to_string()))?;
        let bounds =
            Bounds { engine: code.engine(), plugin: &self.plugin.id, limits: &self.limits, cancel: &cancel };
        let run = bounds.enter(state, async |store| {
            let guest = pre.instantiate_async(&mut *store).await?;
            guest.toolbay_plugin_availability().call_check(store, tool.as_str()).await
        });
        let said = run.await.0.map_err(as_fault);
        pass.ended(said.as_ref().err().map(|fault| fault.kind));
        said
    }
}

impl Check for ToolCheck {
    fn check(&self) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async {
            match self.of.ask(&self.tool).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(reason)) => Err(format!("its plugin says: {}", one_line(&reason, MAX_REASON)).into()),
                Err(fault) => {
                    let said = one_line(&fault.to_string(), MAX_REASON);
                    let text = format!("its plugin failed when asked for it: {said}");
                    Err(Refusal { text, hint: fault.hint() })
                }
            }
        })
    }
}
