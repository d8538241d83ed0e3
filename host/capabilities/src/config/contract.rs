//! The `config` interface of the contract: each setting as JSON.

use crate::Capabilities;
use crate::bindings::host::config;

impl config::Host for Capabilities {
    fn get(&mut self, key: String) -> Option<String> {
        self.config.get(&key).cloned()
    }
    fn keys(&mut self) -> Vec<String> {
        self.config.keys().cloned().collect()
    }
}
