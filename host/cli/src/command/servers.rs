//! Connections to the policy's MCP servers for the time of a command.

use toolbay::Host;
use toolbay_mcp::Bridge;
use toolbay_mcp::client::{ServerState, ServerStatus};
use toolbay_policy::mcp_server::McpServer;
use toolbay_policy::name::MCP_PREFIX;

use crate::output;

/// The connections of one command. Close them before it ends: [`ServerConnections::close`].
#[derive(Debug)]
pub(crate) struct ServerConnections(Option<Bridge>);

/// Connects to the servers that `wanted` selects, and waits until each is ready or has failed.
pub(crate) async fn connect(host: &Host, wanted: impl Fn(&McpServer) -> bool) -> ServerConnections {
    let policy = host.policy();
    if !policy.mcp_servers().any(|server| wanted(server)) {
        return ServerConnections(None);
    }
    let bridge = host.mcp_bridge();
    bridge.apply_to(&policy, wanted);
    bridge.wait_started().await;
    for status in bridge.status().iter().filter(|status| status.state != ServerState::Ready) {
        let why = status.reason.as_deref().unwrap_or("it is still starting");
        output::print_error(&format!("the MCP server `{}` is not available: {why}", status.name));
    }
    ServerConnections(Some(bridge))
}

/// Connects to all servers.
pub(crate) async fn connect_all(host: &Host) -> ServerConnections {
    connect(host, |_| true).await
}

/// Connects to the servers of the named tools. `tool_search`, `tool_describe` and `tool_call` need all servers.
pub(crate) async fn connect_for(host: &Host, tools: &[&str]) -> ServerConnections {
    let any = tools.iter().any(|tool| matches!(*tool, "tool_search" | "tool_describe" | "tool_call"));
    let bears = |server: &McpServer| {
        let prefix = format!("{MCP_PREFIX}{}__", server.name);
        tools.iter().any(|tool| tool.starts_with(&prefix))
    };
    connect(host, |server| any || bears(server)).await
}

impl ServerConnections {
    /// The states of the servers.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        self.0.as_ref().map(Bridge::status).unwrap_or_default()
    }

    /// Closes the connections. Each server has a moment to exit on its own.
    pub(crate) async fn close(self) {
        if let Some(bridge) = self.0 {
            bridge.close().await;
        }
    }
}
