//! The content of results: an output, or an error that the tool returned.
//!
//! The types follow `types.wit`. A fault of a guest is a different thing; see [`crate::tool::fault`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolbay_policy::hint::Hint;

use crate::tool::refusal::{Refusal, RefusalReason};

/// A successful result.
///
/// ```
/// use serde_json::json;
/// use toolbay_core::tool::content::ToolOutput;
///
/// let chart = ToolOutput::text("a chart of three days")
///     .with_structured(&json!([21, 23, 19]))?
///     .with_image(vec![0x89, b'P', b'N', b'G'], "image/png")
///     .with_cost_usd(0.002);
/// assert_eq!(chart.structured.unwrap().get(), r#"{"result":[21,23,19]}"#);
/// assert_eq!((chart.content.len(), chart.cost_usd), (1, Some(0.002)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The text for the model, cut to the budget of the call.
    pub value: String,
    /// The structured result for programs: a JSON text that the host has parsed once. It is never cut.
    pub structured: Option<Box<RawValue>>,
    /// Content blocks in addition to `value`.
    pub content: Vec<ContentBlock>,
    /// The cost of the call in US dollars.
    pub cost_usd: Option<f64>,
    /// Metadata for the host, a JSON text. It is never shown to a model.
    pub meta: Option<Box<RawValue>>,
}

impl ToolOutput {
    /// An output with text only.
    #[must_use]
    pub fn text(value: impl Into<String>) -> Self {
        Self { value: value.into(), ..Self::default() }
    }

    /// Adds the structured result for programs. A value that is not a JSON object is wrapped as `{"result": …}`.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn with_structured(mut self, data: &impl Serialize) -> Result<Self, serde_json::Error> {
        let raw = serde_json::value::to_raw_value(data)?;
        let is_object = raw.get().starts_with('{');
        let wrap = || serde_json::value::to_raw_value(&BTreeMap::from([("result", &raw)]));
        self.structured = Some(if is_object { raw } else { wrap()? });
        Ok(self)
    }

    /// Adds a content block.
    #[must_use]
    pub fn with_block(mut self, body: BlockBody) -> Self {
        self.content.push(ContentBlock { body, annotations: None });
        self
    }

    /// Adds an image.
    #[must_use]
    pub fn with_image(self, data: Vec<u8>, mime_type: impl Into<String>) -> Self {
        self.with_block(BlockBody::Image(Blob { data, mime_type: mime_type.into() }))
    }

    /// Sets the cost of the call in US dollars.
    #[must_use]
    pub fn with_cost_usd(self, cost: f64) -> Self {
        Self { cost_usd: Some(cost), ..self }
    }
}

/// The stable error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorCode {
    /// The model sent arguments that the tool does not accept.
    #[serde(rename = "input_invalid")]
    InputInvalid,
    /// The tool cannot run at the moment: a grant, a key, a program or quota is missing.
    #[serde(rename = "not_available")]
    NotAvailable,
    /// The tool ran and failed.
    #[serde(rename = "execution_failed")]
    ExecutionFailed,
    /// The data to overwrite changed since it was read.
    #[serde(rename = "STALE_WRITE")]
    StaleWrite,
}

impl ErrorCode {
    /// The code on the wire.
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

impl From<RefusalReason> for ErrorCode {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::ArgumentsTooLarge
            | RefusalReason::ArgumentsNotJson
            | RefusalReason::ArgumentsInvalid
            | RefusalReason::IdempotencyKey => Self::InputInvalid,
            _ => Self::NotAvailable,
        }
    }
}

/// An error that the tool returned, or a refusal of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The code for programs.
    pub code: ErrorCode,
    /// The message for the model. It contains no policy line.
    pub message: String,
    /// The subject of the error: a JSON pointer, a reason, a conflicting path, a cause.
    pub subject: Option<String>,
    /// The cost of the attempt in US dollars, if any.
    pub cost_usd: Option<f64>,
    /// What the tool returned in addition to the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<ErrorDetails>>,
    /// What would allow the refused operation, for the operator. Only the host sets it.
    #[serde(skip)]
    pub hint: Option<Hint>,
    /// Why the host refused the call; `None` for an error of the tool. A gate sets it through [`Refusal`].
    #[serde(skip)]
    pub refusal: Option<RefusalReason>,
}

/// What a failed call returned in addition to its message. Plugins return nothing else; MCP servers may.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ErrorDetails {
    /// Structured data for programs, a JSON text.
    pub structured: Option<Box<RawValue>>,
    /// Content blocks, such as pictures and links.
    pub content: Vec<ContentBlock>,
}

impl PartialEq for ErrorDetails {
    /// Structured data is compared as text.
    fn eq(&self, other: &Self) -> bool {
        let text = |details: &Self| details.structured.as_ref().map(|raw| raw.get().to_owned());
        text(self) == text(other) && self.content == other.content
    }
}

impl ToolError {
    /// An error with a message only.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message, subject: None, cost_usd: None, details: None, hint: None, refusal: None }
    }

    /// Adds what the tool returned in addition to the message, unless it is empty.
    #[must_use]
    pub fn with_details(self, details: ErrorDetails) -> Self {
        let is_empty = details.structured.is_none() && details.content.is_empty();
        Self { details: (!is_empty).then(|| Box::new(details)), ..self }
    }

    /// Sets the subject.
    #[must_use]
    pub fn with_subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets the hint for the operator.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<Hint>) -> Self {
        self.hint = hint;
        self
    }
}

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { reason, message, subject, hint } = refusal;
        Self { subject, hint, refusal: Some(reason), ..Self::new(reason.into(), message) }
    }
}

/// The result of a tool: an output or the tool's own error. Reducers take and return it.
pub type ToolResult = Result<ToolOutput, ToolError>;

/// A content block, which corresponds to an MCP content block. Binary data is not encoded; the edge encodes it as
/// base64.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContentBlock {
    /// The content of the block.
    pub body: BlockBody,
    /// Display hints.
    pub annotations: Option<BlockAnnotations>,
}

/// Longest media type or date of a block, in characters: each half of a media type has at most 127 (RFC 6838, section
/// 4.2).
const MAX_MACHINE_FIELD: usize = 255;

/// Whether a media type or a date has a plausible length. A longer one is likely to be hidden text.
#[must_use]
pub fn is_machine_field(text: &str) -> bool {
    text.chars().nth(MAX_MACHINE_FIELD).is_none()
}

impl ContentBlock {
    /// A block of text without display hints.
    #[must_use]
    pub fn from_text(text: String) -> Self {
        Self { body: BlockBody::Text(text), annotations: None }
    }

    /// The text of the block, if it has one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.body {
            BlockBody::Text(text) => Some(text),
            BlockBody::Embedded(EmbeddedResource { body: ResourceBody::Text(text), .. }) => Some(text),
            BlockBody::Image(_) | BlockBody::Audio(_) | BlockBody::Link(_) | BlockBody::Embedded(_) => None,
        }
    }

    /// The text of the block, if it has one.
    #[must_use]
    pub fn text_mut(&mut self) -> Option<&mut String> {
        match &mut self.body {
            BlockBody::Text(text) => Some(text),
            BlockBody::Embedded(EmbeddedResource { body: ResourceBody::Text(text), .. }) => Some(text),
            BlockBody::Image(_) | BlockBody::Audio(_) | BlockBody::Link(_) | BlockBody::Embedded(_) => None,
        }
    }

    /// The binary data of the block, if it has any.
    #[must_use]
    pub fn data(&self) -> Option<&[u8]> {
        match &self.body {
            BlockBody::Image(blob) | BlockBody::Audio(blob) => Some(&blob.data),
            BlockBody::Embedded(EmbeddedResource { body: ResourceBody::Blob(data), .. }) => Some(data),
            BlockBody::Text(_) | BlockBody::Link(_) | BlockBody::Embedded(_) => None,
        }
    }

    /// The labels that a model may read: addresses, names, descriptions.
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

    /// The fields for programs: media type and date.
    #[must_use]
    pub fn machine_fields(&self) -> Vec<&str> {
        let media = match &self.body {
            BlockBody::Text(_) => None,
            BlockBody::Image(blob) | BlockBody::Audio(blob) => Some(blob.mime_type.as_str()),
            BlockBody::Link(link) => link.mime_type.as_deref(),
            BlockBody::Embedded(resource) => resource.mime_type.as_deref(),
        };
        let date = self.annotations.as_ref().and_then(|annotations| annotations.last_modified.as_deref());
        media.into_iter().chain(date).collect()
    }

    /// Whether the fields for programs have a plausible length.
    #[must_use]
    pub fn has_bounded_machine_fields(&self) -> bool {
        self.machine_fields().iter().all(|field| is_machine_field(field))
    }

    /// The size for a reader: the characters of all texts plus the bytes of binary data.
    #[must_use]
    pub fn size(&self) -> usize {
        let chars: usize = self.texts().map(|text| text.chars().count()).sum();
        chars + self.data_bytes()
    }

    /// The bytes of all texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.texts().map(str::len).sum()
    }

    /// The bytes of the binary data.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data().map_or(0, <[u8]>::len)
    }

    /// All texts: that of the block, its labels and its fields for programs.
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.text().into_iter().chain(self.labels()).chain(self.machine_fields())
    }
}

/// The content of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum BlockBody {
    /// Plain text.
    Text(String),
    /// An image.
    Image(Blob),
    /// An audio clip.
    Audio(Blob),
    /// A reference to a resource.
    Link(ResourceLink),
    /// A resource with its content.
    Embedded(EmbeddedResource),
}

/// Binary data with its media type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// The data, not encoded.
    #[serde(with = "encoded")]
    pub data: Vec<u8>,
    /// The media type.
    pub mime_type: String,
}

/// A reference to a resource (MCP `resource_link`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLink {
    /// The address.
    pub uri: String,
    /// The short name.
    pub name: String,
    /// The display name for people.
    pub title: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// The media type.
    pub mime_type: Option<String>,
    /// The size in bytes.
    pub size: Option<u64>,
}

/// A resource with its content (MCP `resource`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddedResource {
    /// The address.
    pub uri: String,
    /// The media type.
    pub mime_type: Option<String>,
    /// The content.
    pub body: ResourceBody,
}

/// The content of an embedded resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResourceBody {
    /// Text.
    Text(String),
    /// Binary data, not encoded.
    Blob(#[serde(with = "encoded")] Vec<u8>),
}

/// The audience and importance of a block (MCP `annotations`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BlockAnnotations {
    /// The audience. An empty list means everyone.
    pub audience: Vec<Role>,
    /// The importance, from 0.0 (optional) to 1.0 (required).
    pub priority: Option<f32>,
    /// The time of the last change, in ISO 8601.
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

/// Binary data in JSON: base64.
mod encoded {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(data: &[u8], out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&STANDARD.encode(data))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}
