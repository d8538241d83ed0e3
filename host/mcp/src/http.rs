//! MCP over HTTP: both eras of the protocol on one endpoint, `/mcp`, and on `/mcp/<profile>` for each profile.
//!
//! ```text
//! accept     connections: how many, how long they may be idle, how slowly they may read; the end of all
//!   route    /mcp, /healthz, /readyz, /.well-known/oauth-protected-resource
//!     front  Host and Origin ─► who is it ─► which profile ─► pace ─► body ─► share ─► rmcp ─► response
//! ```
//!
//! rmcp answers what is asked; whose request it is, what it may take and what becomes of it when the client leaves is
//! settled before it gets there. Nothing a client sends is believed before it has said who it is, but for `Host` and
//! `Origin`, which only take away.

mod accept;
mod answer;
mod body;
mod clients;
mod connections;
mod front;
mod names;
mod route;
mod sessions;
mod socket;

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toolbay_core::serve::Serve;

pub use crate::auth::MAX_KEYS_BYTES;
use crate::auth::{Auth, FetchKeys};
use crate::server::Server;

use body::Room;
use clients::Clients;
use connections::Connections;
use names::Names;
use sessions::Sessions;

/// Toolbay as an MCP server over HTTP. Cheap to clone; all clones are one server.
#[derive(Debug, Clone)]
pub struct Http {
    state: Arc<State>,
}

/// When a server over HTTP ends.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// Begins the end: the server says that it is not ready, and lets requests end.
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
}

#[derive(Debug)]
struct State {
    server: Server,
    listens: Vec<SocketAddr>,
    settings: ArcSwap<Settings>,
    fetch: FetchKeys,
    room: Room,
    connections: Arc<Connections>,
    clients: Clients,
    sessions: Arc<Sessions>,
    ends: Ends,
    /// Fires when requests are not taken any more.
    draining: CancellationToken,
}

/// What the policy says now.
#[derive(Debug)]
struct Settings {
    serve: Serve,
    names: Names,
    auth: Auth,
}

impl Http {
    /// A server that listens on these addresses, which are only looked at. Call in a tokio runtime.
    ///
    /// # Errors
    /// One of them can be reached by others and nobody is asked who they are, or a file that `serve` names can not be
    /// read.
    pub fn new(
        server: Server,
        serve: Serve,
        listens: Vec<SocketAddr>,
        fetch: FetchKeys,
        ends: Ends,
    ) -> Result<Self, String> {
        check_addresses(&serve, &listens)?;
        let room = Room::new(&serve.limits);
        let auth = Auth::read(&serve, &fetch, None)?;
        let settings = Settings { names: Names::new(&serve, &listens), auth, serve };
        let state = State {
            server,
            listens,
            settings: ArcSwap::from_pointee(settings),
            fetch,
            room,
            connections: Arc::new(Connections::new()),
            clients: Clients::default(),
            sessions: Arc::default(),
            draining: ends.stop.child_token(),
            ends,
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// Takes over what the policy says now, and reads the files that it names again. How much room there is for bodies
    /// stays as it was.
    ///
    /// # Errors
    /// As for [`Http::new`]; everything stays as it was then.
    pub fn reload(&self, serve: Serve) -> Result<(), String> {
        let state = &self.state;
        check_addresses(&serve, &state.listens)?;
        let before = state.settings.load();
        let auth = Auth::read(&serve, &state.fetch, Some(&before.auth))?;
        let settings = Settings { names: Names::new(&serve, &state.listens), auth, serve };
        state.settings.store(Arc::new(settings));
        Ok(())
    }

    /// Reads the files again that the policy names: tokens that are gone do not count any more, and what their holders
    /// have open is closed.
    ///
    /// # Errors
    /// They can not be read; everything stays as it was then.
    pub fn reload_files(&self) -> Result<(), String> {
        self.reload(self.state.settings.load().serve.clone())
    }

    /// How many of what there are now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { connections: self.state.connections.count(), sessions: self.state.sessions.count() }
    }

    /// Serves until the end ([`Ends`]) has come, and all requests have ended or their time is over.
    pub async fn run(&self, listeners: Vec<TcpListener>) {
        accept::run(Arc::clone(&self.state), listeners).await;
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
