//! `toolbay serve --http`: where it listens, and when it ends.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Error, Result, anyhow, bail};
use listenfd::ListenFd;
use tokio::net::TcpListener;
use toolbay::Host;
use toolbay::core::registry::event::Event;
use toolbay::policy::serve::Serve;
use toolbay_mcp::http::{self, Ends, Http};
use toolbay_mcp::{FetchKeys, Server};

use crate::output;

/// Stands for the sockets that systemd opened.
const SYSTEMD: &str = "systemd";

/// Where requests come in, and who answers them.
#[derive(Debug)]
pub(super) struct Listening {
    http: Http,
    listeners: Vec<TcpListener>,
    ends: Ends,
}

/// The server, once there is one: for what is told to it from elsewhere.
#[derive(Debug, Clone, Default)]
pub(super) struct Later(Arc<OnceLock<Http>>);

impl Later {
    /// Reads the files again that the policy names for HTTP, in the background.
    pub(super) fn reload_files(&self) {
        let Some(http) = self.0.get().cloned() else { return };
        // A few small files; whoever says so does not wait for them.
        drop(tokio::task::spawn_blocking(move || told(http.reload_files())));
    }

    /// Takes over what the policy says of HTTP when it was read again.
    pub(super) fn tell(&self, event: &Event, host: &Host) {
        let (Event::PolicyReloaded { .. }, Some(http)) = (event, self.0.get()) else { return };
        if let Err(problem) = http.reload(host.policy().serve().clone()) {
            told(Err(problem));
        }
    }
}

/// Tells the operator what became of the files that `[serve]` names.
fn told(result: Result<(), String>) {
    match result {
        Ok(()) => output::note("the files of [serve] were read again"),
        Err(problem) => {
            output::complain(&format!("[serve] of before holds, until this is mended: {problem}"));
        }
    }
}

/// Begins to listen; nothing is answered yet.
pub(super) async fn listen(
    places: &[String],
    host: &Host,
    server: Server,
    later: &Later,
) -> Result<Listening> {
    let serve = host.policy().serve().clone();
    let mut listeners = Vec::new();
    for place in places {
        listeners.extend(match place.as_str() {
            SYSTEMD => inherited()?,
            place => vec![bind(place, &serve).await?],
        });
    }
    let addresses: Result<Vec<SocketAddr>, _> = listeners.iter().map(TcpListener::local_addr).collect();
    let addresses = addresses?;
    let ends = Ends::default();
    let fetch = host.clone();
    let fetch = FetchKeys::new(move |url| {
        let host = fetch.clone();
        Box::pin(async move { host.fetch(&url, http::MAX_KEYS_BYTES).await })
    });
    let http = Http::new(server, serve, addresses.clone(), fetch, ends.clone()).map_err(Error::msg)?;
    drop(later.0.set(http.clone()));
    if let Some(most) = http.connection_cap() {
        let wanted = host.policy().serve().limits.connections;
        output::note(&format!(
            "at most {most} connections are held at once, not {wanted} (`connections` of [serve.limits]): half of the \
             descriptors that this process may have. To allow more, raise its limit (`ulimit -n`)"
        ));
    }
    for address in addresses {
        output::note(&format!("listening on http://{address}/mcp"));
    }
    Ok(Listening { http, listeners, ends })
}

impl Listening {
    /// What ends it.
    pub(super) fn ends(&self) -> Ends {
        self.ends.clone()
    }

    /// Serves until the end.
    pub(super) async fn run(self) {
        tokio::select! {
            () = self.http.run(self.listeners) => {}
            () = self.http.follow(told) => {}
        }
    }
}

async fn bind(place: &str, serve: &Serve) -> Result<TcpListener> {
    let wrong = || format!("--http `{place}`: write `127.0.0.1:8080`, a port, or `{SYSTEMD}`");
    // A port alone is one of this machine's.
    let place = if place.parse::<u16>().is_ok() { format!("127.0.0.1:{place}") } else { place.to_owned() };
    let found = place.to_socket_addrs().with_context(wrong)?.next();
    let address = found.with_context(wrong)?;
    // Before anybody can connect.
    http::check_addresses(serve, &[address]).map_err(|problem| anyhow!("--http {problem}"))?;
    TcpListener::bind(address).await.with_context(|| format!("--http `{address}` cannot be listened on"))
}

/// The sockets that were open when this program was started (`LISTEN_FDS`).
fn inherited() -> Result<Vec<TcpListener>> {
    let mut given = ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..given.len() {
        let listener = given.take_tcp_listener(index).context("a socket of systemd is no TCP listener");
        let Some(listener) = listener? else { continue };
        listener.set_nonblocking(true)?;
        listeners.push(TcpListener::from_std(listener)?);
    }
    if listeners.is_empty() {
        bail!("--http {SYSTEMD}: no socket was handed over; start it from a .socket unit");
    }
    Ok(listeners)
}
