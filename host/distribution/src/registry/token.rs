//! Tokens of a registry: the answer to a `Bearer` challenge (distribution project, "Token Authentication"). The challenge
//! names the server that issues them, so that is checked before credentials are sent.

use serde::Deserialize;
use toolbay_core::http_challenge::HttpChallenge;
use toolbay_policy::excerpt::one_line;
use url::{Url, form_urlencoded};

use super::{
    MAX_SHOWN, RegistryAccess, RegistryClient, RegistryError, RegistryRequest, UrlAuthor, read_body,
};
use crate::credentials::RegistryCredentials;

/// Largest response of a token server, and of an error, in bytes.
const MAX_BODY: usize = 64 << 10;
/// Longest token in bytes.
const MAX_TOKEN: usize = 16 << 10;
/// Longest text of a challenge that is sent on, in bytes.
const MAX_TEXT: usize = 2048;
/// The client in requests with an identity token.
const CLIENT_ID: &str = "toolbay";

#[derive(Deserialize)]
struct TokenDocument {
    token: Option<String>,
    access_token: Option<String>,
}

impl RegistryClient {
    /// Gets a token for this repository.
    pub(super) async fn request_token(
        &self,
        challenge: &HttpChallenge,
        credentials: Option<&RegistryCredentials>,
    ) -> Result<String, RegistryError> {
        let mut url = self.realm(challenge, credentials.is_some())?;
        let service = challenge.parameter("service").unwrap_or_default();
        if service.len() > MAX_TEXT {
            return Err(RegistryError::Refused("the `service` of the challenge is too long".to_owned()));
        }
        // The scope of the challenge is not used: this client knows what it needs.
        let actions = match self.access {
            RegistryAccess::Pull => "pull",
            RegistryAccess::Push => "pull,push",
        };
        let scope = format!("repository:{}:{actions}", self.reference.repository);
        let author = if self.is_listed_realm(&url) { UrlAuthor::Operator } else { UrlAuthor::Registry };
        let request = match credentials {
            Some(RegistryCredentials::IdentityToken(token)) => {
                let form = form_urlencoded::Serializer::new(String::new())
                    .extend_pairs([("grant_type", "refresh_token"), ("refresh_token", token.expose())])
                    .extend_pairs([("service", service), ("scope", &scope), ("client_id", CLIENT_ID)])
                    .finish();
                let kind = "application/x-www-form-urlencoded".to_owned();
                let headers = vec![("content-type".to_owned(), kind)];
                RegistryRequest { method: "POST", url, author, headers, body: form.into() }
            }
            None | Some(RegistryCredentials::Password(_)) => {
                url.query_pairs_mut().append_pair("service", service).append_pair("scope", &scope);
                let basic = credentials.and_then(RegistryCredentials::basic);
                let headers = basic.map(|value| ("authorization".to_owned(), value)).into_iter().collect();
                RegistryRequest::get(url, author, headers)
            }
        };
        let response = self.send(request).await?;
        match response.status {
            200 => parse_token(&read_body(response, MAX_BODY).await?),
            401 | 403 => Err(self.unauthorized()),
            status => Err(RegistryError::Failed(format!("the token server answered with status {status}"))),
        }
    }

    /// The URL of the token server. Credentials go to the registry's own origin, or to one that the policy lists.
    fn realm(&self, challenge: &HttpChallenge, has_credentials: bool) -> Result<Url, RegistryError> {
        let (host, text) = (&self.reference.host, challenge.parameter("realm").unwrap_or_default());
        let shown = one_line(text, MAX_SHOWN);
        let refused =
            |why: &str| Err(RegistryError::Refused(format!("the realm `{shown}` of `{host}` {why}")));
        let Some(url) = Url::parse(text).ok().filter(|_| text.len() <= MAX_TEXT) else {
            return refused("is not a URL");
        };
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return refused("contains a user name or a fragment");
        }
        if url.scheme() != "https" && !self.is_own(&url) {
            return refused("does not use https");
        }
        if has_credentials && !self.is_listed_realm(&url) {
            let origin = url.origin().ascii_serialization();
            return refused(&format!(
                "is on another host, which gets no credentials; to allow it, write in the policy: [registry.\"{host}\"] \
                 realm = [\"{origin}\"]"
            ));
        }
        Ok(url)
    }

    /// Whether the operator wrote the origin of a realm: as the registry, or in the policy. A trailing dot makes another
    /// origin.
    fn is_listed_realm(&self, url: &Url) -> bool {
        self.is_own(url) || self.settings.realm.contains(&url.origin().ascii_serialization())
    }
}

fn parse_token(body: &[u8]) -> Result<String, RegistryError> {
    let bad = || RegistryError::Refused("the token server sent no token".to_owned());
    let document: TokenDocument = serde_json::from_slice(body).map_err(|_| bad())?;
    let token = document.token.or(document.access_token).ok_or_else(bad)?;
    let is_sound =
        (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_sound { Ok(token) } else { Err(bad()) }
}
