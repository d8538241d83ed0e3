//! What the host is at an authorization server, in the order of the MCP specification: a client of the policy, a client
//! ID metadata document, a client that was registered before, or a new one (RFC 7591).

use serde::Deserialize;
use serde_json::json;
use toolbay_core::call::server_connector::OAuthRequest;
use toolbay_policy::mcp_server::{OAuthClientSettings, RegisteredClient};

use super::OAuthError;
use super::credentials::{ClientAuthMethod, ClientSecret, OAuthClient, SecretText, now};
use super::discovery::ServerMetadata;
use super::http::{FlowClient, parse_json, parse_url};
use super::token::error_text;

/// Longest client id or secret that an authorization server may issue, in bytes.
const MAX_ISSUED: usize = 4096;

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<String>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

/// Returns the client to use. `known` is the client that was used at the same issuer before.
pub(super) async fn obtain_client(
    flow: &FlowClient,
    settings: &OAuthClientSettings,
    server: &ServerMetadata,
    known: Option<OAuthClient>,
    redirect_uri: &str,
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
        client.redirect_uri.as_deref() == Some(redirect_uri)
            && client.expires_at.is_none_or(|end| end > now())
    };
    match known.filter(valid) {
        Some(client) => Ok(client),
        None => register(flow, server, redirect_uri).await,
    }
}

fn public_client(id: &str) -> OAuthClient {
    OAuthClient {
        id: id.to_owned(),
        secret: ClientSecret::Absent,
        method: ClientAuthMethod::Public,
        redirect_uri: None,
        expires_at: None,
    }
}

fn of_policy(client: &RegisteredClient, server: &ServerMetadata) -> Result<OAuthClient, OAuthError> {
    let mut own = public_client(&client.id);
    if let Some(secret) = &client.secret {
        own.secret = ClientSecret::Policy(secret.clone());
        // RFC 8414, section 2: without a list, only `client_secret_basic` is known to be supported.
        own.method =
            supported(server, &[ClientAuthMethod::Basic, ClientAuthMethod::Post], ClientAuthMethod::Basic)?;
    }
    Ok(own)
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
    redirect_uri: &str,
) -> Result<OAuthClient, OAuthError> {
    let Some(endpoint) = &server.registration_endpoint else {
        return Err(OAuthError::new(format!(
            "the authorization server registers no clients itself: register one there, and write in the policy: \
             [mcp.{}.oauth] client_id = \"…\", issuer = {:?}",
            flow.name,
            flow.show(&server.issuer)
        )));
    };
    let url = parse_url("the registration endpoint", endpoint)?;
    let all = [ClientAuthMethod::Public, ClientAuthMethod::Basic, ClientAuthMethod::Post];
    let method = supported(server, &all, ClientAuthMethod::Public)?;
    let body = json!({
        "client_name": "Toolbay",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method.name(),
        "application_type": "native",
    });
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
    accept(parse_json(&response.body, &flow.show(url.as_str()))?, method, redirect_uri)
}

fn accept(
    issued: RegistrationResponse,
    asked: ClientAuthMethod,
    redirect_uri: &str,
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
        redirect_uri: Some(redirect_uri.to_owned()),
        // 0: it does not expire (RFC 7591, section 3.2.1).
        expires_at: issued.client_secret_expires_at.filter(|end| *end != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(text: &str) -> Result<OAuthClient, OAuthError> {
        accept(serde_json::from_str(text).unwrap(), ClientAuthMethod::Public, "http://127.0.0.1:1/callback")
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
