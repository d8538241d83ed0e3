//! `config`: the operator's settings for the plugin (`config` in the policy). Never secret.

use super::Capabilities;
use crate::engine::bindings::host::config;

impl config::Host for Capabilities {
    fn get(&mut self, key: String) -> Option<String> {
        self.config.get(&key).cloned()
    }
    fn keys(&mut self) -> Vec<String> {
        self.config.keys().cloned().collect()
    }
}
