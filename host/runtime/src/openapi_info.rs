//! What embedders see of the OpenAPI services of a policy.

use std::collections::BTreeMap;

use serde::Serialize;

/// Whether the document of a section is loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentState {
    /// The document is being fetched and turned into tools.
    #[default]
    Loading,
    /// Its operations are tools.
    Ready,
    /// The document could not be loaded.
    Failed,
}

impl DocumentState {
    /// The state in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

/// The result of loading one `[openapi.NAME]` section.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OpenApiInfo {
    /// The name of the section.
    pub name: String,
    /// The location of the document.
    pub document: String,
    /// Whether the document is loaded.
    pub state: DocumentState,
    /// SHA-256 of the document, in hex.
    pub digest: Option<String>,
    /// The title in the document.
    pub title: Option<String>,
    /// The tools by name, each with its operation, such as `GET /pets/{id}`.
    pub tools: BTreeMap<String, String>,
    /// Tools that cannot be called, each with the reason.
    pub unavailable: BTreeMap<String, String>,
    /// Operations that are not tools, each with the reason.
    pub problems: Vec<(String, String)>,
    /// The number of operations that the section excludes.
    pub left_out: usize,
    /// Problems that do not stop the section.
    pub warnings: Vec<String>,
    /// Why the section has no tools, or still has the previous ones.
    pub error: Option<String>,
}
