//! What a call gives back: an output, or an error the guest chose to return.
//!
//! The shapes follow `types.wit`; a fault (the guest misbehaved) is another thing and lives in [`crate::call::fault`].

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A successful result.
#[derive(Debug, Clone, Default)]
pub struct ToolOutput {
    /// The text the model reads; trimmed to the call's budget.
    pub value: String,
    /// Structured result for programs: a JSON text the host has parsed once. Never trimmed.
    pub structured: Option<Box<RawValue>>,
    /// Rich blocks in addition to `value`.
    pub content: Vec<ContentBlock>,
    /// What the call cost, in US dollars.
    pub cost_usd: Option<f64>,
    /// Free-form metadata for the host, a JSON text; never shown to a model.
    pub meta: Option<Box<RawValue>>,
}

impl ToolOutput {
    /// An output of text alone.
    #[must_use]
    pub fn text(value: impl Into<String>) -> Self {
        Self { value: value.into(), ..Self::default() }
    }
}

/// Stable error classes; the texts on the wire are the seed's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum ErrorCode {
    /// The model produced arguments the tool cannot accept.
    #[serde(rename = "input_invalid")]
    InputInvalid,
    /// The tool cannot run here and now: a missing grant, key, binary, quota.
    #[serde(rename = "not_available")]
    NotAvailable,
    /// The tool ran and failed.
    #[serde(rename = "execution_failed")]
    ExecutionFailed,
    /// What the call wanted to overwrite changed since it was read.
    #[serde(rename = "STALE_WRITE")]
    StaleWrite,
}

impl ErrorCode {
    /// The code as it stands on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InputInvalid => "input_invalid",
            Self::NotAvailable => "not_available",
            Self::ExecutionFailed => "execution_failed",
            Self::StaleWrite => "STALE_WRITE",
        }
    }
}

/// The tool, or a gate before it, said no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The class a program branches on.
    pub code: ErrorCode,
    /// What the model reads: no line of the policy.
    pub message: String,
    /// What the error is about: a JSON pointer, a reason, a path in conflict, a cause.
    pub subject: Option<String>,
    /// Cost of the attempt in US dollars, if it cost anything.
    pub cost_usd: Option<f64>,
    /// What would allow what was refused, for the operator ([`toolbay_policy::refusal`]). No guest sets it.
    pub hint: Option<String>,
}

impl ToolError {
    /// An error with neither subject nor cost nor hint.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), subject: None, cost_usd: None, hint: None }
    }

    /// The same error about `subject`.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// The same error with what the operator is told.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

/// What a reducer takes and returns: a tool's own answer, good or bad.
pub type ToolResult = Result<ToolOutput, ToolError>;

/// One block of rich output; maps onto an MCP content block. Bytes are raw, the edge adds base64.
#[derive(Debug, Clone, PartialEq)]
pub struct ContentBlock {
    /// What the block holds.
    pub body: BlockBody,
    /// Display hints.
    pub annotations: Option<BlockAnnotations>,
}

/// Longest media type or date of a block, in characters: each half of a type has 127 at most (RFC 6838, section 4.2).
const MAX_KIND: usize = 255;

impl ContentBlock {
    /// Its text, if it is one.
    #[must_use]
    pub fn text_mut(&mut self) -> Option<&mut String> {
        match &mut self.body {
            BlockBody::Text(text) => Some(text),
            BlockBody::Embedded(EmbeddedResource { body: ResourceBody::Text(text), .. }) => Some(text),
            BlockBody::Image(_) | BlockBody::Audio(_) | BlockBody::Link(_) | BlockBody::Embedded(_) => None,
        }
    }

    /// What is said of what it holds, for a model to read: addresses, names, descriptions.
    #[must_use]
    pub fn labels(&self) -> Vec<&str> {
        match &self.body {
            BlockBody::Text(_) | BlockBody::Image(_) | BlockBody::Audio(_) => Vec::new(),
            BlockBody::Link(link) => {
                let more = [&link.title, &link.description].into_iter().flatten();
                [&link.uri, &link.name].into_iter().chain(more).map(String::as_str).collect()
            }
            BlockBody::Embedded(resource) => vec![&resource.uri],
        }
    }

    /// What programs read of it: its media type and its date.
    #[must_use]
    pub fn kinds(&self) -> Vec<&str> {
        let media = match &self.body {
            BlockBody::Text(_) => None,
            BlockBody::Image(blob) | BlockBody::Audio(blob) => Some(blob.mime_type.as_str()),
            BlockBody::Link(link) => link.mime_type.as_deref(),
            BlockBody::Embedded(resource) => resource.mime_type.as_deref(),
        };
        let date = self.annotations.as_ref().and_then(|annotations| annotations.last_modified.as_deref());
        media.into_iter().chain(date).collect()
    }

    /// Whether its kinds are no longer than such are: what is longer is a text in disguise.
    #[must_use]
    pub fn has_sound_kinds(&self) -> bool {
        self.kinds().iter().all(|kind| kind.chars().nth(MAX_KIND).is_none())
    }

    /// Its size for whoever reads it: characters of all its texts, and bytes that are no text, one each.
    #[must_use]
    pub fn size(&self) -> usize {
        let body = match &self.body {
            BlockBody::Text(text) => text.chars().count(),
            BlockBody::Image(blob) | BlockBody::Audio(blob) => blob.data.len(),
            BlockBody::Link(_) => 0,
            BlockBody::Embedded(resource) => match &resource.body {
                ResourceBody::Text(text) => text.chars().count(),
                ResourceBody::Blob(data) => data.len(),
            },
        };
        let beside = self.labels().into_iter().chain(self.kinds()).map(|text| text.chars().count());
        body + beside.sum::<usize>()
    }
}

/// The kinds of block.
#[derive(Debug, Clone, PartialEq)]
pub enum BlockBody {
    /// Plain text.
    Text(String),
    /// A picture.
    Image(Blob),
    /// A sound.
    Audio(Blob),
    /// A reference to a resource.
    Link(ResourceLink),
    /// A resource with its content.
    Embedded(EmbeddedResource),
}

/// Bytes with their type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The bytes, not encoded.
    pub data: Vec<u8>,
    /// Their media type.
    pub mime_type: String,
}

/// A reference to a resource (MCP `resource_link`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceLink {
    /// Where it is.
    pub uri: String,
    /// Its short name.
    pub name: String,
    /// Its name for people.
    pub title: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Its media type.
    pub mime_type: Option<String>,
    /// Its size in bytes.
    pub size: Option<u64>,
}

/// A resource with its content (MCP `resource`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedResource {
    /// Where it is.
    pub uri: String,
    /// Its media type.
    pub mime_type: Option<String>,
    /// The content.
    pub body: ResourceBody,
}

/// The content of an embedded resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceBody {
    /// Text.
    Text(String),
    /// Bytes, not encoded.
    Blob(Vec<u8>),
}

/// For whom a block is, and how important (MCP `annotations`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockAnnotations {
    /// Empty: for everyone.
    pub audience: Vec<Role>,
    /// 0.0 (optional) to 1.0 (required).
    pub priority: Option<f32>,
    /// ISO 8601.
    pub last_modified: Option<String>,
}

/// A side of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}
