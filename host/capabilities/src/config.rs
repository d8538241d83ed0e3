//! The operator's settings for the plugin (`config` in the policy). Never secret. The contract's `config` has each as
//! JSON; `wasi:config` has a text as itself and anything else as JSON.

use serde_json::Value;

use super::Capabilities;
use crate::bindings::host::config;
use crate::bindings::wasi_config::wasi::config::store;

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
