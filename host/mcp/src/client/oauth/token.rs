//! Requests to the token endpoint (RFC 6749, sections 4.1.3, 5 and 6), with the resource (RFC 8707).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use toolbay_core::call::server_connector::{ClientSecretPlacement, ClientSecretUse, OAuthRequest};
use url::form_urlencoded;
use zeroize::Zeroizing;

use super::OAuthError;
use super::challenge::parse_scopes;
use super::credentials::{ClientAuthMethod, ClientSecret, OAuthClient, SecretText, Tokens, now};
use super::http::{FlowClient, FlowResponse, parse_json, parse_url};

/// Longest token, in bytes. It must fit into a header.
const MAX_TOKEN: usize = 16 << 10;
/// Longest lifetime of a token that is believed, in seconds: a year.
const MAX_LIFETIME: u64 = 366 * 24 * 3600;

/// What a client presents for tokens.
pub(super) enum TokenGrant<'a> {
    /// The answer of an authorization.
    Code { code: &'a str, verifier: &'a str, redirect_uri: &'a str },
    /// A refresh token.
    Refresh(&'a SecretText),
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
    scope: Option<String>,
}

#[derive(Deserialize)]
struct ErrorResponse {
    error: String,
    error_description: Option<String>,
}

/// Requests tokens. Returns them with the granted scopes, if the server names them.
pub(super) async fn request_tokens(
    flow: &FlowClient,
    endpoint: &str,
    client: &OAuthClient,
    grant: &TokenGrant<'_>,
    resource: &str,
) -> Result<(Tokens, Option<BTreeSet<String>>), OAuthError> {
    let request = build_request(endpoint, client, grant, resource)?;
    let shown = flow.show(&request.url);
    let response = flow.send(request).await?;
    let body = Zeroizing::new(response.body);
    if response.status != 200 {
        let why = error_text(flow, &FlowResponse { status: response.status, body: body.to_vec() });
        return Err(OAuthError::new(format!("the authorization server gave no token: {why}")));
    }
    accept(parse_json(&body, &shown)?)
}

fn build_request(
    endpoint: &str,
    client: &OAuthClient,
    grant: &TokenGrant<'_>,
    resource: &str,
) -> Result<OAuthRequest, OAuthError> {
    let url = parse_url("the token endpoint", endpoint)?;
    let mut form = form_urlencoded::Serializer::new(String::new());
    match grant {
        TokenGrant::Code { code, verifier, redirect_uri } => {
            form.append_pair("grant_type", "authorization_code");
            form.append_pair("code", code);
            form.append_pair("code_verifier", verifier);
            form.append_pair("redirect_uri", redirect_uri);
        }
        TokenGrant::Refresh(token) => {
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("refresh_token", token.expose());
        }
    }
    form.append_pair("resource", resource);
    let mut headers = vec![
        ("accept".to_owned(), "application/json".to_owned()),
        ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
    ];
    let client_secret = authenticate(client, &mut form, &mut headers);
    let body = form.finish().into_bytes();
    Ok(OAuthRequest { method: "POST", url: url.to_string(), headers, body, client_secret })
}

/// Adds what authenticates the client (RFC 6749, section 2.3.1).
fn authenticate(
    client: &OAuthClient,
    form: &mut form_urlencoded::Serializer<'_, String>,
    headers: &mut Vec<(String, String)>,
) -> Option<ClientSecretUse> {
    if client.method != ClientAuthMethod::Basic {
        form.append_pair("client_id", &client.id);
    }
    match (&client.secret, client.method) {
        (ClientSecret::Absent, _) | (_, ClientAuthMethod::Public) => {}
        (ClientSecret::Issued(secret), ClientAuthMethod::Post) => {
            form.append_pair("client_secret", secret.expose());
        }
        (ClientSecret::Issued(secret), ClientAuthMethod::Basic) => {
            let escaped = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = Zeroizing::new(format!("{}:{}", escaped(&client.id), escaped(secret.expose())));
            headers.push(("authorization".to_owned(), format!("Basic {}", STANDARD.encode(pair.as_bytes()))));
        }
        (ClientSecret::Policy(name), method) => {
            let placement = match method {
                ClientAuthMethod::Post => ClientSecretPlacement::Form,
                ClientAuthMethod::Basic | ClientAuthMethod::Public => ClientSecretPlacement::Header,
            };
            return Some(ClientSecretUse { client_id: client.id.clone(), secret: name.clone(), placement });
        }
    }
    None
}

fn accept(response: TokenResponse) -> Result<(Tokens, Option<BTreeSet<String>>), OAuthError> {
    let sound = |token: &String| {
        (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic())
    };
    let refuse = |why: &str| Err(OAuthError::new(format!("the token cannot be used: {why}")));
    if !response.token_type.eq_ignore_ascii_case("bearer") {
        return refuse("it is no bearer token");
    }
    if !sound(&response.access_token) || response.refresh_token.as_ref().is_some_and(|token| !sound(token)) {
        return refuse("it is empty, too long or not ASCII");
    }
    let lifetime = response.expires_in.as_ref().and_then(seconds);
    let tokens = Tokens {
        access: SecretText::new(response.access_token),
        refresh: response.refresh_token.map(SecretText::new),
        expires_at: lifetime.map(|seconds| now() + seconds.min(MAX_LIFETIME)),
    };
    Ok((tokens, response.scope.as_deref().map(parse_scopes)))
}

/// Some servers write the number as a text.
fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The error of a server, for people: its code and description, bounded and on one line.
pub(super) fn error_text(flow: &FlowClient, response: &FlowResponse) -> String {
    match serde_json::from_slice::<ErrorResponse>(&response.body) {
        Ok(ErrorResponse { error, error_description: Some(more) }) => {
            format!("{}: {}", flow.show(&error), flow.show(&more))
        }
        Ok(ErrorResponse { error, error_description: None }) => flow.show(&error),
        Err(_) => format!("status {}", response.status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(text: &str) -> Result<(Tokens, Option<BTreeSet<String>>), OAuthError> {
        accept(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn a_token_is_a_bearer_token_that_fits_into_a_header() {
        let long =
            format!("{{\"access_token\": \"{}\", \"token_type\": \"Bearer\"}}", "x".repeat(MAX_TOKEN + 1));
        for (text, part) in [
            ("{\"access_token\": \"a\", \"token_type\": \"DPoP\"}", "bearer"),
            ("{\"access_token\": \"\", \"token_type\": \"Bearer\"}", "empty"),
            ("{\"access_token\": \"a\\r\\nx: y\", \"token_type\": \"Bearer\"}", "ASCII"),
            ("{\"access_token\": \"a\", \"token_type\": \"bearer\", \"refresh_token\": \"a b\"}", "ASCII"),
            (long.as_str(), "too long"),
        ] {
            let why = accepted(text).unwrap_err().to_string();
            assert!(why.contains(part) && !why.contains("xxx"), "{text}: {why}");
        }
    }

    #[test]
    fn a_lifetime_is_bounded_and_may_be_a_text() {
        let ends = |lifetime: &str| {
            let text = format!(
                "{{\"access_token\": \"a\", \"token_type\": \"bearer\", \"expires_in\": {lifetime}}}"
            );
            accepted(&text).unwrap().0.expires_at
        };
        assert_eq!((ends("null"), ends("-1"), ends("\"x\"")), (None, None, None));
        assert!(ends("\"3600\"").is_some_and(|end| (now() + 3590..=now() + 3600).contains(&end)));
        assert!(ends(&u64::MAX.to_string()).is_some_and(|end| end <= now() + MAX_LIFETIME));
    }
}
