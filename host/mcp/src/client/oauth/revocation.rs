//! Withdraws tokens at the authorization server (RFC 7009). The refresh token first: a server may withdraw the access
//! tokens of its grant with it.

use url::{Url, form_urlencoded};

use super::OAuthError;
use super::credentials::{ClientAuthMethod, Credentials, OAuthClient, SecretText};
use super::discovery;
use super::http::{FlowClient, FlowResponse, parse_url};
use super::token::{error_text, form_request};

/// What happened to the tokens at a logout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenRevocation {
    /// No tokens were saved.
    NoTokens,
    /// The authorization server, with this issuer, withdrew them.
    Revoked(String),
    /// The authorization server, with this issuer, withdraws none. They are valid until they expire.
    Unsupported(String),
    /// The reason why they were not withdrawn. They are valid until they expire.
    Failed(OAuthError),
}

/// Withdraws the tokens of some credentials.
pub(super) async fn revoke(flow: &FlowClient, of: &Credentials) -> TokenRevocation {
    match try_revoke(flow, of).await {
        Ok(true) => TokenRevocation::Revoked(of.issuer.clone()),
        Ok(false) => TokenRevocation::Unsupported(of.issuer.clone()),
        Err(error) => TokenRevocation::Failed(error),
    }
}

/// Returns whether the server withdraws tokens.
async fn try_revoke(flow: &FlowClient, of: &Credentials) -> Result<bool, OAuthError> {
    let server = discovery::find_server(flow, &of.issuer).await?;
    let Some(endpoint) = server.revocation_endpoint else { return Ok(false) };
    flow.conceal(of.secrets());
    let url = parse_url("the revocation endpoint", &endpoint)?;
    let refresh = of.tokens.refresh.as_ref().map(|token| ("refresh_token", token));
    for (hint, token) in refresh.into_iter().chain([("access_token", &of.tokens.access)]) {
        let response = withdraw(flow, &url, &of.client, (hint, token)).await?;
        if !matches!(response.status, 200..=299) {
            let (what, why) = (hint.replace('_', " "), error_text(flow, &response));
            return Err(OAuthError::new(format!(
                "the authorization server did not withdraw the {what}: {why}"
            )));
        }
    }
    Ok(true)
}

/// Withdraws one token. A server that refuses the form gets it once more with an empty client secret, which counts as
/// absent (RFC 6749, section 3.2): servers of the MCP Python SDK want the parameter from every client.
async fn withdraw(
    flow: &FlowClient,
    url: &Url,
    client: &OAuthClient,
    (hint, token): (&str, &SecretText),
) -> Result<FlowResponse, OAuthError> {
    let response = flow.send(form_request(url, revocation_form(token, hint), client)).await?;
    if response.status != 400 || client.method == ClientAuthMethod::Post {
        return Ok(response);
    }
    let mut form = revocation_form(token, hint);
    form.append_pair("client_secret", "");
    flow.send(form_request(url, form, client)).await
}

fn revocation_form<'f>(token: &SecretText, hint: &str) -> form_urlencoded::Serializer<'f, String> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("token", token.expose()).append_pair("token_type_hint", hint);
    form
}
