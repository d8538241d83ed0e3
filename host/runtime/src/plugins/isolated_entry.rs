//! Guest entries that are not calls, in isolated instances: the plugin sees its settings, but no clock, randomness,
//! files or network. The result is a function of the code and the input.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolbay_capabilities::Capabilities;
use toolbay_capabilities::state::GuestState;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::limits::{CallLimits, HostLimits};
use toolbay_sandbox::circuit_breaker::CircuitBreaker;
use toolbay_sandbox::engine::Metering;
use toolbay_sandbox::instance::{ContractBreach, GuestEntry, as_fault};
use wasmtime::Store;

use crate::plugins::code::Code;
use crate::plugins::plugin::Plugin;

/// An export of a plugin that the host queries repeatedly, with its own limits and circuit breaker.
#[derive(Debug)]
pub(crate) struct IsolatedEntry {
    plugin: Arc<Plugin>,
    limits: Arc<CallLimits>,
    config: Arc<BTreeMap<String, String>>,
    breaker: CircuitBreaker,
}

impl IsolatedEntry {
    /// Creates an entry that messages call `what`.
    pub(crate) fn new(
        plugin: &Arc<Plugin>,
        limits: CallLimits,
        config: Arc<BTreeMap<String, String>>,
        what: String,
        host: &HostLimits,
    ) -> Self {
        let breaker = CircuitBreaker::new(what, host);
        Self { plugin: Arc::clone(plugin), limits: Arc::new(limits), config, breaker }
    }

    /// Queries a fresh instance with `ask`; `read` validates the result.
    pub(crate) async fn run<R, T>(
        &self,
        ask: impl AsyncFnOnce(&Code, &mut Store<GuestState>) -> wasmtime::Result<R>,
        read: impl FnOnce(R) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (id, limits) = (&self.plugin.id, &self.limits);
        // Never cancelled: a caller that gives up drops this future.
        let cancel = CancellationToken::new();
        self.breaker.check()?;
        let code = self.plugin.code(Metering::from_limits(limits)).await;
        let code = code.map_err(|error| Fault::new(FaultKind::Trap, error.to_string()))?;
        let _run_permit = self.plugin.shared.concurrency.acquire(id, limits.concurrency, &cancel).await?;
        let permit = self.breaker.try_acquire()?;
        let mut capabilities = Capabilities::sealed(id.clone(), Arc::clone(limits));
        capabilities.config = Arc::clone(&self.config);
        let entry = GuestEntry { engine: code.engine(), plugin: id, limits, cancel: &cancel };
        let state = GuestState::new(capabilities);
        let (returned, _) = entry.run(state, async |store| ask(&code, store).await).await;
        let answer = returned.map_err(as_fault).and_then(read);
        permit.record(answer.as_ref().err().map(|fault| fault.kind));
        answer
    }
}

/// The code no longer has an export that it had when it was described.
pub(crate) fn lost_export(what: &str) -> wasmtime::Error {
    ContractBreach::error(format!("it no longer exports its {what}"))
}
