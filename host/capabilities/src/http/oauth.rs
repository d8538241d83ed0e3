//! Requests of the host as an OAuth client of an MCP server. The server names the authorization server, and that names
//! its endpoints, so these URLs are not the operator's: an address that is not public needs the section's `net_private`,
//! even if the URL contains it. Redirects are returned, not followed. A secret of the policy is inserted here, and only
//! for the origins of its section.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use toolbay_core::call::server_connector::{
    ClientSecretPlacement, ClientSecretUse, ConnectorError, ConnectorResponse, OAuthRequest,
};
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::capability::secret;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::mcp_server::HttpServerConfig;
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::PolicyRefusal;
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::HttpClient;
use super::connect::ConnectionUser;
use super::mcp_server::to_connector_response;
use super::operator_target::{MAX_SHOWN, OperatorTarget};
use crate::secrets::SecretStore;

impl HttpClient {
    /// Sends a request of an OAuth flow and returns with the head of the response.
    pub async fn send_oauth(
        &self,
        name: &PluginId,
        endpoint: &HttpServerConfig,
        request: OAuthRequest,
        secrets: &SecretStore,
    ) -> Result<ConnectorResponse, ConnectorError> {
        let bad = |why: String| ConnectorError::Denied(why.into());
        let url = Url::parse(&request.url).map_err(|e| bad(format!("a URL of the OAuth flow: {e}")))?;
        let target = NetTarget::request(request.method, &url).map_err(bad)?;
        let own = Url::parse(&endpoint.url).map_err(|e| bad(format!("`url`: {e}")))?;
        let own = NetTarget::request(request.method, &own).map_err(bad)?;
        let mut headers = protocol_headers(&request.headers).map_err(bad)?;
        let mut body = Zeroizing::new(request.body);
        if let Some(client) = &request.client_secret {
            insert_secret(client, &target, secrets, &mut headers, &mut body)
                .map_err(ConnectorError::Denied)?;
        }
        let table = format!("[mcp.{name}]");
        let named = OperatorTarget {
            target: &target,
            private: &endpoint.net_private,
            grants_written: target.same_origin(&own),
            network_list: (&table, "net_private"),
            route: &endpoint.route,
            has_ca: true,
        };
        let user = ConnectionUser::Server(name.clone());
        let content = (headers, Bytes::from(std::mem::take(&mut *body)));
        let sent = self.send_to_operator_target(user, name, named, &url, content).await;
        sent.map(to_connector_response)
    }
}

/// The headers of a request.
pub(super) fn protocol_headers(headers: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = || format!("the header `{}` cannot be sent", one_line(name, MAX_SHOWN));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?;
        value.set_sensitive(name == AUTHORIZATION);
        map.insert(name, value);
    }
    Ok(map)
}

/// Authenticates the client with a secret of the policy (RFC 6749, section 2.3.1).
fn insert_secret(
    client: &ClientSecretUse,
    target: &NetTarget,
    secrets: &SecretStore,
    headers: &mut HeaderMap,
    body: &mut Zeroizing<Vec<u8>>,
) -> Result<(), PolicyRefusal> {
    let name = &client.secret;
    let rule = secrets.rule(name)?;
    if !rule.may_be_sent_to(target) {
        let origin = target.origin();
        let known: Vec<String> = rule
            .origins
            .iter()
            .map(|rule| toolbay_policy::rule::GrantRule::show(rule, "/".as_ref()))
            .collect();
        let hint = secret::add_hint(name, "origins", &known, &origin);
        let text = format!("the secret `{name}` may not be sent to `{origin}`");
        return Err(PolicyRefusal::new(text, hint));
    }
    let escaped =
        |text: &str| Zeroizing::new(form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>());
    let value = escaped(secrets.value(name)?);
    match client.placement {
        ClientSecretPlacement::Header => {
            let pair = Zeroizing::new(format!("{}:{}", *escaped(&client.client_id), *value));
            let line = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
            let mut line =
                HeaderValue::from_str(&line).map_err(|_| "the client secret is no header value")?;
            line.set_sensitive(true);
            headers.insert(AUTHORIZATION, line);
        }
        ClientSecretPlacement::Form => {
            if !body.is_empty() {
                body.push(b'&');
            }
            body.extend_from_slice(b"client_secret=");
            body.extend_from_slice(value.as_bytes());
        }
    }
    Ok(())
}
