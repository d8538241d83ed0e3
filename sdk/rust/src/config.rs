//! Settings the operator wrote for this plugin. Never secret; secrets come from [`crate::secrets`].

use serde::de::DeserializeOwned;

use crate::argument::{Argument, Reader};
use crate::host::config as host;
use crate::schema::quote;
use crate::{Error, Result};

/// Returns a setting; `None` if the operator did not write it.
///
/// A setting of another type makes the tool not available: the operator has to mend it, the model cannot.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>> {
    let Some(text) = host::get(key) else { return Ok(None) };
    match serde_json::from_str(&text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            Err(Error::not_available(format!("the setting `{key}` is not usable: {error}")).at("config"))
        }
    }
}

/// Returns a setting the tool cannot do without.
pub fn require<T: DeserializeOwned>(key: &str) -> Result<T> {
    get(key)?.ok_or_else(|| Error::not_available(format!("the setting `{key}` is missing")).at("config"))
}

/// Returns all settings as one value.
///
/// Settings that do not fit the type make the tool not available: the operator has to mend them, the model cannot.
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
    T::read(&mut Reader::new(&text)).map_err(|error| {
        Error::not_available(format!("the settings are not usable: {}", error.message())).at("config")
    })
}

/// Returns the names of the settings.
pub fn keys() -> Vec<String> {
    host::keys()
}
