//! `config`: what the operator wrote for this plugin under `config`. Never secret.

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
