//! `kv`: key-value storage that outlives a call, in the granted scopes.
//!
//! The host decides which bucket a call uses: the guest names a scope and a key, never a plugin, session or agent.

mod backup;
mod contract;
mod encoding;
mod header;
mod open;
pub(crate) mod open_bucket;
mod panic;
mod read;
mod store;
mod tables;
mod wasi;
mod writer;

pub use encoding::EntryInfo;
pub use panic::is_store_panic;
pub use read::KvUsage;
pub use store::RedbStore;

use toolbay_core::call::TurnContext;
use toolbay_policy::GrantKey;
use toolbay_policy::capability::kv::KvScope;
use toolbay_policy::limits::CallLimits;
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use crate::HasCapabilities;
use crate::bindings::host;
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};

/// The key-value store, in the granted scopes.
pub(crate) struct Kv;

impl Capability for Kv {
    const KEYS: &'static [GrantKey] = &[GrantKey::Kv];

    type State = ();

    fn begin(_: &CallLimits) {}

    fn link(linker: &mut Linker<GuestState>, _: AsyncSupport) -> wasmtime::Result<()> {
        host::kv::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)?;
        wasi::link(linker)
    }
}

/// The owner of the bucket; empty when the caller does not identify itself.
pub fn bucket_owner(scope: KvScope, tool: &str, turn: &TurnContext) -> String {
    let named = |kind: &str, id: &Option<String>| {
        id.as_ref().filter(|id| !id.is_empty()).map(|id| format!("{kind}:{id}"))
    };
    match scope {
        KvScope::Tool => tool.to_owned(),
        KvScope::Plugin => String::new(),
        KvScope::Session => turn.session.id().unwrap_or_default().to_owned(),
        // An agent and a personality with the same id have different buckets.
        KvScope::Agent => named("agent", &turn.identity.agent_id)
            .or_else(|| named("personality", &turn.identity.personality_id))
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
