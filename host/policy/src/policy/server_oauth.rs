//! The format of `[mcp.NAME.oauth]`: how the host, as an OAuth client, gets tokens for a server at a URL.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::excerpt::one_line;
use crate::mcp_server::{OAuthClientSettings, RegisteredClient, TokenEndpointAuthMethod};
use crate::problem::PolicyProblem;
use crate::url_parts::has_credentials;

/// Most scopes of a section. Authorization servers know about a dozen.
const MAX_SCOPES: usize = 64;
/// Longest scope, identifier or URL of a section, in bytes.
const MAX_TEXT: usize = 2048;
/// Longest text of the policy in a message, in characters.
const MAX_SHOWN: usize = 100;

/// How the host gets tokens for a server. Without keys, it asks the server for its authorization server and registers
/// there.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerOAuthSection {
    /// The id of a client that is registered at the authorization server already; needs `issuer`.
    client_id: Option<String>,
    /// The secret of that client.
    client_secret: Option<String>,
    /// How the client sends its secret to the token endpoint. Default: a method that the authorization server supports.
    token_endpoint_auth_method: Option<TokenEndpointAuthMethod>,
    /// The issuer of the authorization server. Every other is refused.
    issuer: Option<String>,
    /// The URL of a client ID metadata document, for authorization servers that support it.
    client_metadata_url: Option<String>,
    /// The scopes to request. Default: those that the server asks for.
    scopes: Option<BTreeSet<String>>,
    /// The port on 127.0.0.1 to which the browser returns. Default: any free port.
    #[schemars(range(min = 1))]
    redirect_port: Option<u16>,
    /// Whether the authorization server counts as supporting PKCE with S256 if its metadata do not say; needs `issuer`.
    /// Default: false.
    #[serde(default)]
    assume_pkce: bool,
}

impl ServerOAuthSection {
    pub(super) fn resolve(self) -> Result<OAuthClientSettings, PolicyProblem> {
        let wrong = |key: &str, message: &str| Err(PolicyProblem::at_keys([key], message));
        for (key, text) in [("client_id", &self.client_id), ("issuer", &self.issuer)] {
            let sound = |text: &String| {
                (1..=MAX_TEXT).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
            };
            if !text.as_ref().is_none_or(sound) {
                return wrong(key, &format!("`{key}` is not 1 to {MAX_TEXT} visible ASCII characters"));
            }
        }
        if let Some(issuer) = &self.issuer {
            check_url("issuer", issuer)?;
        }
        if let Some(url) = &self.client_metadata_url {
            let parsed = check_url("client_metadata_url", url)?;
            if parsed.scheme() != "https" || parsed.path() == "/" {
                let message = "`client_metadata_url`: write an `https` URL with a path";
                return wrong("client_metadata_url", message);
            }
        }
        if self.redirect_port == Some(0) {
            return wrong("redirect_port", "`redirect_port`: write a port from 1 to 65535");
        }
        if self.assume_pkce && self.issuer.is_none() {
            let message = "`assume_pkce` needs `issuer`: it is about one authorization server, and the server could \
                           name another one";
            return wrong("assume_pkce", message);
        }
        let (scopes, auth_method) =
            (self.scopes.map(check_scopes).transpose()?, self.token_endpoint_auth_method);
        if auth_method.is_some() && self.client_secret.is_none() {
            let message = "`token_endpoint_auth_method` needs `client_secret`";
            return wrong("token_endpoint_auth_method", message);
        }
        let client = match (self.client_id, self.client_secret) {
            (Some(_), _) if self.issuer.is_none() => {
                let message = "`client_id` needs `issuer`, the authorization server that knows the client: without it, \
                               the server could name another one, which would get the client's credentials";
                return wrong("client_id", message);
            }
            (Some(id), secret) => Some(RegisteredClient { id, secret, auth_method }),
            (None, Some(_)) => return wrong("client_secret", "`client_secret` needs `client_id`"),
            (None, None) => None,
        };
        Ok(OAuthClientSettings {
            client,
            issuer: self.issuer,
            client_metadata_url: self.client_metadata_url,
            scopes,
            redirect_port: self.redirect_port,
            assumes_pkce: self.assume_pkce,
        })
    }
}

fn check_url(key: &str, text: &str) -> Result<Url, PolicyProblem> {
    let bad = || {
        let message = format!("`{key}`: `{}` is no URL, `https://…`", one_line(text, MAX_SHOWN));
        PolicyProblem::at_keys([key], message)
    };
    let url = Url::parse(text).map_err(|_| bad())?;
    let plain = !has_credentials(&url) && url.fragment().is_none();
    let http = matches!(url.scheme(), "http" | "https") && url.has_host();
    if http && plain && text.len() <= MAX_TEXT { Ok(url) } else { Err(bad()) }
}

/// RFC 6749, section 3.3: visible ASCII characters without `"` and `\`.
fn check_scopes(scopes: BTreeSet<String>) -> Result<BTreeSet<String>, PolicyProblem> {
    let sound = |scope: &String| {
        (1..=MAX_TEXT).contains(&scope.len())
            && scope.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'))
    };
    if scopes.len() > MAX_SCOPES {
        let message = format!("`scopes` has more than {MAX_SCOPES} entries");
        return Err(PolicyProblem::at_keys(["scopes"], message));
    }
    match scopes.iter().find(|scope| !sound(scope)) {
        Some(scope) => {
            let message = format!("`scopes`: `{}` is no scope", one_line(scope, MAX_SHOWN));
            Err(PolicyProblem::at_keys(["scopes"], message).in_text(scope))
        }
        None => Ok(scopes),
    }
}
