//! The media types of bodies and parameters.

use serde_json::Value;

use crate::document::OpenApiDocument;

/// The longest media type that is sent, in bytes.
pub(super) const MAX_MEDIA: usize = 200;

/// The kinds of media types, the most expressive first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MediaKind {
    Json,
    Form,
    Multipart,
    /// A range that contains JSON: `*/*`, `application/*`, `application/*+json`.
    Range,
    Text,
    Binary,
}

impl MediaKind {
    pub(super) fn of(media: &str) -> Self {
        let essence = essence(media);
        match essence.as_str() {
            "*/*" | "application/*" | "application/*+json" => Self::Range,
            "application/json" | "text/json" | "application/x-json" | "text/x-json" => Self::Json,
            json if json.ends_with("+json") => Self::Json,
            "application/x-www-form-urlencoded" => Self::Form,
            "multipart/form-data" => Self::Multipart,
            text if text.starts_with("text/") || text.ends_with("xml") => Self::Text,
            _ => Self::Binary,
        }
    }

    /// The best of the media types comes first. Many servers list `application/json` behind a type for patches.
    pub(super) fn rank(media: &str) -> (Self, bool) {
        (Self::of(media), essence(media) != "application/json")
    }

    /// The media type of a range that a body with this schema is sent as.
    pub(super) fn of_range(document: &OpenApiDocument, media: &str, schema: &Value) -> &'static str {
        let schema = document.resolve(schema).ok();
        let text = |key: &str| schema.and_then(|map| map.get(key)).and_then(Value::as_str);
        let is_text = text("type") == Some("string") && !essence(media).ends_with("json");
        match text("format") {
            Some("binary") if is_text => "application/octet-stream",
            _ if is_text => "text/plain",
            _ => "application/json",
        }
    }
}

/// A media type without its parameters.
fn essence(media: &str) -> String {
    media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A text that the value of a header may be.
pub(super) fn as_header_text(text: &str) -> Option<String> {
    text.bytes().all(|b| (0x20..0x7f).contains(&b)).then(|| text.to_owned())
}
