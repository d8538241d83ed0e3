//! The embedder's API for the HTTP client.

use std::sync::Arc;

use toolbay_capabilities::http::recorded::RecordedHttp;
use toolbay_capabilities::http::{HttpClient, OperatorNetworks};
use url::Url;

use crate::error::HostError;
use crate::host::{Host, HostBuilder};

/// The settings of the HTTP client.
#[derive(Debug, Default)]
pub(super) struct HttpSettings {
    tls_roots: Option<Vec<u8>>,
    recorded: Option<Arc<dyn RecordedHttp>>,
}

impl HttpSettings {
    /// Applies the settings to the client of a new host.
    pub(super) fn apply(self, client: &HttpClient) -> Result<(), HostError> {
        if let Some(pem) = &self.tls_roots {
            client.add_tls_roots(pem).map_err(HostError::Tls)?;
        }
        if let Some(recorded) = self.recorded {
            client.set_recorded(recorded);
        }
        Ok(())
    }
}

impl HostBuilder {
    /// Trusts these root certificates for TLS in addition to those of the system. PEM, one or more.
    ///
    /// ```
    /// use std::path::Path;
    /// use toolbay::{Host, HostError, Policy};
    ///
    /// let policy = Policy::deny_all(Path::new("/srv/agent"));
    /// let result = Host::builder(policy).tls_roots_pem("not a certificate").build();
    /// assert!(matches!(result, Err(HostError::Tls(_))));
    /// ```
    #[must_use]
    pub fn tls_roots_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.http.tls_roots = Some(pem.into());
        self
    }

    /// Answers the HTTP requests of plugins and services from a recording, or records the responses of the network. For
    /// tests. The policy is still checked first. Without a recording, requests go to the network.
    #[must_use]
    pub fn recorded_http(mut self, recorded: Arc<dyn RecordedHttp>) -> Self {
        self.http.recorded = Some(recorded);
        self
    }
}

impl Host {
    /// Fetches a URL that the operator wrote, at most `max_bytes`, in one request without redirects. No grant is
    /// checked, so never pass an address that a model or a plugin wrote. A literal IP address may be any; a host name
    /// must resolve to a public address or to one in `[serve.oauth] net_private`.
    ///
    /// # Errors
    /// The reason why the request failed.
    pub async fn fetch(&self, url: &str, max_bytes: u64) -> Result<Vec<u8>, String> {
        let services = self.installed.services();
        let private = services.policy.serve().oauth.as_ref().map(|oauth| oauth.net_private.as_slice());
        let networks = OperatorNetworks { private: private.unwrap_or_default(), table: "serve.oauth" };
        services.http.get(url, max_bytes, networks).await
    }

    /// Sends a body to a collector that the operator named, and returns the status of its response. No grant is checked.
    /// A literal IP address may be any; a host name must resolve to a public address or to one in
    /// `[telemetry] net_private`. The caller bounds the time.
    ///
    /// # Errors
    /// The reason why there is no response.
    pub async fn post_telemetry(
        &self,
        url: &Url,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<u16, String> {
        let services = self.installed.services();
        let private = services.policy.telemetry().map(|telemetry| telemetry.net_private.as_slice());
        let networks = OperatorNetworks { private: private.unwrap_or_default(), table: "telemetry" };
        services.http.post(url, headers, body, networks).await
    }
}
