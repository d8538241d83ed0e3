//! The library with one plugin, called as an embedder would.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Runtime;
use toolbay::core::audit::{AuditRecord, AuditSink, GrantRecord};
use toolbay::{Filter, Host, HostBuilder, PluginId, Policy, ToolCall, TurnContext, View};

/// A host with one plugin, `bench`.
#[derive(Clone)]
pub(crate) struct LibraryBench {
    pub(crate) host: Host,
    pub(crate) view: View,
}

impl LibraryBench {
    /// The guest is a file, of WebAssembly or of its text format. The policy text follows its version line.
    pub(crate) fn new(runtime: &Runtime, guest: &str, policy: &str) -> Self {
        runtime.block_on(Self::of(guest, policy, Path::new("/"), |builder| builder))
    }

    /// The same with a workspace and further settings.
    pub(crate) async fn of(
        guest: &str,
        policy: &str,
        workspace: &Path,
        with: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Self {
        let policy = Policy::parse(&format!("version = 1\n{policy}"), workspace, None).unwrap();
        let builder = Host::builder(policy).no_cache().audit(Arc::new(CountedCall::default()));
        let host = with(builder).build().unwrap();
        let bytes = wat::parse_file(guest).unwrap();
        host.load_bytes(PluginId::new("bench").unwrap(), bytes).await.unwrap();
        let view = host.view(Filter::default());
        Self { host, view }
    }

    /// The same with the tools that the host has by now.
    pub(crate) fn renewed(self) -> Self {
        Self { view: self.host.view(Filter::default()), ..self }
    }

    /// The arguments of one call.
    pub(crate) async fn call(&self, tool: &str, args: &str) -> String {
        let calls = vec![ToolCall::new("1", tool, args)];
        let turn = TurnContext { budget_chars: 32 << 20, ..TurnContext::default() };
        let mut results = self.host.call_all(&self.view, calls, turn).await;
        results.swap_remove(0).result.unwrap().value
    }
}

/// Counts records, so that the compiler cannot remove them.
#[derive(Debug, Default)]
pub(crate) struct CountedCall(AtomicU64);

impl AuditSink for CountedCall {
    fn record(&self, record: AuditRecord) {
        self.0.fetch_add(record.usage.fuel.unwrap_or_default(), Ordering::Relaxed);
    }
    fn record_grant(&self, _: GrantRecord) {}
}
