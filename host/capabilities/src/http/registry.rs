//! Requests to OCI registries: over the same client as MCP servers, with the checks of `OperatorTarget`. The operator
//! wrote the host of the registry, which may be in the networks of `net_private`. A host that the registry names in a
//! redirect or a challenge needs public addresses, or those of `redirect_private`: otherwise an internal registry could
//! make the operator's machine send requests to any internal host.

use ipnet::IpNet;
use secrecy::ExposeSecret as _;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::{ConnectorError, ConnectorResponse};
use toolbay_distribution::credentials::RegistryCredentials;
use toolbay_distribution::registry::{RegistryRequest, RegistryTransport, UrlAuthor};
use toolbay_policy::Policy;
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::name::PluginId;
use toolbay_policy::registry::{RegistryHost, RegistryPolicy};
use toolbay_policy::route::OutboundRoute;

use super::HttpClient;
use super::connect::ConnectionUser;
use super::host_request::LOOKUP_NAME;
use super::mcp_server::to_connector_response;
use super::oauth::protocol_headers;
use super::operator_target::OperatorTarget;
use crate::secrets::SecretStore;

/// The client for a registry cannot be created from the policy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RegistryClientError(String);

/// The HTTP client of one registry.
#[derive(Debug)]
pub struct RegistryHttp {
    client: HttpClient,
    host: RegistryHost,
    net_private: Vec<IpNet>,
    redirect_private: Vec<IpNet>,
    route: OutboundRoute,
    /// The name that lookups count for.
    looks_up: PluginId,
}

impl RegistryHttp {
    /// A client for a registry, with the settings of the policy. The certificates that it names are read with each
    /// connection. Without a proxy in the policy, those of `HTTPS_PROXY` and `NO_PROXY` are used.
    ///
    /// # Errors
    /// The host's own name is not valid.
    pub fn new(policy: &Policy, host: &RegistryHost) -> Result<Self, RegistryClientError> {
        let RegistryPolicy { net_private, redirect_private, route, .. } = policy.registry(host);
        let client = HttpClient::new(policy);
        let looks_up = PluginId::new(LOOKUP_NAME).map_err(|error| RegistryClientError(error.to_string()))?;
        Ok(Self { client, host: host.clone(), net_private, redirect_private, route, looks_up })
    }

    async fn send_checked(&self, request: RegistryRequest) -> Result<ConnectorResponse, ConnectorError> {
        let bad = |why: String| ConnectorError::Denied(why.into());
        let RegistryRequest { method, url, author, headers, body } = request;
        let target = NetTarget::request(method, &url).map_err(bad)?;
        let headers = protocol_headers(&headers).map_err(bad)?;
        let host = &self.host;
        let (key, private) = match author {
            UrlAuthor::Operator => ("net_private", &self.net_private),
            UrlAuthor::Registry => ("redirect_private", &self.redirect_private),
        };
        let table = format!("[registry.\"{host}\"]");
        let named = OperatorTarget {
            target: &target,
            private,
            grants_written: author == UrlAuthor::Operator,
            network_list: (&table, key),
            route: &self.route,
            has_ca: true,
        };
        let (user, content) = (ConnectionUser::Host, (headers, body));
        let sent = self.client.send_to_operator_target(user, &self.looks_up, named, &url, content).await;
        sent.map(to_connector_response)
    }
}

/// The credentials of a registry in a secret of the policy; `None` if the policy names none. Blocks on files and the key
/// ring.
///
/// # Errors
/// The secret has no value.
pub fn registry_secret(
    policy: &Policy,
    host: &RegistryHost,
) -> Result<Option<RegistryCredentials>, RegistryClientError> {
    let Some(name) = policy.registry(host).secret else { return Ok(None) };
    let value = SecretStore::read_one(policy, &name)
        .map_err(|problem| RegistryClientError(format!("the secret `{name}` has no value: {problem}")))?;
    Ok(Some(RegistryCredentials::from_secret(value.expose_secret())))
}

impl RegistryTransport for RegistryHttp {
    fn send(&self, request: RegistryRequest) -> BoxFuture<'_, Result<ConnectorResponse, ConnectorError>> {
        Box::pin(self.send_checked(request))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use toolbay_policy::hint::Hint;

    use super::*;

    /// Sends a request as the client of a registry with these settings.
    async fn send(settings: &str, author: UrlAuthor, url: &str) -> ConnectorError {
        let text = format!("version = 1\n[registry.\"registry.example\"]\n{settings}");
        let policy = Policy::parse(&text, Path::new("/srv"), None).unwrap();
        let host = RegistryHost::parse("registry.example").unwrap();
        let registry = RegistryHttp::new(&policy, &host).unwrap();
        let (method, url) = ("GET", url.parse().unwrap());
        let request = RegistryRequest { method, url, author, headers: Vec::new(), body: bytes::Bytes::new() };
        registry.send(request).await.err().unwrap()
    }

    #[tokio::test]
    async fn an_address_that_a_registry_names_is_not_reached_unless_it_is_public() {
        for url in [
            "https://127.0.0.1:1/",
            "https://10.0.0.1/",
            "https://169.254.169.254/",
            "https://[::1]/",
            "https://localhost/",
        ] {
            // What the operator granted for the registry holds for no other host.
            for settings in ["", "net_private = [\"0.0.0.0/0\", \"::/0\"]"] {
                let error = send(settings, UrlAuthor::Registry, url).await;
                let ConnectorError::Denied(why) = &error else { panic!("{url}: {error}") };
                let lines = why.hint.as_ref().map_or(&[][..], Hint::lines);
                let names_key = lines.iter().any(|line| line.key == "redirect_private");
                assert!(names_key && !why.text.contains("redirect_private"), "{url}: {why:?}");
            }
        }
        // Port 1 has no server, so the request fails after the check.
        let local = "https://127.0.0.1:1/";
        let granted = "redirect_private = [\"127.0.0.0/8\"]";
        for (settings, author) in [(granted, UrlAuthor::Registry), ("", UrlAuthor::Operator)] {
            let error = send(settings, author, local).await;
            assert!(matches!(error, ConnectorError::Failed(_)), "{error}");
        }
    }

    #[tokio::test]
    async fn certificates_that_cannot_be_read_are_named() {
        let settings = "ca = \"absent.pem\"\nnet_private = [\"127.0.0.0/8\"]";
        let error = send(settings, UrlAuthor::Operator, "https://127.0.0.1:1/").await;
        let is_named = matches!(&error, ConnectorError::Failed(why) if why.text.contains("`ca`: `/srv/absent.pem` cannot be read"));
        assert!(is_named, "{error}");
    }
}
