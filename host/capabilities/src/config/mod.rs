//! The operator's settings for the plugin (`config` in the policy), which are never secret. The contract's `config`
//! returns each as JSON; `wasi:config` returns a string without quotes and anything else as JSON.

mod contract;
mod wasi;

use std::collections::BTreeMap;
use std::sync::Arc;

use toolbay_policy::GrantKey;
use toolbay_policy::limits::CallLimits;
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use crate::HasCapabilities;
use crate::bindings::host;
use crate::bindings::wasi_config::wasi::config::store;
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};

/// The operator's settings for the plugin.
#[derive(Debug)]
pub struct Config;

impl Capability for Config {
    const KEYS: &'static [GrantKey] = &[];

    type State = Arc<BTreeMap<String, String>>;

    fn begin(_: &CallLimits) -> Arc<BTreeMap<String, String>> {
        Arc::default()
    }

    fn link(linker: &mut Linker<GuestState>, _: AsyncSupport) -> wasmtime::Result<()> {
        host::config::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)?;
        store::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)
    }
}
