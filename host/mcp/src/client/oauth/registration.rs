//! The identity of the host at an authorization server, in the order of the MCP specification: a client of the policy,
//! a client ID metadata document, a client that was registered before, or a new one (RFC 7591).

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};
use toolbay_core::call::server_connector::OAuthRequest;
use toolbay_policy::mcp_server::{OAuthClientSettings, RegisteredClient, TokenEndpointAuthMethod};
use toolbay_policy::refusal::PolicyRefusal;

use super::OAuthError;
use super::challenge::join_scopes;
use super::credentials::{ClientAuthMethod, ClientSecret, OAuthClient, SecretText, now};
use super::discovery::ServerMetadata;
use super::http::{FlowClient, parse_json, parse_url};
use super::member;
use super::token::error_text;

/// Ways to authenticate a client with a secret. Where `private_key_jwt` gets its place.
///
/// Preferred first: RFC 6749, section 2.3.1, prefers `client_secret_basic`, and an operator registers a client for it as
/// a rule. A client that the host registers states its way, and servers disagree how `client_secret_basic` is encoded.
const SECRET_METHODS: [ClientAuthMethod; 2] = [ClientAuthMethod::Basic, ClientAuthMethod::Post];
/// Longest client id or secret that an authorization server may issue, in bytes.
const MAX_ISSUED: usize = 4096;

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    #[serde(default, deserialize_with = "member::text")]
    client_secret: Option<String>,
    #[serde(default, deserialize_with = "member::number")]
    client_secret_expires_at: Option<u64>,
    #[serde(default, deserialize_with = "member::text")]
    token_endpoint_auth_method: Option<String>,
}

/// The uses for which a client is registered.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientUse<'a> {
    pub(super) redirect_uri: &'a str,
    /// The scopes that it will request. Some servers grant a client no others than those of its registration.
    pub(super) scopes: &'a BTreeSet<String>,
}

/// Returns the client to use. `known` is the client that was used at the same issuer before.
pub(super) async fn obtain_client(
    flow: &FlowClient,
    settings: &OAuthClientSettings,
    server: &ServerMetadata,
    known: Option<OAuthClient>,
    intended: ClientUse<'_>,
) -> Result<OAuthClient, OAuthError> {
    if let Some(client) = &settings.client {
        return of_policy(client, server);
    }
    if let Some(url) =
        settings.client_metadata_url.as_ref().filter(|_| server.client_id_metadata_document_supported)
    {
        return Ok(public_client(url));
    }
    let valid = |client: &OAuthClient| {
        client.redirect_uri.as_deref() == Some(intended.redirect_uri)
            && client.expires_at.is_none_or(|end| end > now())
            && client.scopes.as_ref().is_none_or(|registered| intended.scopes.is_subset(registered))
    };
    match known.filter(valid) {
        Some(client) => Ok(client),
        None => register(flow, server, intended).await,
    }
}

fn public_client(id: &str) -> OAuthClient {
    OAuthClient {
        id: id.to_owned(),
        secret: ClientSecret::Absent,
        method: ClientAuthMethod::Public,
        redirect_uri: None,
        scopes: None,
        expires_at: None,
    }
}

fn of_policy(client: &RegisteredClient, server: &ServerMetadata) -> Result<OAuthClient, OAuthError> {
    let mut own = public_client(&client.id);
    if let Some(secret) = &client.secret {
        own.secret = ClientSecret::Policy(secret.clone());
        own.method = match client.auth_method {
            Some(TokenEndpointAuthMethod::Basic) => ClientAuthMethod::Basic,
            Some(TokenEndpointAuthMethod::Post) => ClientAuthMethod::Post,
            // RFC 8414, section 2: without a list, only `client_secret_basic` is known to be supported.
            None => supported(server, &SECRET_METHODS, ClientAuthMethod::Basic)?,
        };
    }
    Ok(own)
}

/// A client of the policy with the other way to send its secret, for a server that did not accept the first. Nobody
/// said which one the client is registered for. `None` if the policy says it, or the server does not support the other.
pub(super) fn with_other_method(
    client: &OAuthClient,
    settings: &OAuthClientSettings,
    server: &ServerMetadata,
) -> Option<OAuthClient> {
    let registered = settings.client.as_ref().filter(|one| one.auth_method.is_none())?;
    registered.secret.as_ref()?;
    let other = SECRET_METHODS.into_iter().find(|method| *method != client.method)?;
    let method = supported(server, &[other], other).ok()?;
    Some(OAuthClient { method, ..client.clone() })
}

/// The first of some methods that the server supports. `otherwise` is for a server without a list.
fn supported(
    server: &ServerMetadata,
    methods: &[ClientAuthMethod],
    otherwise: ClientAuthMethod,
) -> Result<ClientAuthMethod, OAuthError> {
    let Some(list) = &server.token_endpoint_auth_methods_supported else { return Ok(otherwise) };
    methods.iter().find(|method| list.iter().any(|one| one == method.name())).copied().ok_or_else(|| {
        let names: Vec<&str> = methods.iter().map(|method| method.name()).collect();
        OAuthError::new(format!(
            "the authorization server supports none of these ways to authenticate a client: {}",
            names.join(", ")
        ))
    })
}

async fn register(
    flow: &FlowClient,
    server: &ServerMetadata,
    intended: ClientUse<'_>,
) -> Result<OAuthClient, OAuthError> {
    let Some(endpoint) = &server.registration_endpoint else {
        let hint = format!(
            "register one there, and write in the policy: [mcp.{}.oauth] client_id = \"…\", issuer = {:?}",
            flow.name,
            flow.show(&server.issuer)
        );
        let text = "the authorization server registers no clients itself";
        return Err(OAuthError::new(PolicyRefusal::new(text, hint)));
    };
    let url = parse_url("the registration endpoint", endpoint)?;
    let [basic, post] = SECRET_METHODS;
    let method = supported(server, &[ClientAuthMethod::Public, post, basic], ClientAuthMethod::Public)?;
    let mut body = json!({
        "client_name": "Toolbay",
        "redirect_uris": [intended.redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method.name(),
        "application_type": "native",
    });
    if let Some(members) = body.as_object_mut().filter(|_| !intended.scopes.is_empty()) {
        members.insert("scope".to_owned(), Value::String(join_scopes(intended.scopes)));
    }
    let request = OAuthRequest {
        method: "POST",
        url: url.to_string(),
        headers: vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("content-type".to_owned(), "application/json".to_owned()),
        ],
        body: body.to_string().into_bytes(),
        client_secret: None,
    };
    let response = flow.send(request).await?;
    if !matches!(response.status, 200 | 201) {
        let why = error_text(flow, &response);
        return Err(OAuthError::new(format!("the authorization server did not register the client: {why}")));
    }
    accept(parse_json(&response.body, &flow.show(url.as_str()))?, method, intended)
}

fn accept(
    issued: RegistrationResponse,
    asked: ClientAuthMethod,
    intended: ClientUse<'_>,
) -> Result<OAuthClient, OAuthError> {
    let sound = |text: &str| {
        (1..=MAX_ISSUED).contains(&text.len()) && text.bytes().all(|b| (b' '..=b'~').contains(&b))
    };
    let refuse = |why: &str| Err(OAuthError::new(format!("the registration cannot be used: {why}")));
    if !sound(&issued.client_id) {
        return refuse("its client id is empty, too long or not ASCII");
    }
    let method = match issued.token_endpoint_auth_method.as_deref().map(ClientAuthMethod::from_name) {
        None => asked,
        Some(Some(method)) => method,
        Some(None) => return refuse("its way to authenticate the client is not supported"),
    };
    let secret = match (method, issued.client_secret.filter(|secret| sound(secret))) {
        (ClientAuthMethod::Public, _) => ClientSecret::Absent,
        (ClientAuthMethod::Basic | ClientAuthMethod::Post, Some(secret)) => {
            ClientSecret::Issued(SecretText::new(secret))
        }
        (ClientAuthMethod::Basic | ClientAuthMethod::Post, None) => return refuse("it has no client secret"),
    };
    Ok(OAuthClient {
        id: issued.client_id,
        secret,
        method,
        redirect_uri: Some(intended.redirect_uri.to_owned()),
        scopes: Some(intended.scopes.clone()),
        // 0: it does not expire (RFC 7591, section 3.2.1).
        expires_at: issued.client_secret_expires_at.filter(|end| *end != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(text: &str) -> Result<OAuthClient, OAuthError> {
        let intended = ClientUse { redirect_uri: "http://127.0.0.1:1/callback", scopes: &BTreeSet::new() };
        accept(serde_json::from_str(text).unwrap(), ClientAuthMethod::Public, intended)
    }

    #[test]
    fn a_registration_without_what_it_needs_is_refused() {
        let long = format!("{{\"client_id\": \"{}\"}}", "x".repeat(MAX_ISSUED + 1));
        for (text, part) in [
            ("{\"client_id\": \"\"}", "client id"),
            (long.as_str(), "client id"),
            ("{\"client_id\": \"a\\nb\"}", "client id"),
            ("{\"client_id\": \"a\", \"token_endpoint_auth_method\": \"private_key_jwt\"}", "not supported"),
            (
                "{\"client_id\": \"a\", \"token_endpoint_auth_method\": \"client_secret_post\"}",
                "no client secret",
            ),
        ] {
            let why = issued(text).unwrap_err().to_string();
            assert!(why.contains(part), "{text}: {why}");
        }
        let text = "{\"client_id\": \"a\", \"client_secret\": \"s\", \"client_secret_expires_at\": 0}";
        let client = issued(text).unwrap();
        assert_eq!(
            (client.secret, client.expires_at),
            (ClientSecret::Absent, None),
            "a public client was requested"
        );
    }
}
