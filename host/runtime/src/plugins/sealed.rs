//! Entries into a plugin that are no calls: a sealed instance, which sees the plugin's settings and nothing else, neither a
//! clock, nor randomness, nor files, nor the network. Its answer is a function of the code and the input.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_policy::limits::{HostLimits, Limits};
use wasmtime::Store;

use crate::capability::Capabilities;
use crate::engine::Metering;
use crate::engine::breaker::Breaker;
use crate::engine::instance::{Bounds, as_fault};
use crate::engine::state::{GuestState, Seal};
use crate::plugins::code::Code;
use crate::plugins::plugin::Plugin;

/// What a plugin is asked for again and again, with its own limits and circuit breaker.
#[derive(Debug)]
pub(crate) struct SealedEntry {
    plugin: Arc<Plugin>,
    limits: Arc<Limits>,
    config: Arc<BTreeMap<String, String>>,
    breaker: Breaker,
}

impl SealedEntry {
    /// An entry for what a message calls `what`.
    pub(crate) fn new(
        plugin: &Arc<Plugin>,
        limits: Limits,
        config: Arc<BTreeMap<String, String>>,
        what: String,
        host: &HostLimits,
    ) -> Self {
        let breaker = Breaker::new(what, host);
        Self { plugin: Arc::clone(plugin), limits: Arc::new(limits), config, breaker }
    }

    /// Asks a fresh instance; `read` checks the answer.
    pub(crate) async fn run<R, T>(
        &self,
        ask: impl AsyncFnOnce(&Code, &mut Store<GuestState>) -> wasmtime::Result<R>,
        read: impl FnOnce(R) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (id, limits) = (&self.plugin.id, &self.limits);
        let failed = |problem: String| Fault::new(FaultKind::Trap, problem);
        // Never fires: who gives up drops this future.
        let cancel = CancellationToken::new();
        self.breaker.check()?;
        let code = self.plugin.code(Metering::of(limits)).await.map_err(|e| failed(e.to_string()))?;
        let _place = self.plugin.shared.admission.enter(id, limits.concurrency, &cancel).await?;
        let pass = self.breaker.pass()?;
        let sealed = Capabilities::sealed(id.clone(), Arc::clone(limits));
        let capabilities = Capabilities { config: Arc::clone(&self.config), ..sealed };
        let state = GuestState::new(Seal::Sealed, limits, capabilities).map_err(|e| failed(e.to_string()))?;
        let bounds = Bounds { engine: code.engine(), plugin: id, limits, cancel: &cancel };
        let (said, _) = bounds.enter(state, async |store| ask(&code, store).await).await;
        let answer = said.map_err(as_fault).and_then(read);
        pass.ended(answer.as_ref().err().map(|fault| fault.kind));
        answer
    }
}

/// What is asked for is gone from code that had it when it was described.
pub(crate) fn lost(what: &str) -> wasmtime::Error {
    wasmtime::format_err!("it has lost its {what}")
}
