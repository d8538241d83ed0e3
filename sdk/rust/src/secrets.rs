//! Credentials by name.
//!
//! [`get`] usually returns a placeholder that is valid for one call. The host replaces it with the value in the
//! headers of requests to the hosts that the operator bound it to. Code that puts it into a header works either way.

use crate::host::secrets as host;
use crate::{Result, host_errors};

pub use crate::bindings::imports::toolbay::plugin::secrets::Secret;

/// Returns a secret, or its placeholder.
pub fn get(name: &str) -> Result<Secret> {
    host::get(name).map_err(|error| host_errors::secrets(name, error))
}
