//! Settings the operator wrote for this plugin. Never secret; secrets come from [`crate::secrets`].

use serde::de::DeserializeOwned;

use crate::host::config as host;
use crate::{Error, Result};

/// Returns a setting; `None` if the operator did not write it.
///
/// A setting of another type makes the tool not available: the operator has to mend it, the model can not.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>> {
    let Some(text) = host::get(key) else { return Ok(None) };
    match serde_json::from_str(&text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            Err(Error::not_available(format!("the setting `{key}` is not usable: {error}")).at("config"))
        }
    }
}

/// Returns a setting the tool can not do without.
pub fn require<T: DeserializeOwned>(key: &str) -> Result<T> {
    get(key)?.ok_or_else(|| Error::not_available(format!("the setting `{key}` is missing")).at("config"))
}

/// Returns the names of the settings.
pub fn keys() -> Vec<String> {
    host::keys()
}
