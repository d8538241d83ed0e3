//! Requests to the token endpoint (RFC 6749, sections 4.1.3, 5 and 6), with the resource (RFC 8707), and what
//! authenticates the client in them. Further grants, such as client credentials, and DPoP proofs get their place here.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use toolbay_core::call::server_connector::{ClientSecretPlacement, ClientSecretUse, OAuthRequest};
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::OAuthError;
use super::challenge::parse_scopes;
use super::credentials::{ClientAuthMethod, ClientSecret, OAuthClient, SecretText, Tokens, now};
use super::http::{FlowClient, FlowResponse, parse_json, parse_url};
use super::member;

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

/// Why a request brought no tokens.
#[derive(Debug)]
pub(super) enum TokenError {
    /// The server does not know the client.
    UnknownClient(OAuthError),
    /// The server refused the request, and would refuse it again.
    Refused(OAuthError),
    /// No usable answer came. A retry may succeed.
    Failed(OAuthError),
}

impl From<OAuthError> for TokenError {
    fn from(error: OAuthError) -> Self {
        Self::Failed(error)
    }
}

impl From<TokenError> for OAuthError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::UnknownClient(error) | TokenError::Refused(error) | TokenError::Failed(error) => {
                error
            }
        }
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    #[serde(default, deserialize_with = "member::text")]
    token_type: Option<String>,
    #[serde(default, deserialize_with = "member::number")]
    expires_in: Option<u64>,
    #[serde(default, deserialize_with = "member::text")]
    refresh_token: Option<String>,
    #[serde(default, deserialize_with = "member::text")]
    scope: Option<String>,
}

#[derive(Deserialize)]
struct ErrorResponse {
    error: String,
    #[serde(default, deserialize_with = "member::text")]
    error_description: Option<String>,
}

/// Requests tokens. Returns them with the granted scopes, if the server names them.
pub(super) async fn request_tokens(
    flow: &FlowClient,
    endpoint: &str,
    client: &OAuthClient,
    grant: &TokenGrant<'_>,
    resource: &str,
) -> Result<(Tokens, Option<BTreeSet<String>>), TokenError> {
    let request = build_request(endpoint, client, grant, resource)?;
    let shown = flow.show(&request.url);
    let FlowResponse { status, body } = flow.send(request).await?;
    let body = Zeroizing::new(body);
    let refused = serde_json::from_slice::<ErrorResponse>(&body).ok();
    // Some servers send errors with status 200.
    if matches!(status, 200 | 201) && refused.is_none() {
        return Ok(accept(parse_json(&body, &shown)?)?);
    }
    let code = refused.as_ref().map(|refused| refused.error.clone());
    let why = describe_error(flow, status, refused);
    let no_token = format!("the authorization server gave no token: {why}");
    let is_about_client = match code.as_deref() {
        Some("invalid_client" | "unauthorized_client") => true,
        Some("invalid_grant" | "server_error" | "temporarily_unavailable") => false,
        // RFC 6749, section 5.2: a 401 is. Some servers have codes of their own for it.
        _ => status == 401,
    };
    if is_about_client {
        let method = client.method.name();
        let error = OAuthError::new(format!("{no_token} (the client authenticated with `{method}`)"));
        return Err(TokenError::UnknownClient(error));
    }
    let error = OAuthError::new(no_token);
    Err(match code.as_deref() {
        // RFC 6749, section 4.1.2.1.
        Some("server_error" | "temporarily_unavailable") => TokenError::Failed(error),
        Some(_) if status < 400 => TokenError::Refused(error),
        // 408, 425 and 429: later.
        _ if matches!(status, 400..=499) && !matches!(status, 408 | 425 | 429) => TokenError::Refused(error),
        _ => TokenError::Failed(error),
    })
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
    Ok(form_request(&url, form, client))
}

/// A request of a client with a form.
pub(super) fn form_request(
    url: &Url,
    mut form: form_urlencoded::Serializer<'_, String>,
    client: &OAuthClient,
) -> OAuthRequest {
    let mut headers = vec![
        ("accept".to_owned(), "application/json".to_owned()),
        ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
    ];
    let client_secret = authenticate(client, &mut form, &mut headers);
    let body = form.finish().into_bytes();
    OAuthRequest { method: "POST", url: url.to_string(), headers, body, client_secret }
}

/// Adds what authenticates the client (RFC 6749, section 2.3.1). The id is always in the form, too: servers that keep
/// the method of each client look for it there.
fn authenticate(
    client: &OAuthClient,
    form: &mut form_urlencoded::Serializer<'_, String>,
    headers: &mut Vec<(String, String)>,
) -> Option<ClientSecretUse> {
    form.append_pair("client_id", &client.id);
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
    let is_sound = |token: &String| {
        (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic())
    };
    let refuse = |why: &str| Err(OAuthError::new(format!("the token cannot be used: {why}")));
    // Absent: the request was for a bearer token, and another one would not work.
    if response.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return refuse("it is no bearer token");
    }
    if !is_sound(&response.access_token) {
        return refuse("it is empty, too long or not ASCII");
    }
    let lifetime = response.expires_in.map(|seconds| seconds.min(MAX_LIFETIME));
    let tokens = Tokens {
        access: SecretText::new(response.access_token),
        // One that cannot be sent back is none: the access token is good without it.
        refresh: response.refresh_token.filter(is_sound).map(SecretText::new),
        expires_at: lifetime.map(|seconds| now() + seconds),
        lifetime,
    };
    Ok((tokens, response.scope.as_deref().map(parse_scopes)))
}

/// The error of a server, for people: its code and description, bounded and on one line.
pub(super) fn error_text(flow: &FlowClient, response: &FlowResponse) -> String {
    describe_error(flow, response.status, serde_json::from_slice(&response.body).ok())
}

fn describe_error(flow: &FlowClient, status: u16, error: Option<ErrorResponse>) -> String {
    match error {
        Some(ErrorResponse { error, error_description: Some(more) }) => {
            format!("{}: {}", flow.show(&error), flow.show(&more))
        }
        Some(ErrorResponse { error, error_description: None }) => flow.show(&error),
        None => format!("status {status}"),
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
            (long.as_str(), "too long"),
        ] {
            let why = accepted(text).unwrap_err().to_string();
            assert!(why.contains(part) && !why.contains("xxx"), "{text}: {why}");
        }
    }

    #[test]
    fn an_odd_member_costs_only_itself() {
        for (text, refresh) in [
            (r#"{"access_token": "a", "refresh_token": "r"}"#, Some("r")),
            (r#"{"access_token": "a", "token_type": null, "refresh_token": ""}"#, None),
            (r#"{"access_token": "a", "token_type": "BEARER", "refresh_token": "a b"}"#, None),
            (r#"{"access_token": "a", "token_type": "bearer", "refresh_token": null, "scope": null}"#, None),
            (r#"{"access_token": "a", "token_type": "bearer", "scope": ["x"], "expires_in": {}}"#, None),
        ] {
            let (tokens, scopes) = accepted(text).unwrap();
            assert_eq!(tokens.refresh.as_ref().map(SecretText::expose), refresh, "{text}");
            assert_eq!((tokens.expires_at, scopes), (None, None), "{text}");
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

    #[test]
    fn a_token_is_renewed_early_by_a_share_of_its_life() {
        // The lifetime, how many seconds are left of it, and whether the token is renewed.
        for (lifetime, left, is_expiring) in [
            (Some(20), 20, false),
            (Some(20), 8, false),
            (Some(20), 4, true),
            (Some(3), 3, false),
            (Some(3600), 60, false),
            (Some(3600), 29, true),
            (Some(0), 0, true),
            // Saved by an earlier version.
            (None, 29, true),
        ] {
            let access = SecretText::new("a".to_owned());
            let tokens = Tokens { access, refresh: None, expires_at: Some(now() + left), lifetime };
            assert_eq!(tokens.is_expiring(), is_expiring, "{lifetime:?} {left}");
        }
    }
}
