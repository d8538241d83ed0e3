//! Connections to the policy's MCP servers for the time of a command.
//!
//! A signal that would end the command waits for a renewal of tokens: a server that has sent a rotated token accepts no
//! older one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use toolbay::{Filter, Host, View};
use toolbay_mcp::Bridge;
use toolbay_mcp::client::{ServerState, ServerStatus};
use toolbay_policy::mcp_server::McpServer;
use toolbay_policy::name::MCP_PREFIX;

use super::args::SetupArgs;
use super::host::{self, HostPurpose};
use super::load::load;
use super::load_report::ReportLevel;
use super::paths::plugin_folder;
use super::plugins::profile;
use crate::output::Printer;

/// Fires when a signal has ended the command.
static INTERRUPTED: Notify = Notify::const_new();

/// The connections of one command. Close them before it ends: [`ServerConnections::close`].
#[derive(Debug)]
pub(crate) struct ServerConnections(Option<Arc<Bridge>>);

/// Waits for a signal that ends the command. Without connections, signals end the process at once, as usual.
pub(crate) async fn interrupted() {
    INTERRUPTED.notified().await;
}

/// Waits for SIGINT or SIGTERM and for the renewals that are running then.
async fn watch_signals(bridge: Weak<Bridge>) {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    if let Some(bridge) = bridge.upgrade() {
        bridge.finish_renewals().await;
    }
    INTERRUPTED.notify_one();
}

/// Connects to the servers that `wanted` selects, and waits until each is ready or has failed.
pub(crate) async fn connect(
    printer: Printer,
    host: &Host,
    wanted: impl Fn(&McpServer) -> bool,
) -> ServerConnections {
    connect_within(printer, host, wanted, Duration::MAX).await
}

/// Does the same for at most `most`. Servers that are not ready are named with their states.
async fn connect_within(
    printer: Printer,
    host: &Host,
    wanted: impl Fn(&McpServer) -> bool,
    most: Duration,
) -> ServerConnections {
    let policy = host.policy();
    if !policy.mcp_servers().any(|server| wanted(server)) {
        return ServerConnections(None);
    }
    let bridge = Arc::new(host.mcp_bridge());
    // The task ends with the command: signals are its own from now on.
    drop(tokio::spawn(watch_signals(Arc::downgrade(&bridge))));
    bridge.apply_to(&policy, wanted);
    // A server that is late delays nothing but its own tools.
    drop(tokio::time::timeout(most, bridge.wait_started()).await);
    for status in bridge.status().iter().filter(|status| status.state != ServerState::Ready) {
        let why = status.reason.as_deref().unwrap_or("it is still starting; `--source-wait` waits longer");
        printer.error(&format!("the MCP server `{}` is not available: {why}", status.name));
    }
    ServerConnections(Some(bridge))
}

/// Connects to all servers, and waits for them as long as the command line says.
pub(crate) async fn connect_all(args: &SetupArgs, host: &Host) -> ServerConnections {
    connect_within(args.printer, host, |_| true, args.source_wait).await
}

/// Builds the host, and loads its plugins and documents while the servers start: no source waits for another one.
pub(crate) async fn load_host_and_connect(
    args: &SetupArgs,
    level: ReportLevel,
) -> Result<(Host, ServerConnections)> {
    let host = host::host(args, HostPurpose::Inspect)?;
    // Servers must not write files that are still to be loaded.
    host.protect_sources(&plugin_folder(args)?);
    let (loaded, servers) = tokio::join!(load(args, &host, level), connect_all(args, &host));
    match loaded {
        Ok(()) => Ok((host, servers)),
        Err(error) => {
            servers.close().await;
            Err(error)
        }
    }
}

/// Connects to the servers of the named tools. `tool_search`, `tool_describe` and `tool_call` need all servers.
pub(crate) async fn connect_for(args: &SetupArgs, host: &Host, tools: &[&str]) -> ServerConnections {
    let any = tools.iter().any(|tool| matches!(*tool, "tool_search" | "tool_describe" | "tool_call"));
    let bears = |server: &McpServer| {
        let prefix = format!("{MCP_PREFIX}{}__", server.name);
        tools.iter().any(|tool| tool.starts_with(&prefix))
    };
    if any {
        return connect_all(args, host).await;
    }
    connect(args.printer, host, bears).await
}

/// The view of the profile on the command line.
pub(crate) fn view(args: &SetupArgs, host: &Host) -> Result<View> {
    Ok(host.view(Filter::for_profile(profile(args, &host.policy())?)))
}

/// A host, and the same view of it with the tools of the policy's MCP servers.
pub(crate) async fn load_view_with_servers(args: &SetupArgs, level: ReportLevel) -> Result<(Host, View)> {
    let (host, servers) = load_host_and_connect(args, level).await?;
    let view = view(args, &host);
    servers.close().await;
    Ok((host, view?))
}

impl ServerConnections {
    /// The states of the servers.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        self.0.as_ref().map(|bridge| bridge.status()).unwrap_or_default()
    }

    /// Closes the connections. Each server has a moment to exit on its own.
    pub(crate) async fn close(self) {
        if let Some(bridge) = self.0 {
            bridge.close().await;
        }
    }
}
