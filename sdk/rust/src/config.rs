//! Settings that the operator wrote for this plugin. Settings are never secret; secrets come from [`crate::secrets`].

use serde::de::DeserializeOwned;

use crate::argument::{Argument, JsonReader};
use crate::host::config as host;
use crate::schema::quote;
use crate::{Error, Result};

/// Returns a setting; `None` if the operator did not set it.
///
/// A setting of another type makes the tool unavailable, because only the operator can fix it.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>> {
    let Some(text) = host::get(key) else { return Ok(None) };
    match serde_json::from_str(&text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            Err(Error::not_available(format!("the setting `{key}` is not usable: {error}")).at("config"))
        }
    }
}

/// Returns a required setting.
pub fn require<T: DeserializeOwned>(key: &str) -> Result<T> {
    get(key)?.ok_or_else(|| Error::not_available(format!("the setting `{key}` is missing")).at("config"))
}

/// Returns all settings as one value.
///
/// Settings of another type make the tool unavailable, because only the operator can fix them.
pub fn all<T: Argument>() -> Result<T> {
    let mut text = String::from("{");
    for key in host::keys() {
        let Some(value) = host::get(&key) else { continue };
        if text.len() > 1 {
            text.push(',');
        }
        quote(&mut text, &key);
        text.push(':');
        text.push_str(&value);
    }
    text.push('}');
    T::read(&mut JsonReader::new(&text)).map_err(|error| {
        Error::not_available(format!("the settings are not usable: {}", error.message())).at("config")
    })
}

/// Returns the names of the settings.
pub fn keys() -> Vec<String> {
    host::keys()
}
