//! Requests to OCI registries: over the same client as MCP servers, with the checks of [`OperatorTarget`]. The operator
//! wrote the host of the registry; a host that it names in a redirect or a challenge needs public addresses, or the
//! section's `net_private`.

use http_body_util::{BodyExt as _, Full};
use ipnet::IpNet;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::{ConnectorError, ConnectorResponse};
use toolbay_distribution::registry::{RegistryRequest, RegistryTransport, UrlAuthor};
use toolbay_policy::Policy;
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::name::PluginId;
use toolbay_policy::registry::RegistryHost;

use super::HttpClient;
use super::connect::{ConnectionUser, OutboundBody};
use super::dispatch::build_request;
use super::host_get::LOOKUP_NAME;
use super::mcp_server::{to_connector_error, to_connector_response};
use super::oauth::protocol_headers;
use super::operator_target::OperatorTarget;
use crate::error::HostError;

/// The HTTP client of one registry.
#[derive(Debug)]
pub struct RegistryHttp {
    client: HttpClient,
    host: RegistryHost,
    private: Vec<IpNet>,
    /// The name that lookups count for.
    looks_up: PluginId,
}

impl RegistryHttp {
    /// A client for a registry, with the settings of the policy. `ca` are the certificates that the policy names, in PEM.
    ///
    /// # Errors
    /// The certificates cannot be read.
    pub fn new(policy: &Policy, host: &RegistryHost, ca: Option<&[u8]>) -> Result<Self, HostError> {
        // Its own client: only this registry is trusted by its certificates.
        let client = HttpClient::new(policy);
        if let Some(pem) = ca {
            client.add_tls_roots(pem).map_err(HostError::Tls)?;
        }
        let looks_up = PluginId::new(LOOKUP_NAME).map_err(|error| HostError::Registry(error.to_string()))?;
        Ok(Self { client, host: host.clone(), private: policy.registry(host).net_private, looks_up })
    }

    async fn send_checked(&self, request: RegistryRequest) -> Result<ConnectorResponse, ConnectorError> {
        let bad = ConnectorError::Denied;
        let RegistryRequest { method, url, author, headers, body } = request;
        let target = NetTarget::request(method, &url).map_err(bad)?;
        let headers = protocol_headers(&headers).map_err(bad)?;
        let body: OutboundBody = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let request = build_request(&target, &url, headers, body).map_err(to_connector_error)?;
        let host = &self.host;
        let hint =
            |net: IpNet| format!("write in the policy: [registry.\"{host}\"] net_private = [\"{net}\"]");
        let named = OperatorTarget {
            target: &target,
            private: &self.private,
            grants_written: author == UrlAuthor::Operator,
            hint: &hint,
        };
        let sent =
            self.client.send_to_operator_target(ConnectionUser::Host, &self.looks_up, named, request).await;
        to_connector_response(sent.map_err(to_connector_error)?)
    }
}

impl RegistryTransport for RegistryHttp {
    fn send(&self, request: RegistryRequest) -> BoxFuture<'_, Result<ConnectorResponse, ConnectorError>> {
        Box::pin(self.send_checked(request))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[tokio::test]
    async fn an_address_that_a_registry_names_is_not_reached_unless_it_is_public() {
        let policy = Policy::deny_all(Path::new("/srv"));
        let host = RegistryHost::parse("registry.example").unwrap();
        let registry = RegistryHttp::new(&policy, &host, None).unwrap();
        for url in [
            "https://127.0.0.1:1/",
            "https://10.0.0.1/",
            "https://169.254.169.254/",
            "https://[::1]/",
            "https://localhost/",
        ] {
            let (method, author) = ("GET", UrlAuthor::Registry);
            let url = url.parse().unwrap();
            let request =
                RegistryRequest { method, url, author, headers: Vec::new(), body: bytes::Bytes::new() };
            let error = registry.send(request.clone()).await.unwrap_err();
            assert!(matches!(&error, ConnectorError::Denied(why) if why.contains("[registry.")), "{error}");
        }
        assert!(RegistryHttp::new(&policy, &host, Some(b"nonsense")).is_err());
    }
}
