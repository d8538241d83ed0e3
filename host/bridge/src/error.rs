//! Errors as values that cross to another language.

use std::any::Any;
use std::path::Path;

use serde::Serialize;
use toolbay::HostError;
use toolbay::policy::PolicyError;

/// The kind of a [`BridgeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The program passed a value that no request can have. Languages raise their own error for it.
    Argument,
    /// The policy cannot be read or is refused.
    Policy,
    /// Plugins were not loaded.
    Load,
    /// The state directory cannot be used.
    State,
    /// The program `toolbay`, which compiles plugins, is missing or is another version.
    Executable,
    /// The host was opened in the parent of this process.
    Fork,
    /// The host or the event loop was closed.
    Closed,
    /// The bridge failed.
    Internal,
}

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BridgeError {
    /// The kind.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
    /// The file of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line of the policy, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The table and key of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl BridgeError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), file: None, line: None, key: None }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument, message)
    }

    pub(crate) fn closed(what: &str) -> Self {
        Self::new(ErrorKind::Closed, format!("the {what} is closed"))
    }

    pub(crate) fn from_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Self::new(ErrorKind::Internal, format!("the bridge panicked: {text}"))
    }

    /// The first mistake of a refused policy. `text` is what the lines count in; without a text, lines say nothing.
    pub(crate) fn from_policy(error: &PolicyError, file: Option<&Path>, text: Option<&str>) -> Self {
        let finding = error.findings().first();
        let line = finding.map(|finding| finding.line).filter(|_| text.is_some());
        let name = line.and_then(|line| text?.lines().nth(line.checked_sub(1)?));
        let name = name.and_then(|line| Some(line.split_once('=')?.0.trim().to_owned()));
        let table = finding.map(|finding| finding.table.clone()).filter(|table| !table.is_empty());
        let key = match (table, name) {
            (Some(table), Some(name)) => Some(format!("{table} {name}")),
            (table, name) => table.or(name),
        };
        Self {
            file: file.map(|file| file.display().to_string()),
            line,
            key,
            ..Self::new(ErrorKind::Policy, error.to_string())
        }
    }

    /// The error as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Texts and numbers can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl std::fmt::Display for BridgeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BridgeError {}

impl From<HostError> for BridgeError {
    fn from(error: HostError) -> Self {
        let kind = match &error {
            HostError::Directory { .. } | HostError::Lock(_) | HostError::LockGone(_) => ErrorKind::Load,
            HostError::Policy(_) | HostError::Secrets(_) => ErrorKind::Policy,
            HostError::NoCompiler => ErrorKind::Executable,
            HostError::Engine(_) | HostError::Tls(_) | HostError::Native(_) => ErrorKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<serde_json::Error> for BridgeError {
    fn from(error: serde_json::Error) -> Self {
        Self::argument(format!("the request cannot be read: {error}"))
    }
}
