//! MCP over HTTP: both eras of the protocol on one endpoint, `/mcp`, and on `/mcp/<profile>` for each profile.
//!
//! ```text
//! accept     connections: how many, how long they may be idle, how slowly they may read; the end of all
//!   route    /mcp, /healthz, /readyz, /.well-known/oauth-protected-resource
//!     request_checks  Host and Origin ─► who is it ─► which profile ─► request rate ─► quota ─► body
//!       dispatch      message ─► context ─► protocol ─► one JSON body, or events
//! ```
//!
//! The protocol answers what is asked; whose request it is, what it may take and what becomes of it when the client leaves is
//! settled here, and its credential is watched until it is answered. Nothing a client sends is believed before it has said
//! who it is, but for `Host` and `Origin`, which only take away.

mod accept;
mod allowed_hosts;
mod answer;
mod body;
mod clients;
mod connections;
mod dispatch;
mod endpoints;
mod event_body;
mod files;
mod forwarded;
mod headers;
mod reader;
mod refused;
mod request_checks;
mod route;
mod sessions;
mod socket;
mod stateless;

use std::net::SocketAddr;
use std::sync::Arc;

pub use crate::auth::MAX_KEYS_BYTES;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toolbay_policy::serve::Serve;

use crate::auth::failures::Failures;
use crate::auth::{Auth, FetchKeys};
use crate::server::Server;
use allowed_hosts::AllowedHosts;
use clients::Clients;
use connections::Connections;
use endpoints::Endpoints;
use files::Files;
use refused::RefusedRequests;
use sessions::Sessions;

/// Toolbay as an MCP server over HTTP. Cheap to clone; all clones are one server.
#[derive(Debug, Clone)]
pub struct Http {
    state: Arc<State>,
}

/// When a server ends.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// Begins the end: the server takes nothing more in, over HTTP says that it is not ready, and lets requests end.
    pub drain: CancellationToken,
    /// Ends everything at once.
    pub stop: CancellationToken,
}

/// How many of what there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Open connections.
    pub connections: usize,
    /// Sessions of clients up to 2025-11-25.
    pub sessions: usize,
    /// Sessions that requests of 2026-07-28 belong to.
    pub stateless: usize,
}

#[derive(Debug)]
struct State {
    server: Arc<Server>,
    settings: ArcSwap<Settings>,
    fetch: FetchKeys,
    files: Mutex<Files>,
    connections: Arc<Connections>,
    clients: Clients,
    failures: Failures,
    refused: RefusedRequests,
    sessions: Sessions,
    endpoints: Endpoints,
    ends: Ends,
    /// Fires when requests are not taken any more.
    draining: CancellationToken,
}

/// What the policy says now.
#[derive(Debug)]
struct Settings {
    serve: Serve,
    hosts: AllowedHosts,
    auth: Auth,
}

impl Http {
    /// A server that listens on these addresses, which are only looked at. Call in a tokio runtime.
    ///
    /// # Errors
    /// One of them can be reached by others and nobody is asked who they are, or a file that `serve` names cannot be
    /// read.
    pub fn new(
        server: Server,
        serve: Serve,
        listens: Vec<SocketAddr>,
        fetch: FetchKeys,
        ends: Ends,
    ) -> Result<Self, String> {
        check_addresses(&serve, &listens)?;
        // Before they are read: what changes from here on is noticed.
        let files = Files::new(&serve);
        let auth = Auth::read(&serve, &fetch, None)?;
        let settings = Settings { hosts: AllowedHosts::new(&serve, listens), auth, serve };
        let outboxes = server.outboxes();
        let state = State {
            // Its calls are waited for and cut off when this server ends, not another of the same tools.
            server: server.with_own_calls(),
            settings: ArcSwap::from_pointee(settings),
            fetch,
            files: Mutex::new(files),
            connections: Arc::new(Connections::new()),
            clients: Clients::new(outboxes),
            failures: Failures::default(),
            refused: RefusedRequests::default(),
            sessions: Sessions::default(),
            endpoints: Endpoints::new(ends.stop.clone()),
            draining: ends.stop.child_token(),
            ends,
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// Takes over what the policy says now, and reads the files that it names again. What does not count any more ends:
    /// calls and streams of tokens that are gone, of callers who were not asked and are now, of endpoints that are gone.
    ///
    /// # Errors
    /// As for [`Http::new`]; everything stays as it was then, and [`Http::follow`] tries again.
    pub fn reload(&self, serve: Serve) -> Result<(), String> {
        let mut files = self.state.files.lock();
        files.wanted = serve;
        self.take(&mut files)
    }

    /// Reads the files again that the policy names; what does not count any more ends.
    ///
    /// # Errors
    /// They cannot be read; everything stays as it was then.
    pub fn reload_files(&self) -> Result<(), String> {
        self.take(&mut self.state.files.lock())
    }

    /// Does what the policy wants, one at a time.
    fn take(&self, files: &mut Files) -> Result<(), String> {
        let before = self.state.settings.load_full();
        files.note(&before.serve);
        let result = self.state.settle(&files.wanted, &before);
        // What the policy wants cannot be had; in what holds, tokens may have been taken back all the same.
        if result.is_err()
            && files.wanted != before.serve
            && let Err(problem) = self.state.settle(&before.serve, &before)
        {
            tracing::warn!(problem, "the files of [serve] cannot be read");
        }
        files.went(&result);
        result
    }

    /// How many of what there are now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.state.connections.count(),
            sessions: self.state.sessions.count(),
            stateless: self.state.sessions.stateless.count(),
        }
    }

    /// How many connections the process can hold, if that is less than the policy allows: half of the descriptors it may
    /// have.
    #[must_use]
    pub fn connection_cap(&self) -> Option<usize> {
        let settings = self.state.settings.load();
        let most = self.state.connections.most(&settings.serve.limits);
        (u64::try_from(most).unwrap_or(u64::MAX) < settings.serve.limits.connections.into()).then_some(most)
    }

    /// Serves until the end ([`Ends`]) has come, and all requests have ended or their time is over.
    pub async fn run(&self, listeners: Vec<TcpListener>) {
        accept::run(Arc::clone(&self.state), listeners).await;
    }
}

impl State {
    /// Makes `serve` what holds, and ends what does not count under it.
    fn settle(&self, serve: &Serve, before: &Settings) -> Result<(), String> {
        let listens = &before.hosts.listens;
        check_addresses(serve, listens)?;
        let auth = Auth::read(serve, &self.fetch, Some(&before.auth))?;
        let hosts = AllowedHosts::new(serve, listens.clone());
        let settings = Arc::new(Settings { hosts, auth, serve: serve.clone() });
        self.settings.store(Arc::clone(&settings));
        settings.auth.replaces(&before.auth);
        self.endpoints.end_those_gone(&self.server);
        self.sessions.end_revoked();
        Ok(())
    }
}

/// Whether a server may listen there under this policy.
///
/// # Errors
/// An address can be reached by others and nobody is asked who they are; says what would allow it.
pub fn check_addresses(serve: &Serve, listens: &[SocketAddr]) -> Result<(), String> {
    let reachable = listens.iter().find(|address| !address.ip().is_loopback());
    match reachable {
        Some(address) if !serve.asks_who() && !serve.anonymous => Err(format!(
            "{address} can be reached by others, and nobody is asked who they are. Listen on a loopback address \
             (127.0.0.1:8080), or write in the policy: [serve] tokens = \"tokens.toml\", or [serve.oauth], or, if \
             everybody who can reach it may call every tool, [serve] anonymous = true"
        )),
        _ => Ok(()),
    }
}
