//! The bridge to the servers of a policy. Applying a policy starts new servers, stops removed ones, restarts those
//! whose section changed, and leaves all others alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ErrorData, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use toolbay_core::call::compute::ComputePool;
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::registry::Registry;
use toolbay_core::registry::view::View;
use toolbay_core::tool::{ToolDef, ToolSource};
use toolbay_policy::Policy;
use toolbay_policy::mcp_server::McpServer;
use toolbay_policy::name::MCP_PREFIX;

use super::address::ResourceAddress;
use super::elicit::ElicitationHandler;
use super::oauth::AuthorizationHandler;
use super::resources;
use super::status::{ServerState, ServerStatus};
use super::supervisor::{BridgeContext, ReducerLookup, Supervisor};
use crate::protocol::uri::spellings;

/// How long a start waits for servers beyond their own `start_timeout`.
const START_GRACE: Duration = Duration::from_secs(2);
/// How long stopping all servers may take.
const END_WAIT: Duration = Duration::from_secs(5);

/// Connects other MCP servers as sources of tools. Dropping the bridge stops them all.
pub struct Bridge {
    context: BridgeContext,
    servers: Mutex<BTreeMap<String, BridgedServer>>,
}

struct BridgedServer {
    supervisor: Arc<Supervisor>,
    task: JoinSet<()>,
}

impl Drop for BridgedServer {
    /// Drops the session explicitly: the registry holds the tools, and the tools hold the supervisor.
    fn drop(&mut self) {
        self.supervisor.shut_down();
        self.supervisor.drop_session();
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("servers", &self.servers.lock().keys()).finish_non_exhaustive()
    }
}

impl Bridge {
    /// Creates a bridge without servers, which registers tools in `registry` and connects through `connector`.
    /// [`Self::apply`] adds the servers.
    #[must_use]
    pub fn new(registry: Arc<Registry>, connector: Arc<dyn ServerConnector>) -> Self {
        let changes = watch::Sender::new(0);
        let context = BridgeContext {
            registry,
            connector,
            elicitation_handler: None,
            authorization_handler: None,
            reducer: None,
            compute: ComputePool::default(),
            uses_saved_lists: false,
            changes,
        };
        Self { context, servers: Mutex::default() }
    }

    /// Registers the saved tools of each server at once, before the server has answered. This is for programs whose
    /// clients list the tools once and early; others wait with [`Bridge::wait_settled`].
    #[must_use]
    pub fn with_saved_lists(mut self) -> Self {
        self.context.uses_saved_lists = true;
        self
    }

    /// Passes elicitations of servers to this handler. Without one they are declined.
    #[must_use]
    pub fn with_elicitation_handler(mut self, elicit: Arc<dyn ElicitationHandler>) -> Self {
        self.context.elicitation_handler = Some(elicit);
        self
    }

    /// Lets servers ask for an authorization by the user (OAuth). Without a handler, only credentials that
    /// [`login`](super::login) has saved are used.
    #[must_use]
    pub fn with_authorization_handler(mut self, handler: Arc<dyn AuthorizationHandler>) -> Self {
        self.context.authorization_handler = Some(handler);
        self
    }

    /// Sets the lookup of the reducers that the policy names.
    #[must_use]
    pub fn with_reducers(mut self, find: ReducerLookup) -> Self {
        self.context.reducer = Some(find);
        self
    }

    /// Starts, restarts and stops servers to match a policy. Returns at once: the servers start in the background and
    /// register their tools when they are connected. Must be called inside a tokio runtime.
    pub fn apply(&self, policy: &Policy) {
        self.apply_to(policy, |_| true);
    }

    /// Does the same as [`Bridge::apply`], for the servers that `wanted` accepts.
    pub fn apply_to(&self, policy: &Policy, wanted: impl Fn(&McpServer) -> bool) {
        let mut running = self.servers.lock();
        let mut before = std::mem::take(&mut *running);
        let mut removed = Vec::new();
        for server in policy.mcp_servers().filter(|server| wanted(server)) {
            let name = server.name.to_string();
            match before.remove(&name) {
                Some(same) if same.supervisor.is_configured_as(server) => {
                    running.insert(name, same);
                }
                other => {
                    // Stopped first, so that the old supervisor does not remove the tools of the new one.
                    if let Some(old) = other {
                        old.supervisor.shut_down();
                        removed.push(old);
                    }
                    running.insert(name, self.start(server));
                }
            }
        }
        drop(running);
        for old in before.into_values() {
            old.supervisor.shut_down();
            removed.push(old);
        }
        if !removed.is_empty() {
            // The task owns the stopped servers and ends after `END_WAIT`, which gives them time to exit.
            drop(tokio::spawn(tokio::time::timeout(END_WAIT, wait_ended(removed))));
        }
    }

    /// Applies the newest policy whenever `changed` is notified, one policy after the other. Changes in quick
    /// succession end with the last one. Returns on the first notification after the bridge was dropped; this function
    /// does not keep the bridge alive.
    pub async fn follow_policy(bridge: Weak<Self>, changed: Arc<Notify>, newest: impl Fn() -> Arc<Policy>) {
        loop {
            changed.notified().await;
            let Some(bridge) = bridge.upgrade() else { return };
            bridge.apply(&newest());
        }
    }

    fn start(&self, server: &Arc<McpServer>) -> BridgedServer {
        let supervisor = Arc::new(Supervisor::new(Arc::clone(server), self.context.clone()));
        supervisor.publish_state(ServerState::Connecting.of_source());
        let mut task = JoinSet::new();
        // The `BridgedServer` owns the task. It ends with the bridge or with the section of its server.
        task.spawn(Arc::clone(&supervisor).run());
        BridgedServer { supervisor, task }
    }

    /// Waits until each server has connected or failed to, for a moment longer than the longest `start_timeout`.
    pub async fn wait_started(&self) {
        let longest = self.servers.lock().values().map(|one| one.supervisor.start_timeout()).max();
        if let Some(longest) = longest {
            self.wait_settled(longest + START_GRACE).await;
        }
    }

    /// Waits until each server has connected or failed to, for at most `most`.
    pub async fn wait_settled(&self, most: Duration) {
        let all = self.supervisors();
        let settled = futures_util::future::join_all(all.iter().map(|one| one.wait_settled()));
        // A server that is late registers its tools later.
        drop(tokio::time::timeout(most, settled).await);
    }

    fn supervisors(&self) -> Vec<Arc<Supervisor>> {
        self.servers.lock().values().map(|one| Arc::clone(&one.supervisor)).collect()
    }

    /// Whether the first attempt to connect to each server has ended.
    pub(crate) fn all_attempted(&self) -> bool {
        self.servers.lock().values().all(|one| one.supervisor.was_attempted())
    }

    /// Waits until the tools of each server are registered, from its list or from the saved one, or the first attempt
    /// failed.
    pub(crate) async fn wait_listed(&self) {
        for supervisor in self.supervisors() {
            tokio::select! {
                () = supervisor.listed.cancelled() => {}
                () = supervisor.stop.cancelled() => {}
            }
        }
    }

    /// Returns a future that waits for the server of a tool name, if that server is still connecting.
    pub(crate) fn wait_for_server_of(&self, tool: &str) -> Option<impl Future<Output = ()> + use<>> {
        let (name, _) = tool.strip_prefix(MCP_PREFIX)?.split_once("__")?;
        let supervisor = Arc::clone(&self.servers.lock().get(name)?.supervisor);
        supervisor.is_connecting().then_some(async move {
            tokio::select! {
                () = supervisor.wait_settled() => {}
                () = supervisor.stop.cancelled() => {}
            }
        })
    }

    /// The counter of changes to resources and templates. Other parts of the server may count their changes in it, too.
    pub(crate) fn change_counter(&self) -> watch::Sender<u64> {
        self.context.changes.clone()
    }

    /// The servers whose resources a view may see: those with a tool that the view may call and, without a profile,
    /// those without tools.
    fn servers_in_view(&self, view: &View) -> Vec<Arc<Supervisor>> {
        let names: BTreeSet<&str> = view
            .callable()
            .filter_map(|entry| match &*entry.def.source {
                ToolSource::Mcp { server, .. } => Some(&**server),
                _ => None,
            })
            .collect();
        let seen = |one: &Arc<Supervisor>| {
            names.contains(one.name()) || (one.status().tools == 0 && view.profile().is_none())
        };
        self.supervisors().into_iter().filter(seen).collect()
    }

    /// The resources of all servers of a view, by address.
    pub(crate) fn resources(&self, view: &View) -> BTreeMap<String, Resource> {
        self.servers_in_view(view).iter().flat_map(|one| one.resources().resources.clone()).collect()
    }

    /// The resource templates of all servers of a view, by address.
    pub(crate) fn templates(&self, view: &View) -> BTreeMap<String, ResourceTemplate> {
        self.servers_in_view(view).iter().flat_map(|one| one.resources().templates.clone()).collect()
    }

    /// Reads a resource of a server of a view, if `may` allows it. `may` gets a tool that stands for reading resources,
    /// its labels, and the arguments with the URI in each of its spellings.
    ///
    /// # Errors
    /// The resource could not be read, or, with `None`, does not exist or is not allowed.
    pub(crate) async fn read(
        &self,
        view: &View,
        uri: &str,
        may: impl FnOnce(&ToolDef, &[Arc<str>], &[Value]) -> bool,
    ) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let asked = ResourceAddress::parse(uri).ok_or(None)?;
        let found = self.servers_in_view(view).into_iter().find(|one| one.name() == asked.server);
        let supervisor = found.ok_or(None)?;
        // The policy and the server see the address as the server lists it.
        let known = supervisor.resources();
        let asked = known.equal_address(uri).and_then(ResourceAddress::parse).unwrap_or(asked);
        if !resources::includes(&supervisor.server, asked.server_uri) {
            return Err(None);
        }
        let (tool, labels) = resources::resource_read_tool(&supervisor.server).ok_or(None)?;
        let spelled: Vec<_> = spellings(asked.server_uri).map(|uri| json!({"uri": uri})).collect();
        if !may(&tool, &labels, &spelled) {
            return Err(None);
        }
        supervisor.read_resource(asked).await
    }

    /// The status of each server, sorted by name.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        self.servers.lock().values().map(|one| one.supervisor.status()).collect()
    }

    /// Whether all servers are ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status().iter().all(|status| status.state == ServerState::Ready)
    }

    /// Waits for running renewals of tokens, and lets no other begin. Call this before the host ends, so that no rotated
    /// token is lost. Each renewal has its own time limit.
    pub async fn finish_renewals(&self) {
        finish_renewals(&self.supervisors()).await;
    }

    /// Removes the tools of all servers and stops them, with time to exit. Waits for running renewals of tokens.
    pub async fn close(&self) {
        let all: Vec<BridgedServer> = std::mem::take(&mut *self.servers.lock()).into_values().collect();
        all.iter().for_each(|one| one.supervisor.shut_down());
        let supervisors: Vec<_> = all.iter().map(|one| Arc::clone(&one.supervisor)).collect();
        drop(tokio::time::timeout(END_WAIT, wait_ended(all)).await);
        finish_renewals(&supervisors).await;
    }
}

/// Waits for the renewals of tokens of these servers.
async fn finish_renewals(of: &[Arc<Supervisor>]) {
    futures_util::future::join_all(of.iter().map(|one| one.finish_renewals())).await;
}

/// Waits for stopped supervisors to end. Dropping the future kills the remaining servers.
async fn wait_ended(servers: Vec<BridgedServer>) {
    let all = servers.into_iter().map(|mut one| async move { while one.task.join_next().await.is_some() {} });
    futures_util::future::join_all(all).await;
}
