//! `wasi:config`: a string setting without quotes, any other setting as JSON.

use serde_json::Value;

use crate::Capabilities;
use crate::bindings::wasi_config::wasi::config::store;

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
