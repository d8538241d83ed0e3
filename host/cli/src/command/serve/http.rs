//! `toolbay serve --http`: the listeners and their end.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Error, Result, anyhow, bail};
use listenfd::ListenFd;
use tokio::net::TcpListener;
use toolbay::Host;
use toolbay::core::registry::event::HostEvent;
use toolbay::policy::serve::ServePolicy;
use toolbay_mcp::http::{self, McpHttpServer, ShutdownSignals};
use toolbay_mcp::{KeyFetcher, Server};

use crate::output::{Printer, host_failure};

/// The address that means the sockets of systemd.
const SYSTEMD: &str = "systemd";

/// The listeners and the HTTP server behind them.
#[derive(Debug)]
pub(super) struct HttpListeners {
    http: McpHttpServer,
    printer: Printer,
    listeners: Vec<TcpListener>,
    endpoints: Vec<String>,
    shutdown: ShutdownSignals,
}

/// The HTTP server once it exists, for reloads from other tasks.
#[derive(Debug, Clone)]
pub(super) struct HttpHandle {
    printer: Printer,
    server: Arc<OnceLock<McpHttpServer>>,
}

impl HttpHandle {
    pub(super) fn new(printer: Printer) -> Self {
        Self { printer, server: Arc::default() }
    }

    /// Reloads the files of `[serve]` in the background.
    pub(super) fn reload_files(&self) {
        let Some(http) = self.server.get().cloned() else { return };
        // The caller does not wait: the files are small and the result is reported.
        let printer = self.printer;
        drop(tokio::task::spawn_blocking(move || report_reload(printer, http.reload_files())));
    }

    /// Applies `[serve]` of a reloaded policy.
    pub(super) fn reload_policy(&self, event: &HostEvent, host: &Host) {
        let (HostEvent::PolicyReloaded { .. }, Some(http)) = (event, self.server.get()) else { return };
        if let Err(problem) = http.reload(host.policy().serve().clone()) {
            report_reload(self.printer, Err(problem));
        }
    }
}

/// Reports whether the files of `[serve]` were reloaded.
fn report_reload(printer: Printer, result: Result<(), String>) {
    match result {
        Ok(()) => printer.note("the files of [serve] were read again"),
        Err(problem) => {
            printer.error(&format!("[serve] stays as before until this is corrected: {problem}"));
        }
    }
}

/// Binds the listeners. They accept connections once [`HttpListeners::run`] is polled.
pub(super) async fn listen(
    printer: Printer,
    addresses: &[String],
    host: &Host,
    server: Server,
    handle: &HttpHandle,
) -> Result<HttpListeners> {
    let serve = host.policy().serve().clone();
    let mut listeners = Vec::new();
    for address in addresses {
        listeners.extend(match address.as_str() {
            SYSTEMD => inherited()?,
            address => vec![bind(address, &serve).await?],
        });
    }
    let addresses: Result<Vec<SocketAddr>, _> = listeners.iter().map(TcpListener::local_addr).collect();
    let addresses = addresses?;
    let shutdown = ShutdownSignals::default();
    let fetch = host.clone();
    let fetch = KeyFetcher::new(move |url| {
        let host = fetch.clone();
        Box::pin(async move { host.fetch(&url, http::MAX_KEYS_BYTES).await })
    });
    let http =
        McpHttpServer::new(server, serve, addresses.clone(), fetch, shutdown.clone()).map_err(Error::msg)?;
    drop(handle.server.set(http.clone()));
    if let Some(most) = http.connection_cap() {
        let wanted = host.policy().serve().limits.connections;
        printer.note(&format!(
            "at most {most} connections are held at once, not {wanted} (`connections` of [serve.limits]): half of the \
             descriptors that this process may have. To allow more, raise its limit (`ulimit -n`)"
        ));
    }
    let endpoints: Vec<String> = addresses.iter().map(|address| format!("http://{address}/mcp")).collect();
    Ok(HttpListeners { printer, http, listeners, endpoints, shutdown })
}

impl HttpListeners {
    /// The addresses of its MCP endpoints.
    pub(super) fn endpoints(&self) -> Vec<String> {
        self.endpoints.clone()
    }

    /// Says where the server listens, once nothing more can refuse its start.
    pub(super) fn announce(&self) {
        self.endpoints.iter().for_each(|endpoint| self.printer.note(&format!("listening on {endpoint}")));
    }

    /// The signals that end the server.
    pub(super) fn shutdown(&self) -> ShutdownSignals {
        self.shutdown.clone()
    }

    /// Serves until the server ends.
    pub(super) async fn run(self) {
        let printer = self.printer;
        tokio::select! {
            () = self.http.run(self.listeners) => {}
            () = self.http.follow_files(move |result| report_reload(printer, result)) => {}
        }
    }
}

async fn bind(address: &str, serve: &ServePolicy) -> Result<TcpListener> {
    let wrong = || format!("--http `{address}`: write `127.0.0.1:8080`, a port, or `{SYSTEMD}`");
    // A port alone listens on the loopback address.
    let address =
        if address.parse::<u16>().is_ok() { format!("127.0.0.1:{address}") } else { address.to_owned() };
    let found = address.to_socket_addrs().with_context(wrong)?.next();
    let address = found.with_context(wrong)?;
    // Checked before a client can connect.
    http::check_addresses(serve, &[address]).map_err(|problem| anyhow!("--http {problem}"))?;
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("--http `{address}` cannot be listened on")).map_err(host_failure)
}

/// The sockets that the process inherits (`LISTEN_FDS`).
fn inherited() -> Result<Vec<TcpListener>> {
    let mut given = ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..given.len() {
        let listener = given.take_tcp_listener(index).context("a socket of systemd is not a TCP listener");
        let Some(listener) = listener? else { continue };
        listener.set_nonblocking(true)?;
        listeners.push(TcpListener::from_std(listener)?);
    }
    if listeners.is_empty() {
        bail!("--http {SYSTEMD}: no socket was handed over; start it from a .socket unit");
    }
    Ok(listeners)
}
