//! Other MCP servers, joined: who reaches them is the host, who speaks to them is the adapter.

use std::sync::Arc;
use std::time::Duration;

use toolbay::Host;
use toolbay_mcp::Bridge;
use toolbay_mcp::client::{ServerState, ServerStatus};
use toolbay_policy::mcp_server::McpServer;
use toolbay_policy::name::MCP;

use crate::output;

/// Longest time that a command waits for servers beyond what their sections give them.
const GRACE: Duration = Duration::from_secs(2);

/// A bridge that is ended before the command is; see [`Attached::close`].
#[derive(Debug)]
pub(crate) struct Attached(Option<Bridge>);

/// A bridge to no servers yet.
pub(crate) fn bridge(host: &Host) -> Bridge {
    let reducer = |name: &str| toolbay::reducers::native("x", name).ok().map(|entry| entry.reducer);
    Bridge::new(Arc::clone(host.registry()), host.outside()).with_reducers(Arc::new(reducer))
}

/// Connects to the servers that are wanted and waits until each has brought its tools or failed to.
pub(crate) async fn attach(host: &Host, wanted: impl Fn(&McpServer) -> bool) -> Attached {
    let policy = host.policy();
    let longest =
        policy.mcp_servers().filter(|server| wanted(server)).map(|server| server.start_timeout).max();
    let Some(longest) = longest else { return Attached(None) };
    let bridge = bridge(host);
    bridge.apply_to(&policy, wanted);
    bridge.settled(longest + GRACE).await;
    for status in bridge.status().iter().filter(|status| status.state != ServerState::Ready) {
        let why = status.reason.as_deref().unwrap_or("it is still being started");
        output::complain(&format!("the MCP server `{}` is not there: {why}", status.name));
    }
    Attached(Some(bridge))
}

/// Connects to all servers.
pub(crate) async fn attach_all(host: &Host) -> Attached {
    attach(host, |_| true).await
}

/// Connects to the servers that calls of these tools need: those whose names they bear; all of them for a tool that
/// finds or calls others.
pub(crate) async fn attach_for(host: &Host, tools: &[&str]) -> Attached {
    let any = tools.iter().any(|tool| matches!(*tool, "tool_search" | "tool_describe" | "tool_call"));
    let bears = |server: &McpServer| {
        let prefix = format!("{MCP}{}__", server.name);
        tools.iter().any(|tool| tool.starts_with(&prefix))
    };
    attach(host, |server| any || bears(server)).await
}

impl Attached {
    /// What is known of the servers.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        self.0.as_ref().map(Bridge::status).unwrap_or_default()
    }

    /// Ends them, each with a moment to end by itself.
    pub(crate) async fn close(self) {
        if let Some(bridge) = self.0 {
            bridge.close().await;
        }
    }
}
