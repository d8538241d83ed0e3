//! Credentials by name.
//!
//! [`get`] usually returns a placeholder that is valid for one call. The host replaces it with the value in the
//! headers of requests to the hosts that the operator bound it to. Code that puts it into a header works either way.

use crate::bindings::imports::toolbay::plugin::secrets::SecretError;
use crate::host::secrets as host;
use crate::{Error, Result};

pub use crate::bindings::imports::toolbay::plugin::secrets::Secret;

/// Returns a secret, or its placeholder.
pub fn get(name: &str) -> Result<Secret> {
    host::get(name).map_err(|error| match error {
        SecretError::Denied(reason) => {
            Error::not_available(format!("no access to the secret `{name}`: {reason}")).at("denied")
        }
        SecretError::NotFound => {
            Error::not_available(format!("the secret `{name}` is not set")).at("missing-secret")
        }
        SecretError::Other(message) => Error::failed(format!("the secret `{name}`: {message}")),
    })
}
