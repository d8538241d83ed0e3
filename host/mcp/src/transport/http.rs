//! MCP over HTTP: both eras of the protocol on one endpoint, `/mcp`, and on `/mcp/<profile>` for each profile.
//!
//! ```text
//! accept     connections: their number, idle and write timeouts, shutdown
//!   route    repeated headers; /mcp, /healthz, /readyz, /.well-known/oauth-protected-resource
//!     request_checks  Host and Origin ─► authentication ─► profile ─► request rate ─► quota ─► body
//!       dispatch      message ─► context ─► protocol ─► JSON body or events
//! ```
//!
//! The protocol layer answers requests. This module authenticates them, enforces quotas, and handles disconnects. It
//! watches the credential of a request until the response is complete. Nothing in a request is trusted before
//! authentication except `Host` and `Origin`, which can only cause a refusal.

mod accept;
mod accept_header;
mod allowed_hosts;
mod bodies;
mod clients;
mod connections;
mod dispatch;
mod endpoints;
mod event_body;
mod event_reader;
mod forwarded;
mod headers;
mod refusals;
mod request_checks;
mod request_source;
mod responses;
mod route;
mod sessions;
mod socket;
mod stateless;
mod watched_files;

use std::net::SocketAddr;
use std::sync::Arc;

pub use self::forwarded::client_address;
pub use crate::auth::MAX_KEYS_BYTES;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toolbay_core::audit::{self, ActionRecord, MAX_REASON};
use toolbay_policy::serve::ServePolicy;

use crate::auth::failures::AuthFailureLimiter;
use crate::auth::{Authenticator, KeyFetcher};
use crate::server::Server;
use allowed_hosts::AllowedHosts;
use clients::Clients;
use connections::Connections;
use endpoints::Endpoints;
use refusals::RefusedRequests;
use sessions::Sessions;
use watched_files::WatchedFiles;

/// An MCP server over HTTP. Cheap to clone; all clones share one server.
#[derive(Debug, Clone)]
pub struct McpHttpServer {
    state: Arc<HttpState>,
}

/// Cancellation tokens that shut a server down.
#[derive(Debug, Clone, Default)]
pub struct ShutdownSignals {
    /// Starts a graceful shutdown: the server accepts nothing more, reports over HTTP that it is not ready, and
    /// finishes requests.
    pub drain: CancellationToken,
    /// Shuts down at once.
    pub stop: CancellationToken,
}

/// Numbers of open connections and sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerCounts {
    /// Open connections.
    pub connections: usize,
    /// Sessions of legacy clients.
    pub sessions: usize,
    /// Sessions of 2026-07-28 clients.
    pub stateless: usize,
}

#[derive(Debug)]
struct HttpState {
    server: Arc<Server>,
    settings: ArcSwap<ServeSettings>,
    key_fetcher: KeyFetcher,
    files: Mutex<WatchedFiles>,
    connections: Arc<Connections>,
    clients: Clients,
    failures: AuthFailureLimiter,
    refused: RefusedRequests,
    sessions: Sessions,
    endpoints: Endpoints,
    shutdown: ShutdownSignals,
    /// Fires when requests are no longer accepted.
    draining: CancellationToken,
}

/// The current settings of the policy.
#[derive(Debug)]
struct ServeSettings {
    serve: ServePolicy,
    hosts: AllowedHosts,
    auth: Authenticator,
}

impl McpHttpServer {
    /// Creates a server for listeners on these addresses. The addresses are only checked. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// An address is reachable from other machines while authentication is off, or a file that `serve` names cannot be
    /// read.
    pub fn new(
        server: Server,
        serve: ServePolicy,
        listens: Vec<SocketAddr>,
        fetch: KeyFetcher,
        ends: ShutdownSignals,
    ) -> Result<Self, String> {
        check_addresses(&serve, &listens)?;
        // Recorded before the files are read, so that a change in between is noticed.
        let files = WatchedFiles::new(&serve);
        let auth = Authenticator::load(&serve, &fetch, None)?;
        let settings = ServeSettings { hosts: AllowedHosts::new(&serve, listens), auth, serve };
        let outboxes = server.outbox_settings();
        server.set_usage_meta(&settings.serve);
        let state = HttpState {
            // Another server with the same tools may shut down independently.
            server: server.with_own_tracker(),
            settings: ArcSwap::from_pointee(settings),
            key_fetcher: fetch,
            files: Mutex::new(files),
            connections: Arc::new(Connections::new()),
            clients: Clients::new(outboxes),
            failures: AuthFailureLimiter::default(),
            refused: RefusedRequests::default(),
            sessions: Sessions::default(),
            endpoints: Endpoints::new(ends.stop.clone()),
            draining: ends.stop.child_token(),
            shutdown: ends,
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// Applies a new policy, and reads the files that it names again. Calls and streams end if their token was removed,
    /// if they were anonymous and authentication is now required, or if their endpoint was removed.
    ///
    /// # Errors
    /// The same as for [`McpHttpServer::new`]. The old settings then stay in force, and [`McpHttpServer::follow_files`]
    /// retries.
    pub fn reload(&self, serve: ServePolicy) -> Result<(), String> {
        let mut files = self.state.files.lock();
        files.wanted = serve;
        self.apply_wanted(&mut files)
    }

    /// Reads the files that the policy names again, and ends calls and streams whose credential is no longer valid.
    ///
    /// # Errors
    /// A file cannot be read. The old settings then stay in force.
    pub fn reload_files(&self) -> Result<(), String> {
        self.apply_wanted(&mut self.state.files.lock())
    }

    /// Applies the wanted policy. The lock on `files` serializes this.
    fn apply_wanted(&self, files: &mut WatchedFiles) -> Result<(), String> {
        let before = self.state.settings.load_full();
        files.record_stamps(&before.serve);
        let result = self.state.apply(&files.wanted, &before);
        // The wanted policy failed. Tokens may still have been removed from the files of the current one.
        if result.is_err()
            && files.wanted != before.serve
            && let Err(problem) = self.state.apply(&before.serve, &before)
        {
            tracing::warn!(problem, "the files that `[serve]` names cannot be read");
        }
        files.record_result(&result);
        result
    }

    /// Current numbers of connections and sessions.
    #[must_use]
    pub fn counts(&self) -> ServerCounts {
        ServerCounts {
            connections: self.state.connections.count(),
            sessions: self.state.sessions.count(),
            stateless: self.state.sessions.stateless.count(),
        }
    }

    /// The limit on connections that follows from the descriptor limit of the process (half of it), if it is below that
    /// of the policy.
    #[must_use]
    pub fn connection_cap(&self) -> Option<usize> {
        let settings = self.state.settings.load();
        let most = self.state.connections.max_connections(&settings.serve.limits);
        (u64::try_from(most).unwrap_or(u64::MAX) < settings.serve.limits.connections.into()).then_some(most)
    }

    /// Serves until a shutdown ([`ShutdownSignals`]), and until all requests have ended or timed out.
    pub async fn run(&self, listeners: Vec<TcpListener>) {
        accept::run(Arc::clone(&self.state), listeners).await;
    }
}

impl HttpState {
    /// Puts `serve` in force, and ends requests and sessions that are no longer valid under it.
    fn apply(&self, serve: &ServePolicy, before: &ServeSettings) -> Result<(), String> {
        let listens = &before.hosts.listens;
        check_addresses(serve, listens)?;
        let auth = Authenticator::load(serve, &self.key_fetcher, Some(&before.auth))?;
        let hosts = AllowedHosts::new(serve, listens.clone());
        let settings = Arc::new(ServeSettings { hosts, auth, serve: serve.clone() });
        self.settings.store(Arc::clone(&settings));
        self.record_token_edits(&settings, before);
        self.server.set_usage_meta(&settings.serve);
        settings.auth.revoke_removed(&before.auth);
        self.endpoints.end_removed(&self.server);
        self.sessions.end_revoked();
        Ok(())
    }

    /// Records which tokens were added, removed and changed.
    fn record_token_edits(&self, now: &ServeSettings, before: &ServeSettings) {
        let Some(edits) = now.auth.token_edits(&before.auth) else { return };
        let file = now.serve.tokens.as_ref().or(before.serve.tokens.as_ref());
        self.server.pipeline.audit().record_action(ActionRecord {
            action: "tokens",
            subject: file.map(|file| audit::cut(&file.display().to_string())),
            reason: Some(edits.chars().take(MAX_REASON).collect()),
            by: "file".to_owned(),
        });
    }
}

/// Checks that a server may listen on these addresses under a policy.
///
/// # Errors
/// An address is reachable from other machines while authentication is off. The message says how to allow it.
pub fn check_addresses(serve: &ServePolicy, listens: &[SocketAddr]) -> Result<(), String> {
    let reachable = listens.iter().find(|address| !address.ip().is_loopback());
    match reachable {
        Some(address) if !serve.requires_authentication() && !serve.anonymous => Err(format!(
            "{address} is reachable from other machines without authentication; listen on a loopback address \
             (127.0.0.1:8080), or write in the policy: [serve] tokens = \"tokens.toml\", or [serve.oauth], or, to let \
             every client that can reach the address call every tool, [serve] anonymous = true"
        )),
        _ => Ok(()),
    }
}
