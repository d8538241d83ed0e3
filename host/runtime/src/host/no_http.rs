//! The place of the HTTP client's settings in a build without the feature `net`.

use toolbay_capabilities::http::HttpClient;

use crate::error::HostError;

/// No settings.
#[derive(Debug, Default)]
pub(super) struct HttpSettings {}

impl HttpSettings {
    pub(super) fn apply(self, _client: &HttpClient) -> Result<(), HostError> {
        Ok(())
    }
}
