//! The operator's settings for the plugin (`config` in the policy). Never secret. The contract's `config` has each as
//! JSON; `wasi:config` has a text as itself and anything else as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use toolbay_policy::GrantKey;
use toolbay_policy::limits::CallLimits;
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use super::Capabilities;
use crate::HasCapabilities;
use crate::bindings::host::config;
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
        config::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)?;
        store::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)
    }
}

impl config::Host for Capabilities {
    fn get(&mut self, key: String) -> Option<String> {
        self.config.get(&key).cloned()
    }
    fn keys(&mut self) -> Vec<String> {
        self.config.keys().cloned().collect()
    }
}

impl store::Host for Capabilities {
    fn get(&mut self, key: String) -> Result<Option<String>, store::Error> {
        Ok(self.config.get(&key).map(|json| plain_text(json)))
    }
    fn get_all(&mut self) -> Result<Vec<(String, String)>, store::Error> {
        Ok(self.config.iter().map(|(key, json)| (key.clone(), plain_text(json))).collect())
    }
}

/// A setting as text without the quotes of JSON.
fn plain_text(json: &str) -> String {
    match serde_json::from_str(json) {
        Ok(Value::String(text)) => text,
        _ => json.to_owned(),
    }
}
