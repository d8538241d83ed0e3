//! The library with one plugin, called as an embedder would.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Runtime;
use toolbay::core::audit::{AuditRecord, AuditSink, GrantRecord};
use toolbay::{Filter, Host, HostBuilder, PluginId, Policy, ToolCall, TurnContext, View};

/// A host that has one plugin, `bench`.
#[derive(Clone)]
pub(crate) struct Library {
    pub(crate) host: Host,
    pub(crate) view: View,
}

impl Library {
    /// The guest is a file; the policy comes after its version.
    pub(crate) fn new(runtime: &Runtime, guest: &str, policy: &str) -> Self {
        runtime.block_on(Self::of(guest, policy, Path::new("/"), |builder| builder))
    }

    /// The same, for a workspace and with what else the host is to have.
    pub(crate) async fn of(
        guest: &str,
        policy: &str,
        workspace: &Path,
        with: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Self {
        let policy = Policy::parse(&format!("version = 1\n{policy}"), workspace, None).unwrap();
        let host = with(Host::builder(policy).audit(Arc::new(Counted::default()))).build().unwrap();
        let bytes = std::fs::read(guest).unwrap();
        host.load_bytes(PluginId::new("bench").unwrap(), bytes).await.unwrap();
        let view = host.view(Filter::default());
        Self { host, view }
    }

    /// The same with the tools that the host has by now.
    pub(crate) fn renewed(self) -> Self {
        Self { view: self.host.view(Filter::default()), ..self }
    }

    /// The text of one call.
    pub(crate) async fn call(&self, tool: &str, args: &str) -> String {
        let calls = vec![ToolCall::new("1", tool, args)];
        let turn = TurnContext { budget_chars: 32 << 20, ..TurnContext::default() };
        let mut results = self.host.call_all(&self.view, calls, turn).await;
        results.swap_remove(0).result.unwrap().value
    }
}

/// Counts records, so that building one is not optimised away.
#[derive(Debug, Default)]
pub(crate) struct Counted(AtomicU64);

impl AuditSink for Counted {
    fn record(&self, record: AuditRecord) {
        self.0.fetch_add(record.usage.fuel.unwrap_or_default(), Ordering::Relaxed);
    }
    fn decided(&self, _: GrantRecord) {}
}
