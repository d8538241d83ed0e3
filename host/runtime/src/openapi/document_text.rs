//! The text of an OpenAPI document, with its digest.

use std::sync::Arc;

use toolbay_policy::OpenApiService;
use toolbay_state::digest::Digest;

/// Maximum size of a document, in bytes. The parser has the same limit.
pub(crate) const MAX_BYTES: u64 = 32 << 20;

/// The text of a document.
#[derive(Debug, Clone)]
pub(crate) struct DocumentText {
    pub(crate) text: Arc<str>,
    /// SHA-256, in hex.
    pub(crate) digest: Arc<str>,
    /// A problem with its source.
    pub(crate) warning: Option<String>,
    /// The document as it came, if that is not UTF-8.
    encoded: Option<Arc<[u8]>>,
}

impl DocumentText {
    pub(super) fn new(bytes: Vec<u8>, warning: Option<String>) -> Result<Self, String> {
        let digest = Digest::of(&bytes).to_string().into();
        let (text, encoded) = match String::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(error) => {
                let bytes = error.into_bytes();
                (
                    toolbay_openapi::decode_utf_16(&bytes).map_err(|error| error.to_string())?,
                    Some(bytes.into()),
                )
            }
        };
        Ok(Self { text: text.into(), digest, warning, encoded })
    }

    /// The document as it came, which has the digest.
    pub(super) fn as_received(&self) -> &[u8] {
        self.encoded.as_deref().unwrap_or(self.text.as_bytes())
    }

    /// Names a problem with its source.
    pub(super) fn with_warning(self, warning: String) -> Self {
        Self { warning: Some(warning), ..self }
    }

    /// Checks the digest that the policy pins.
    pub(super) fn check_pin(self, section: &OpenApiService) -> Result<Self, String> {
        match &section.sha256 {
            Some(pinned) if **pinned != *self.digest => {
                Err(format!("it has SHA-256 {}, but the policy pins {pinned}", self.digest))
            }
            _ => Ok(self),
        }
    }
}
