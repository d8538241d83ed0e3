//! The host as an OAuth client of MCP servers, as the authorization specification of MCP describes it (2025-11-25 and
//! 2026-07-28). The authorization server is found through the MCP server, which is not trusted: everything that either
//! of them says is checked against what it may speak for, and bounded (docs/decisions/0055).
//!
//! | file | contents |
//! |---|---|
//! | `challenge` | `WWW-Authenticate` |
//! | `discovery` | the metadata of the resource and of the authorization server |
//! | `registration` | what the host is at an authorization server |
//! | `authorization`, `loopback` | the user's part: the URL for the browser, and the listener for its answer |
//! | `token`, `revocation` | the endpoints for tokens |
//! | `credentials`, `credential_store` | what is saved, and who may change it when |
//! | `http`, `member` | bounded requests; members of documents as servers write them |
//!
//! An authorization needs a user, whom an [`AuthorizationHandler`] reaches. Without a handler, a request fails, and the
//! message says how to log in.

mod authorization;
mod challenge;
mod credential_store;
mod credentials;
mod discovery;
mod http;
mod loopback;
mod member;
mod registration;
mod revocation;
mod token;

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::{ConnectorRequest, ServerConnector};
use toolbay_policy::hint::{LineValue, PolicyLine, Remedy};
use toolbay_policy::mcp_server::{HttpServerConfig, McpServer, OAuthClientSettings, ServerTransport};
use toolbay_policy::name::PluginId;
use toolbay_policy::quantity;
use toolbay_policy::refusal::PolicyRefusal;

use self::authorization::{Authorization, OFFLINE_ACCESS};
pub(super) use self::challenge::Challenge;
use self::credential_store::CredentialStore;
use self::credentials::Credentials;
pub(super) use self::credentials::SecretText;
use self::discovery::Discovered;
use self::http::FlowClient;
use self::loopback::LoopbackListener;
use self::registration::ClientUse;
pub use self::revocation::TokenRevocation;
use self::token::{TokenError, TokenGrant};
use super::negotiated::{MODERN, client_info};
use crate::protocol::message;

/// How long a user has to authorize.
const USER_TIMEOUT: Duration = Duration::from_secs(300);
/// How often a user is asked for one server within [`PROMPT_WINDOW`]. A server decides when, so it is limited.
const MAX_PROMPTS: usize = 3;
/// The time window of [`MAX_PROMPTS`].
const PROMPT_WINDOW: Duration = Duration::from_secs(600);
/// Most scopes that challenges add.
const MAX_WANTED: usize = 64;
/// Timeout of the request that looks for the server's challenge.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends users to an authorization server.
pub trait AuthorizationHandler: Send + Sync + fmt::Debug {
    /// Shows `url` to the user, in a browser or as a text, and returns. The answer comes to a listener on 127.0.0.1. A
    /// server chose the URL: it uses `https`, or `http` on this machine, and nothing else about it is known.
    ///
    /// The error says why the user cannot be reached; it ends the authorization.
    fn open<'a>(&'a self, server: &'a str, url: &'a str) -> BoxFuture<'a, Result<(), String>>;
}

/// Why there is no token. `Display` is for the operator: it has the policy lines that would help, and no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.for_operator())]
pub struct OAuthError(PolicyRefusal);

impl OAuthError {
    fn new(why: impl Into<PolicyRefusal>) -> Self {
        Self(why.into())
    }

    /// Changes the text and keeps the hint.
    fn map_text(self, change: impl FnOnce(String) -> String) -> Self {
        Self(self.0.map_text(change))
    }

    /// What happened, and the hint for the operator.
    pub(super) fn into_refusal(self) -> PolicyRefusal {
        self.0
    }
}

/// What a login brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginOutcome {
    /// The authorization server.
    pub issuer: String,
    /// The granted scopes.
    pub scopes: Vec<String>,
    /// Whether the tokens can be renewed without a user.
    pub renewable: bool,
}

/// Logs in at the authorization server of a server, and saves the credentials. `handler` reaches the user.
///
/// # Errors
/// The server has no URL, its section sets the header `authorization`, or the authorization failed. Nothing is saved.
pub async fn login(
    server: &McpServer,
    connector: Arc<dyn ServerConnector>,
    handler: Arc<dyn AuthorizationHandler>,
) -> Result<LoginOutcome, OAuthError> {
    let authenticator = Authenticator::for_server(server, connector, Some(handler)).ok_or_else(|| {
        OAuthError::new(format!(
            "`{}` needs no login: only a server with a `url` and without a header `authorization` does",
            server.name
        ))
    })?;
    let (_, challenge) = authenticator.probe().await?;
    if let Err(error) = authenticator.store.reload().await {
        // Unreadable credentials are replaced.
        tracing::warn!(server = %server.name, "{error}");
    }
    authenticator.authorize(&challenge, ClientReuse::Never).await?;
    let now = authenticator.store.current_if_saved().ok_or_else(|| {
        OAuthError::new("the credentials were not saved: the host has no state directory".to_owned())
    })?;
    Ok(LoginOutcome {
        scopes: now.granted.iter().cloned().collect(),
        renewable: now.tokens.refresh.is_some(),
        issuer: now.issuer.clone(),
    })
}

/// Whether a server answers a request without a token with 401.
///
/// # Errors
/// The server cannot be reached.
pub async fn requires_login(
    server: &McpServer,
    connector: Arc<dyn ServerConnector>,
) -> Result<bool, OAuthError> {
    let Some(authenticator) = Authenticator::for_server(server, connector, None) else { return Ok(false) };
    let (status, _) = authenticator.probe().await?;
    Ok(status == 401)
}

/// What a logout did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogoutOutcome {
    /// Whether credentials were removed.
    pub removed: bool,
    /// What happened to the tokens at the authorization server.
    pub revocation: TokenRevocation,
}

/// Removes the saved credentials of a server, and withdraws its tokens if the authorization server supports that
/// (RFC 7009). `server` is its section of the policy, without which no request is sent.
///
/// # Errors
/// The credentials cannot be removed. Tokens that cannot be withdrawn are not an error.
pub async fn logout(
    name: &PluginId,
    server: Option<&McpServer>,
    connector: Arc<dyn ServerConnector>,
) -> Result<LogoutOutcome, OAuthError> {
    // A renewal of another process would save its tokens after this.
    let _lock = connector.lock_credentials(name).await.map_err(OAuthError::new)?;
    let saved = Credentials::load_any(&*connector, name).await;
    // Also credentials that cannot be read are removed.
    let removed = !matches!(saved, Ok(None));
    let revocation = match (saved, server.map(|server| &server.transport)) {
        (Ok(None), _) => TokenRevocation::NoTokens,
        (Err(error), _) => TokenRevocation::Failed(error),
        (Ok(Some(saved)), Some(ServerTransport::Http(endpoint))) => {
            let flow = FlowClient::new(name.clone(), (**endpoint).clone(), Arc::clone(&connector));
            revocation::revoke(&flow, &saved).await
        }
        (Ok(Some(_)), Some(ServerTransport::Stdio(_)) | None) => TokenRevocation::Failed(OAuthError::new(
            format!("the policy has no server `{name}` at a URL, so nothing is sent for it"),
        )),
    };
    connector.save_credentials(name, None).await.map_err(OAuthError::new)?;
    Ok(LogoutOutcome { removed, revocation })
}

/// Whether the client of an earlier authorization is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientReuse {
    /// If it is valid, as far as the host knows.
    Known,
    /// A server may have forgotten it. It would say so to the user's browser, and the host would wait in vain.
    Never,
}

/// Gets and renews the tokens of one server.
#[derive(Debug)]
pub(super) struct Authenticator {
    name: PluginId,
    endpoint: HttpServerConfig,
    settings: OAuthClientSettings,
    connector: Arc<dyn ServerConnector>,
    handler: Option<Arc<dyn AuthorizationHandler>>,
    store: Arc<CredentialStore>,
    /// One flow at a time: requests that fail together need one new token.
    flow: Semaphore,
    prompts: Mutex<Vec<Instant>>,
}

impl Authenticator {
    /// `None` if the server needs no tokens of an authorization server.
    pub(super) fn for_server(
        server: &McpServer,
        connector: Arc<dyn ServerConnector>,
        handler: Option<Arc<dyn AuthorizationHandler>>,
    ) -> Option<Self> {
        let ServerTransport::Http(endpoint) = &server.transport else { return None };
        let (name, endpoint) = (server.name.clone(), (**endpoint).clone());
        Some(Self {
            settings: endpoint.oauth.clone()?,
            store: Arc::new(CredentialStore::new(name.clone(), endpoint.clone(), Arc::clone(&connector))),
            name,
            endpoint,
            connector,
            handler,
            flow: Semaphore::new(1),
            prompts: Mutex::default(),
        })
    }

    /// The access token for the next request, renewed if it is about to expire. `None` without a login.
    pub(super) async fn token(&self) -> Option<SecretText> {
        if !self.store.is_loaded()
            && let Err(error) = self.store.reload().await
        {
            tracing::warn!(server = %self.name, "{error}");
        }
        let now = self.store.current()?.tokens;
        if now.refresh.is_some() && now.is_expiring() {
            let renewed = match self.flow.acquire().await {
                Ok(_permit) => self.store.renew(&now.access).await.map_err(OAuthError::from),
                Err(_) => Ok(false),
            };
            if let Err(error) = renewed {
                // The server decides whether the old token is still valid.
                tracing::warn!(server = %self.name, "the token was not renewed: {error}");
            }
        }
        Some(self.store.current()?.tokens.access)
    }

    /// Waits for a running renewal and lets no other begin, so that no rotated token is lost when the host ends.
    pub(super) async fn finish_renewals(&self) {
        self.store.finish_renewals().await;
    }

    /// Gets a better token than `used`, which the server did not accept. After that, the request can be sent again.
    pub(super) async fn respond(
        &self,
        challenge: &Challenge,
        used: Option<&SecretText>,
    ) -> Result<(), OAuthError> {
        let _permit = self.flow.acquire().await.map_err(|e| OAuthError::new(e.to_string()))?;
        self.store.reload().await?;
        if self.store.current().is_some_and(|now| Some(&now.tokens.access) != used) {
            // Another request, or another process, has renewed it.
            return Ok(());
        }
        let mut refusal = None;
        if challenge.insufficient_scope {
            self.check_step_up(challenge).await?;
        } else if let Some(used) = used {
            match self.store.renew(used).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // A login that may still be good is not given up for an answer that did not come.
                Err(TokenError::Failed(error)) => {
                    return Err(error.map_text(|why| format!("its token could not be renewed: {why}")));
                }
                Err(TokenError::Refused(error) | TokenError::UnknownClient(error)) => refusal = Some(error),
            }
        }
        if self.handler.is_none() {
            let why = refusal.map(|error| {
                format!(", since its token could not be renewed: {}", error.into_refusal().text)
            });
            let text = format!("it requires a login{}", why.unwrap_or_default());
            let hint = format!(
                "run `toolbay mcp login {0}`, or write in the policy: [mcp.{0}] bearer = \"NAME\" and [secrets.NAME]",
                self.name
            );
            return Err(OAuthError::new(PolicyRefusal::new(text, hint)));
        }
        if let Some(error) = refusal {
            tracing::info!(server = %self.name, "the token could not be renewed: {error}");
        }
        self.count_prompt()?;
        self.authorize(challenge, ClientReuse::Known).await
    }

    /// Refuses a challenge that another authorization would not satisfy. Otherwise, the next login requests its scopes.
    async fn check_step_up(&self, challenge: &Challenge) -> Result<(), OAuthError> {
        let lock = self.store.lock().await?;
        self.store.reload().await?;
        let Some(mut now) = self.store.current() else { return Ok(()) };
        let lacking: BTreeSet<String> = challenge.scopes.difference(&now.granted).cloned().collect();
        if lacking.is_empty() {
            return Err(OAuthError::new(
                "it refuses the token for its scopes, and names none that the token lacks".to_owned(),
            ));
        }
        let outside =
            |allowed: &BTreeSet<String>| lacking.iter().find(|scope| !allowed.contains(*scope)).cloned();
        if let Some(scope) = self.settings.scopes.as_ref().and_then(outside) {
            let table = format!("[mcp.{}.oauth]", self.name);
            let line = PolicyLine::new(table, "scopes", LineValue::List(vec![scope.clone()]));
            let hint = Remedy::Set { purpose: "to request it".to_owned(), line };
            return Err(OAuthError::new(PolicyRefusal::new(format!("it wants the scope `{scope}`"), hint)));
        }
        if !lacking.is_subset(&now.wanted) {
            now.wanted.extend(lacking);
            // One challenge after the other could make the list long.
            if now.wanted.len() > MAX_WANTED {
                return Err(OAuthError::new(format!("it wants more than {MAX_WANTED} scopes")));
            }
            self.store.store(&lock, now).await?;
        }
        Ok(())
    }

    fn count_prompt(&self) -> Result<(), OAuthError> {
        let mut prompts = self.prompts.lock();
        prompts.retain(|one| one.elapsed() < PROMPT_WINDOW);
        if prompts.len() >= MAX_PROMPTS {
            return Err(OAuthError::new(format!(
                "it wanted {MAX_PROMPTS} authorizations within {}: no further one is started",
                quantity::show_duration(PROMPT_WINDOW)
            )));
        }
        prompts.push(Instant::now());
        Ok(())
    }

    /// Looks for the challenge of the server with a request without a token. Returns the status, too.
    async fn probe(&self) -> Result<(u16, Challenge), OAuthError> {
        let body = message::encode_request(1, "server/discover", &probe_params());
        let headers = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-method", "server/discover"),
            ("mcp-protocol-version", MODERN),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let request = ConnectorRequest { method: "POST", headers, body };
        let sent =
            tokio::time::timeout(PROBE_TIMEOUT, self.connector.send(&self.name, &self.endpoint, request))
                .await;
        match sent {
            // Legacy servers may protect single methods only; their metadata say more.
            Ok(Ok(response)) => {
                Ok((response.status, Challenge::from_headers(&response.headers).unwrap_or_default()))
            }
            Ok(Err(error)) => Err(OAuthError::new(error.into_refusal())),
            Err(_) => Err(OAuthError::new("the server did not answer".to_owned())),
        }
    }

    /// Asks the user. Credentials are saved only if everything succeeded.
    async fn authorize(&self, challenge: &Challenge, reuse: ClientReuse) -> Result<(), OAuthError> {
        let Some(handler) = &self.handler else {
            return Err(OAuthError::new("nobody can be asked".to_owned()));
        };
        let flow = self.store.new_flow();
        let before = self.store.current();
        let known = before.as_ref().map(|before| before.issuer.as_str());
        let found = discovery::discover(&flow, &self.settings, challenge, known).await?;
        // A client and scopes belong to their issuer.
        let before = before.filter(|before| before.issuer == found.server.issuer);
        let client = before.as_ref().map(|before| before.client.clone());
        let client = client.filter(|_| reuse == ClientReuse::Known);
        let port =
            client.as_ref().and_then(|client| LoopbackListener::port_of(client.redirect_uri.as_deref()?));
        let listener = LoopbackListener::bind(self.settings.redirect_port, port).await?;
        let redirect_uri = &listener.redirect_uri;
        let scopes = self.select_scopes(challenge, &found, before.as_ref());
        let intended = ClientUse { redirect_uri, scopes: &scopes };
        let client =
            registration::obtain_client(&flow, &self.settings, &found.server, client, intended).await?;
        let authorization = Authorization::new(&found, &client, redirect_uri, &scopes)?;
        let query = self.ask(&**handler, &listener, &authorization).await?;
        let code = authorization.read_answer(&query, &flow)?;
        flow.conceal([&code, &authorization.verifier].into_iter().chain(client.issued_secret()));
        let other = registration::with_other_method(&client, &self.settings, &found.server);
        let (endpoint, resource) = (found.server.token_endpoint, found.resource.resource);
        let grant =
            TokenGrant::Code { code: code.expose(), verifier: authorization.verifier.expose(), redirect_uri };
        let mut client = client;
        let requested = token::request_tokens(&flow, &endpoint, &client, &grant, &resource).await;
        let (tokens, granted) = match requested {
            Err(TokenError::UnknownClient(error)) => {
                let Some(other) = other else { return Err(error) };
                client = other;
                let again = token::request_tokens(&flow, &endpoint, &client, &grant, &resource).await;
                again.map_err(|second| {
                    let first = error.into_refusal().text;
                    OAuthError::from(second).map_text(|second| format!("{first}; then: {second}"))
                })?
            }
            requested => requested?,
        };
        let credentials = Credentials {
            version: credentials::VERSION,
            url: self.endpoint.url.clone(),
            issuer: found.server.issuer,
            resource,
            token_endpoint: endpoint,
            client,
            tokens,
            // RFC 6749, section 5.1: without a list, the request was granted.
            granted: granted.unwrap_or_else(|| scopes.clone()),
            requested: scopes,
            wanted: BTreeSet::new(),
        };
        let lock = self.store.lock().await?;
        self.store.store(&lock, credentials).await
    }

    /// The scopes of the policy; otherwise those of the challenge, or those of the resource, with what was requested
    /// before.
    fn select_scopes(
        &self,
        challenge: &Challenge,
        found: &Discovered,
        before: Option<&Credentials>,
    ) -> BTreeSet<String> {
        let mut scopes = match &self.settings.scopes {
            Some(scopes) => scopes.clone(),
            None => {
                let named = if challenge.scopes.is_empty() {
                    challenge::collect_scopes(
                        found.resource.scopes_supported.iter().flatten().map(String::as_str),
                    )
                } else {
                    challenge.scopes.clone()
                };
                let earlier = before.into_iter().flat_map(|before| before.requested.union(&before.wanted));
                named.into_iter().chain(earlier.cloned()).collect()
            }
        };
        // For a refresh token. Alone, it would take the place of the server's default scopes.
        let mut supported = found.server.scopes_supported.iter().flatten();
        if !scopes.is_empty() && supported.any(|scope| scope == OFFLINE_ACCESS) {
            scopes.insert(OFFLINE_ACCESS.to_owned());
        }
        scopes
    }

    /// Shows the URL and waits for the answer.
    async fn ask(
        &self,
        handler: &dyn AuthorizationHandler,
        listener: &LoopbackListener,
        authorization: &Authorization,
    ) -> Result<String, OAuthError> {
        let asked = async {
            let mut answer = pin!(listener.wait_answer(authorization));
            tokio::select! {
                answer = &mut answer => return answer,
                shown = handler.open(self.name.as_str(), authorization.url.as_str()) => {
                    shown.map_err(|why| OAuthError::new(format!("the user cannot be asked: {why}")))?;
                }
            }
            answer.await
        };
        match tokio::time::timeout(USER_TIMEOUT, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(OAuthError::new(format!(
                "nobody authorized within {}",
                quantity::show_duration(USER_TIMEOUT)
            ))),
        }
    }
}

/// The parameters that every request of 2026-07-28 has.
fn probe_params() -> Value {
    json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client_info(),
    }})
}

#[cfg(test)]
mod tests;
