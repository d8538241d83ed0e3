//! What a tool's author declares that the tool wants to reach (`types.wit`, `capability`). A request, no more.

use serde::{Deserialize, Serialize};

/// One wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// Of which kind.
    pub kind: CapabilityKind,
    /// What of it: a folder, a host, a name.
    pub target: String,
    /// The tool also works without it.
    pub optional: bool,
    /// Shown to the operator who decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The kinds of capability of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapabilityKind {
    /// Read files below a folder.
    FsRead,
    /// Write files below a folder.
    FsWrite,
    /// Send HTTP requests.
    Net,
    /// Run programs.
    Process,
    /// Use a credential.
    Secret,
    /// Keep state.
    Kv,
    /// Read an environment variable.
    Env,
    /// Read and create attachments.
    Attachments,
    /// Read the wall clock.
    Clock,
    /// A kind this host does not know; always denied.
    #[serde(untagged)]
    Unknown(String),
}

impl CapabilityKind {
    /// Reads a kind as the contract writes it.
    #[must_use]
    pub fn parse(kind: &str) -> Self {
        match kind {
            "fs-read" => Self::FsRead,
            "fs-write" => Self::FsWrite,
            "net" => Self::Net,
            "process" => Self::Process,
            "secret" => Self::Secret,
            "kv" => Self::Kv,
            "env" => Self::Env,
            "attachments" => Self::Attachments,
            "clock" => Self::Clock,
            other => Self::Unknown(other.chars().take(64).collect()),
        }
    }

    /// The kind as the contract writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::FsRead => "fs-read",
            Self::FsWrite => "fs-write",
            Self::Net => "net",
            Self::Process => "process",
            Self::Secret => "secret",
            Self::Kv => "kv",
            Self::Env => "env",
            Self::Attachments => "attachments",
            Self::Clock => "clock",
            Self::Unknown(other) => other,
        }
    }
}
