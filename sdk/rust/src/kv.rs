//! State that outlives a call. Instances do not.
//!
//! Calls run concurrently. Use [`increment`] or [`replace`] for values that several calls change.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::kv as host;
use crate::{Error, Result, host_errors};

pub use crate::bindings::imports::toolbay::plugin::kv::Scope;

/// Returns the bytes under a key.
pub fn get(scope: Scope, key: &str) -> Result<Option<Vec<u8>>> {
    host::get(scope, key).map_err(|error| host_errors::kv(key, error))
}

/// Returns the JSON under a key.
pub fn get_json<T: DeserializeOwned>(scope: Scope, key: &str) -> Result<Option<T>> {
    get(scope, key)?.map(|bytes| serde_json::from_slice(&bytes).map_err(Error::from)).transpose()
}

/// Sets a key, with or without an expiry.
pub fn set(scope: Scope, key: &str, value: impl AsRef<[u8]>, ttl_seconds: Option<u32>) -> Result<()> {
    host::set(scope, key, value.as_ref(), ttl_seconds).map_err(|error| host_errors::kv(key, error))
}

/// Sets a key to JSON, with or without an expiry.
pub fn set_json(scope: Scope, key: &str, value: &impl Serialize, ttl_seconds: Option<u32>) -> Result<()> {
    set(scope, key, serde_json::to_vec(value)?, ttl_seconds)
}

/// Removes a key.
pub fn remove(scope: Scope, key: &str) -> Result<()> {
    host::remove(scope, key).map_err(|error| host_errors::kv(key, error))
}

/// Returns the sorted keys with a prefix that follow `after`.
pub fn keys(scope: Scope, prefix: &str, after: Option<&str>, limit: u32) -> Result<Vec<String>> {
    host::keys(scope, prefix, after, limit).map_err(|error| host_errors::kv(prefix, error))
}

/// Adds to a number atomically and returns the sum. An absent key counts as 0.
pub fn increment(scope: Scope, key: &str, by: i64) -> Result<i64> {
    host::increment(scope, key, by).map_err(|error| host_errors::kv(key, error))
}

/// Sets a key only if it holds `expected`. Returns whether it did.
pub fn replace(scope: Scope, key: &str, expected: Option<&[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
    host::replace(scope, key, expected, value.as_ref()).map_err(|error| host_errors::kv(key, error))
}
