//! The credentials of one server: in memory, and in the state directory, which other processes use, too.
//!
//! Servers rotate refresh tokens: a renewal ends the old one, and one that is used twice may end the login. Therefore:
//!
//! | rule | reason |
//! |---|---|
//! | a change of the saved credentials holds their lock, and reads them again first | two processes renew once |
//! | new tokens are saved before they are used | a crash loses none that a server has seen |
//! | a refresh token that the server refused is not sent again | the answer would be the same |
//! | a renewal runs in its own task | the end of the call that needed it does not stop it |
//! | the end of the host waits for renewals | so does the end of a command |

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use toolbay_core::call::server_connector::{CredentialsLock, ServerConnector};
use toolbay_policy::mcp_server::HttpServerConfig;
use toolbay_policy::name::PluginId;

use super::OAuthError;
use super::credentials::{Credentials, SecretText};
use super::http::FlowClient;
use super::token::{self, TokenError, TokenGrant};

/// The credentials of one server.
#[derive(Debug)]
pub(super) struct CredentialStore {
    name: PluginId,
    endpoint: HttpServerConfig,
    connector: Arc<dyn ServerConnector>,
    known: Mutex<KnownCredentials>,
    /// One renewal at a time, also on a host without a state directory.
    renewal: Semaphore,
    renewals: TaskTracker,
}

/// The credentials in memory.
#[derive(Debug, Default)]
struct KnownCredentials {
    /// Whether the saved ones were looked for.
    loaded: bool,
    /// The saved ones, as far as this process knows.
    saved: Option<Credentials>,
    /// The credentials to use. They differ from the saved ones if they could not be saved.
    current: Option<Credentials>,
    /// The refresh token that the server refused last, and why.
    refused: Option<(SecretText, OAuthError)>,
}

impl CredentialStore {
    pub(super) fn new(
        name: PluginId,
        endpoint: HttpServerConfig,
        connector: Arc<dyn ServerConnector>,
    ) -> Self {
        let (known, renewals) = (Mutex::default(), TaskTracker::new());
        Self { name, endpoint, connector, known, renewal: Semaphore::new(1), renewals }
    }

    /// The credentials in memory.
    pub(super) fn current(&self) -> Option<Credentials> {
        self.known.lock().current.clone()
    }

    /// The credentials in memory, if they are saved.
    pub(super) fn current_if_saved(&self) -> Option<Credentials> {
        let known = self.known.lock();
        known.current.clone().filter(|current| known.saved.as_ref() == Some(current))
    }

    /// Whether the saved credentials were looked for.
    pub(super) fn is_loaded(&self) -> bool {
        self.known.lock().loaded
    }

    pub(super) fn new_flow(&self) -> FlowClient {
        FlowClient::new(self.name.clone(), self.endpoint.clone(), Arc::clone(&self.connector))
    }

    /// Loads the saved credentials again: another process may have changed them.
    pub(super) async fn reload(&self) -> Result<(), OAuthError> {
        let loaded = Credentials::load(&*self.connector, &self.name, &self.endpoint).await;
        let mut known = self.known.lock();
        known.loaded = true;
        let found = loaded?;
        // Unchanged: those in memory may be newer, if they could not be saved.
        if found != known.saved {
            known.saved.clone_from(&found);
            known.current = found;
        }
        Ok(())
    }

    /// Keeps others from changing the saved credentials while the lock exists.
    pub(super) async fn lock(&self) -> Result<CredentialsLock, OAuthError> {
        let locked = self.connector.lock_credentials(&self.name).await;
        locked.map_err(|why| OAuthError::new(format!("the saved credentials cannot be changed: {why}")))
    }

    /// Saves credentials, and then uses them. If they cannot be saved, they are used all the same: the server may accept
    /// none that were before.
    pub(super) async fn store(&self, _lock: &CredentialsLock, new: Credentials) -> Result<(), OAuthError> {
        let saved = new.save(&*self.connector, &self.name).await;
        let mut known = self.known.lock();
        known.loaded = true;
        if let Ok(true) = &saved {
            known.saved = Some(new.clone());
        }
        known.current = Some(new);
        saved.map(drop)
    }

    /// Renews the tokens with the refresh token, unless another process has. Returns whether there is another token
    /// than `used`. The renewal continues if the caller stops waiting.
    pub(super) async fn renew(self: &Arc<Self>, used: &SecretText) -> Result<bool, TokenError> {
        let (store, used) = (Arc::clone(self), used.clone());
        // The tracker owns the task. It ends after the waits for the lock and for the response.
        let renewal = self.renewals.spawn(async move { store.renew_now(&used).await });
        renewal.await.unwrap_or_else(|error| Err(OAuthError::new(error.to_string()).into()))
    }

    /// Waits for the renewal that is running, which ends on its own, and lets no other begin.
    pub(super) async fn finish_renewals(&self) {
        self.renewal.close();
        self.renewals.close();
        self.renewals.wait().await;
    }

    async fn renew_now(&self, used: &SecretText) -> Result<bool, TokenError> {
        let permit = self.renewal.acquire().await;
        let _permit = permit.map_err(|_| OAuthError::new("the host is ending".to_owned()))?;
        let lock = self.lock().await?;
        self.reload().await?;
        let Some(now) = self.current() else { return Ok(false) };
        if now.tokens.access != *used {
            return Ok(true);
        }
        let Some(refresh) = &now.tokens.refresh else { return Ok(false) };
        if let Some(error) = self.refusal_of(refresh) {
            return Err(TokenError::Refused(error));
        }
        let (flow, grant) = (self.new_flow(), TokenGrant::Refresh(refresh));
        flow.conceal(now.secrets());
        let renewed =
            token::request_tokens(&flow, &now.token_endpoint, &now.client, &grant, &now.resource).await;
        let (mut tokens, scopes) = match renewed {
            Ok(renewed) => renewed,
            Err(TokenError::UnknownClient(error)) => {
                self.record_refusal(refresh, &error);
                // The next login registers another client.
                let mut client = now.client.clone();
                client.expires_at = Some(0);
                self.store(&lock, Credentials { client, ..now }).await?;
                return Err(TokenError::UnknownClient(error));
            }
            Err(TokenError::Refused(error)) => {
                self.record_refusal(refresh, &error);
                return Err(TokenError::Refused(error));
            }
            Err(error @ TokenError::Failed(_)) => return Err(error),
        };
        if tokens.refresh.is_none() {
            // RFC 6749, section 6: without a new one, the old one stays.
            tokens.refresh.clone_from(&now.tokens.refresh);
        }
        let granted = scopes.unwrap_or_else(|| now.granted.clone());
        if let Err(error) = self.store(&lock, Credentials { tokens, granted, ..now }).await {
            tracing::warn!(server = %self.name, "a renewed token is lost when this process ends: {error}");
        }
        Ok(true)
    }

    /// Why the server refused this refresh token, if it did.
    fn refusal_of(&self, refresh: &SecretText) -> Option<OAuthError> {
        let known = self.known.lock();
        known.refused.as_ref().filter(|(token, _)| token == refresh).map(|(_, error)| error.clone())
    }

    fn record_refusal(&self, refresh: &SecretText, error: &OAuthError) {
        self.known.lock().refused = Some((refresh.clone(), error.clone()));
    }
}
