//! One authorization at an authorization server: the URL for the browser, and what comes back. PKCE with S256
//! (RFC 7636), the resource (RFC 8707) and the issuer of the answer (RFC 9207).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;
use toolbay_state::digest::Digest;
use url::{Url, form_urlencoded};

use super::OAuthError;
use super::challenge::join_scopes;
use super::credentials::{OAuthClient, SecretText};
use super::discovery::Discovered;
use super::http::{FlowClient, parse_url};

/// Longest authorization code, in bytes.
const MAX_CODE: usize = 8 << 10;

/// An authorization that a user has to give.
#[derive(Debug)]
pub(super) struct Authorization {
    /// The URL for the browser.
    pub(super) url: Url,
    pub(super) verifier: SecretText,
    state: SecretText,
    issuer: String,
    requires_issuer: bool,
}

impl Authorization {
    pub(super) fn new(
        found: &Discovered,
        client: &OAuthClient,
        redirect_uri: &str,
        scopes: &BTreeSet<String>,
    ) -> Result<Self, OAuthError> {
        let mut url = parse_url("the authorization endpoint", &found.server.authorization_endpoint)?;
        let (verifier, state) = (random_text()?, random_text()?);
        let challenge = URL_SAFE_NO_PAD.encode(Digest::of(verifier.expose().as_bytes()).as_bytes());
        let scope = join_scopes(scopes);
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("state", state.expose())
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &found.resource.resource);
        if !scope.is_empty() {
            query.append_pair("scope", &scope);
        }
        if scopes.contains(OFFLINE_ACCESS) {
            // OpenID Connect Core, section 11: without it, the scope is ignored.
            query.append_pair("prompt", "consent");
        }
        drop(query);
        Ok(Self {
            url,
            verifier,
            state,
            issuer: found.server.issuer.clone(),
            requires_issuer: found.server.authorization_response_iss_parameter_supported,
        })
    }

    /// Whether a query belongs to this authorization.
    pub(super) fn is_answer(&self, query: &str) -> bool {
        let state = parameter(query, "state").unwrap_or_default();
        bool::from(state.as_bytes().ct_eq(self.state.expose().as_bytes()))
    }

    /// The code of an answer.
    ///
    /// # Errors
    /// The answer is of another authorization or issuer, or a refusal.
    pub(super) fn read_answer(&self, query: &str, flow: &FlowClient) -> Result<SecretText, OAuthError> {
        if !self.is_answer(query) {
            return Err(OAuthError::new("the answer belongs to another authorization".to_owned()));
        }
        // Before anything else in the answer is used (RFC 9207, section 2.4). Compared as a text.
        match parameter(query, "iss") {
            Some(issuer) if issuer != self.issuer => {
                return Err(OAuthError::new(format!(
                    "the answer comes from another issuer, `{}`, and not from `{}`",
                    flow.show(&issuer),
                    flow.show(&self.issuer)
                )));
            }
            None if self.requires_issuer => {
                return Err(OAuthError::new(format!(
                    "the answer names no issuer, which `{}` promises to do",
                    flow.show(&self.issuer)
                )));
            }
            Some(_) | None => {}
        }
        if let Some(error) = parameter(query, "error") {
            let more = parameter(query, "error_description").map(|more| format!(": {}", flow.show(&more)));
            let text =
                format!("the authorization was refused: {}{}", flow.show(&error), more.unwrap_or_default());
            return Err(OAuthError::new(text));
        }
        match parameter(query, "code") {
            Some(code) if (1..=MAX_CODE).contains(&code.len()) => Ok(SecretText::new(code)),
            _ => Err(OAuthError::new("the answer contains no authorization code".to_owned())),
        }
    }
}

/// The scope for refresh tokens.
pub(super) const OFFLINE_ACCESS: &str = "offline_access";

/// The first value of a parameter.
fn parameter(query: &str, name: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// 256 random bits as 43 characters, which RFC 7636, section 4.1, recommends.
fn random_text() -> Result<SecretText, OAuthError> {
    let mut bytes = zeroize::Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes)
        .map_err(|e| OAuthError::new(format!("the system has no random numbers: {e}")))?;
    Ok(SecretText::new(URL_SAFE_NO_PAD.encode(*bytes)))
}
