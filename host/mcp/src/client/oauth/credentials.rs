//! The credentials of one server, as they are saved. They belong to one URL and one issuer: credentials of another URL
//! are not used, and a client of another issuer is not presented.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_policy::mcp_server::HttpServerConfig;
use toolbay_policy::name::PluginId;
use zeroize::{Zeroize as _, Zeroizing};

use super::OAuthError;

/// The format of the saved credentials.
pub(super) const VERSION: u32 = 1;
/// Bytes of the saved credentials. Tokens have at most 16 KiB each.
const MAX_BYTES: usize = 256 << 10;
/// A token is renewed this long before it expires, so that it is still valid when it arrives.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);
/// The margin is at most this share of a token's life: a new token is used before it is renewed, however short it lives.
const EXPIRY_MARGIN_SHARE: u64 = 4;

/// A secret text. Its memory is zeroed on drop, and `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(in super::super) struct SecretText(String);

impl SecretText {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    pub(in super::super) fn expose(&self) -> &str {
        &self.0
    }
}

impl Drop for SecretText {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ClientAuthMethod {
    #[serde(rename = "none")]
    Public,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
}

impl ClientAuthMethod {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Public => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Public, Self::Basic, Self::Post].into_iter().find(|method| method.name() == name)
    }
}

/// Where the secret of a client is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientSecret {
    /// The client has none.
    Absent,
    /// The secret of the policy with this name. Its value never gets here.
    Policy(String),
    /// The authorization server issued it.
    Issued(SecretText),
}

/// The host as a client of an authorization server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OAuthClient {
    pub(super) id: String,
    pub(super) secret: ClientSecret,
    pub(super) method: ClientAuthMethod,
    /// The registered redirect address, if the client was registered for it (RFC 7591).
    pub(super) redirect_uri: Option<String>,
    /// The scopes of the registration, if it named them.
    #[serde(default)]
    pub(super) scopes: Option<BTreeSet<String>>,
    /// When the registration ends, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
}

impl OAuthClient {
    /// The secret that the authorization server issued.
    pub(super) fn issued_secret(&self) -> Option<&SecretText> {
        match &self.secret {
            ClientSecret::Issued(secret) => Some(secret),
            ClientSecret::Absent | ClientSecret::Policy(_) => None,
        }
    }
}

/// The tokens of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub(super) access: SecretText,
    pub(super) refresh: Option<SecretText>,
    /// When the access token ends, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
    /// For how many seconds it was issued.
    #[serde(default)]
    pub(super) lifetime: Option<u64>,
}

impl Tokens {
    /// Whether the access token has ended or is about to.
    pub(super) fn is_expiring(&self) -> bool {
        let most = EXPIRY_MARGIN.as_secs();
        let margin = self.lifetime.map_or(most, |seconds| most.min(seconds / EXPIRY_MARGIN_SHARE));
        self.expires_at.is_some_and(|end| end <= now() + margin)
    }
}

/// Everything that is saved for a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Credentials {
    pub(super) version: u32,
    /// The server's URL in the policy.
    pub(super) url: String,
    pub(super) issuer: String,
    /// The resource that the tokens are for.
    pub(super) resource: String,
    pub(super) token_endpoint: String,
    pub(super) client: OAuthClient,
    pub(super) tokens: Tokens,
    /// The scopes that were requested.
    pub(super) requested: BTreeSet<String>,
    /// The scopes that were granted.
    pub(super) granted: BTreeSet<String>,
    /// Scopes that a request lacked. The next login requests them, too.
    pub(super) wanted: BTreeSet<String>,
}

impl Credentials {
    /// What no message may contain.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &SecretText> {
        [&self.tokens.access].into_iter().chain(&self.tokens.refresh).chain(self.client.issued_secret())
    }

    /// Loads the credentials that were saved for the server's URL.
    pub(super) async fn load(
        connector: &dyn ServerConnector,
        name: &PluginId,
        endpoint: &HttpServerConfig,
    ) -> Result<Option<Self>, OAuthError> {
        let found = Self::load_any(connector, name).await?;
        let issuer = endpoint.oauth.as_ref().and_then(|oauth| oauth.issuer.as_deref());
        Ok(found.filter(|found| {
            found.version == VERSION
                && found.url == endpoint.url
                && issuer.is_none_or(|issuer| same_issuer(issuer, &found.issuer))
        }))
    }

    /// Loads the credentials that were saved for the server's name, whatever its URL is now.
    pub(super) async fn load_any(
        connector: &dyn ServerConnector,
        name: &PluginId,
    ) -> Result<Option<Self>, OAuthError> {
        let bytes = connector.load_credentials(name, MAX_BYTES).await.map_err(OAuthError::new)?;
        let Some(bytes) = bytes.map(Zeroizing::new) else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|_| {
            OAuthError::new(format!(
                "the saved credentials cannot be read: `toolbay mcp logout {name}` removes them"
            ))
        })
    }

    /// Saves the credentials for the next start. Returns whether the host has a place for them.
    pub(super) async fn save(
        &self,
        connector: &dyn ServerConnector,
        name: &PluginId,
    ) -> Result<bool, OAuthError> {
        let bytes = serde_json::to_vec(self).map_err(|e| OAuthError::new(e.to_string()))?;
        if bytes.len() > MAX_BYTES {
            return Err(OAuthError::new(format!("the credentials have more than {MAX_BYTES} bytes")));
        }
        let saved = connector.save_credentials(name, Some(bytes)).await;
        saved.map_err(|why| OAuthError::new(format!("the credentials were not saved: {why}")))
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Whether two issuers are the same text. An empty path equals `/` (RFC 3986, section 6.2.3).
pub(super) fn same_issuer(one: &str, other: &str) -> bool {
    let root = |issuer: &str| match issuer.strip_suffix('/') {
        Some(rest) if rest.split_once("://").is_some_and(|(_, host)| !host.contains('/')) => rest.to_owned(),
        _ => issuer.to_owned(),
    };
    root(one) == root(other)
}
