//! Generated from `wit`, `sdk/errors.toml` and the tables of `host/policy` by its `sdk_tests.rs`.

use crate::Error;
use crate::bindings::imports::toolbay::plugin::{attachments::AttachmentError, files::FileError, http_client::HttpError, kv::KvError, process::ProcessError, secrets::SecretError};

pub(crate) fn attachments(name: &str, error: AttachmentError) -> Error {
    match error {
        AttachmentError::Denied(value) => Error::not_available(format!("no access to the attachment `{name}`: {value}")).at("denied"),
        AttachmentError::NotFound => Error::failed(format!("no attachment `{name}`")).at("not-found"),
        AttachmentError::TooLarge(value) => Error::failed(format!("the attachment `{name}` is too large: {value} bytes")).at("too-large"),
        AttachmentError::Other(value) => Error::failed(format!("the attachment `{name}`: {value}")),
    }
}

pub(crate) fn files(path: &str, error: FileError) -> Error {
    match error {
        FileError::Denied(value) => Error::not_available(value).at("denied"),
        FileError::NotFound => Error::failed(format!("`{path}` does not exist")).at("not-found"),
        FileError::Stale => Error::stale(format!("`{path}` changed since it was read: read it again, then write")).at(path),
        FileError::TooLarge(value) => Error::failed(format!("`{path}` is too large: {value} bytes")).at("too-large"),
        FileError::Other(value) => Error::failed(value),
    }
}

pub(crate) fn http_client(url: &str, error: HttpError) -> Error {
    match error {
        HttpError::Denied(value) => Error::not_available(format!("no access to `{url}`: {value}")).at("denied"),
        HttpError::InvalidRequest(value) => Error::failed(format!("the request to `{url}` is invalid: {value}")),
        HttpError::Timeout => Error::failed(format!("`{url}` did not answer in time")).at("timeout"),
        HttpError::Cancelled => Error::failed("the call was cancelled").at("cancelled"),
        HttpError::Transport(value) => Error::failed(format!("`{url}`: {value}")).at("transport"),
    }
}

pub(crate) fn kv(key: &str, error: KvError) -> Error {
    match error {
        KvError::Denied(value) => Error::not_available(format!("no access to the store: {value}")).at("denied"),
        KvError::TooLarge(value) => Error::failed(format!("the value of `{key}` is too large: {value} bytes; the operator can raise `kv_value_bytes`")).at("too-large"),
        KvError::QuotaExceeded => Error::not_available("the store of the plugin is full: remove something, or ask the operator to raise `kv_bytes` or `kv_keys`").at("quota"),
        KvError::NotANumber => Error::failed(format!("`{key}` does not hold a number")),
        KvError::Other(value) => Error::failed(format!("the store failed: {value}")),
    }
}

pub(crate) fn process(program: &str, error: ProcessError) -> Error {
    match error {
        ProcessError::Denied(value) => Error::not_available(format!("`{program}` may not be run: {value}")).at("denied"),
        ProcessError::NotFound(value) => Error::not_available(format!("no program `{value}` here")).at("missing-binary"),
        ProcessError::Timeout => Error::failed(format!("`{program}` did not end in time")).at("timeout"),
        ProcessError::Cancelled => Error::failed("the call was cancelled").at("cancelled"),
        ProcessError::Other(value) => Error::failed(format!("`{program}`: {value}")),
    }
}

pub(crate) fn secrets(name: &str, error: SecretError) -> Error {
    match error {
        SecretError::Denied(value) => Error::not_available(format!("no access to the secret `{name}`: {value}")).at("denied"),
        SecretError::NotFound => Error::not_available(format!("the secret `{name}` is not set")).at("missing-secret"),
        SecretError::Other(value) => Error::failed(format!("the secret `{name}`: {value}")),
    }
}
