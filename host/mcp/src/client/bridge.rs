//! All other servers of a policy: those that are new are started, those that are gone are ended, those whose section
//! changed are begun anew, and all others are left as they are.

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
use toolbay_core::call::outside::Outside;
use toolbay_core::registry::Registry;
use toolbay_core::registry::view::View;
use toolbay_core::tool::{ToolDef, ToolSource};
use toolbay_policy::Policy;
use toolbay_policy::mcp_server::McpServer;
use toolbay_policy::name::MCP;

use super::address::Address;
use super::elicit::Elicit;
use super::resources;
use super::status::{ServerState, ServerStatus};
use super::supervisor::{FindReducer, Ports, Supervisor};

/// How long the end of all servers may take.
const END_WAIT: Duration = Duration::from_secs(5);

/// Other MCP servers as sources of tools. Dropping it ends them all.
pub struct Bridge {
    ports: Ports,
    running: Mutex<BTreeMap<String, Running>>,
}

struct Running {
    supervisor: Arc<Supervisor>,
    task: JoinSet<()>,
}

impl Drop for Running {
    /// Its tools are held by the registry, and hold it: what it drives must be let go of by itself.
    fn drop(&mut self) {
        self.supervisor.end();
        self.supervisor.let_go();
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("servers", &self.running.lock().keys()).finish_non_exhaustive()
    }
}

impl Bridge {
    /// A bridge that puts the tools of servers into `registry` and reaches them through `outside`. Without servers: give
    /// it a policy.
    #[must_use]
    pub fn new(registry: Arc<Registry>, outside: Arc<dyn Outside>) -> Self {
        let changes = watch::Sender::new(0);
        let ports = Ports { registry, outside, elicit: None, reducer: None, recalls: false, changes };
        Self { ports, running: Mutex::default() }
    }

    /// The same bridge, which puts in the last known tools of each server at once, before the server has answered. For a
    /// program whose clients ask for the tools once and early; others wait with [`Bridge::settled`].
    #[must_use]
    pub fn with_last_known(mut self) -> Self {
        self.ports.recalls = true;
        self
    }

    /// The same bridge, which passes servers' questions to a person on. Without it they are declined.
    #[must_use]
    pub fn with_elicit(mut self, elicit: Arc<dyn Elicit>) -> Self {
        self.ports.elicit = Some(elicit);
        self
    }

    /// The same bridge, which finds the reducers that sections name there.
    #[must_use]
    pub fn with_reducers(mut self, find: FindReducer) -> Self {
        self.ports.reducer = Some(find);
        self
    }

    /// Makes what runs that which a policy says. Returns at once: servers are started in the background, and their tools
    /// appear when they come. Must be called inside a tokio runtime.
    pub fn apply(&self, policy: &Policy) {
        self.apply_to(policy, |_| true);
    }

    /// As [`Bridge::apply`], for the servers that are `wanted` and no others.
    pub fn apply_to(&self, policy: &Policy, wanted: impl Fn(&McpServer) -> bool) {
        let asks_reason = policy.asks_reason(None);
        let mut running = self.running.lock();
        let mut before = std::mem::take(&mut *running);
        let mut gone = Vec::new();
        for server in policy.mcp_servers().filter(|server| wanted(server)) {
            let name = server.name.to_string();
            match before.remove(&name) {
                Some(same) if same.supervisor.is_for(server, asks_reason) => {
                    running.insert(name, same);
                }
                other => {
                    // The old one is ended before the new one brings its tools.
                    if let Some(old) = other {
                        old.supervisor.end();
                        gone.push(old);
                    }
                    running.insert(name, self.start(server, asks_reason));
                }
            }
        }
        drop(running);
        for old in before.into_values() {
            old.supervisor.end();
            gone.push(old);
        }
        if !gone.is_empty() {
            // They have a moment to end by themselves.
            drop(tokio::spawn(tokio::time::timeout(END_WAIT, ended(gone))));
        }
    }

    /// Applies the newest policy, and again whenever `changed` tells of another, one after the other: however quickly they
    /// come, what runs in the end is what the last of them says. Returns when the bridge is gone and `changed` tells of
    /// one more. Hold the bridge elsewhere; this does not keep it.
    pub async fn follow(bridge: Weak<Self>, changed: Arc<Notify>, newest: impl Fn() -> Arc<Policy>) {
        loop {
            changed.notified().await;
            let Some(bridge) = bridge.upgrade() else { return };
            bridge.apply(&newest());
        }
    }

    fn start(&self, server: &Arc<McpServer>, asks_reason: bool) -> Running {
        let supervisor = Arc::new(Supervisor::new(Arc::clone(server), asks_reason, self.ports.clone()));
        let mut task = JoinSet::new();
        // Ends with the bridge, or with the section of its server.
        task.spawn(Arc::clone(&supervisor).run());
        Running { supervisor, task }
    }

    /// Waits until each server has brought its tools or failed to, for so long at most.
    pub async fn settled(&self, most: Duration) {
        let all = self.supervisors();
        let settled = futures_util::future::join_all(all.iter().map(|one| one.settled()));
        // Who is late comes later.
        drop(tokio::time::timeout(most, settled).await);
    }

    fn supervisors(&self) -> Vec<Arc<Supervisor>> {
        self.running.lock().values().map(|one| Arc::clone(&one.supervisor)).collect()
    }

    /// Whether each server was tried once.
    pub(crate) fn is_tried(&self) -> bool {
        self.running.lock().values().all(|one| one.supervisor.is_tried())
    }

    /// Waits until the tools of each server are there, be it as they were last known, or could not be had.
    pub(crate) async fn listed(&self) {
        for supervisor in self.supervisors() {
            tokio::select! {
                () = supervisor.listed.cancelled() => {}
                () = supervisor.stop.cancelled() => {}
            }
        }
    }

    /// What to wait for before a tool is unknown that is not there: the server whose name it bears, which is being
    /// started.
    pub(crate) fn coming(&self, tool: &str) -> Option<impl Future<Output = ()> + use<>> {
        let (name, _) = tool.strip_prefix(MCP)?.split_once("__")?;
        let supervisor = Arc::clone(&self.running.lock().get(name)?.supervisor);
        supervisor.is_coming().then_some(async move {
            tokio::select! {
                () = supervisor.settled() => {}
                () = supervisor.stop.cancelled() => {}
            }
        })
    }

    /// What counts the changes of what servers offer beside tools; others may count theirs there, too.
    pub(crate) fn changes(&self) -> watch::Sender<u64> {
        self.ports.changes.clone()
    }

    /// The servers whose resources a view may see: those of which it may call a tool; and, where no profile narrows it,
    /// those that have none.
    fn in_view(&self, view: &View) -> Vec<Arc<Supervisor>> {
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

    /// The resources of all servers of a view, by their addresses.
    pub(crate) fn resources(&self, view: &View) -> BTreeMap<String, Resource> {
        self.in_view(view).iter().flat_map(|one| one.offered().resources.clone()).collect()
    }

    /// The templates of all servers of a view, by their addresses.
    pub(crate) fn templates(&self, view: &View) -> BTreeMap<String, ResourceTemplate> {
        self.in_view(view).iter().flat_map(|one| one.offered().templates.clone()).collect()
    }

    /// Reads a resource of a server of a view, if `may` says so of a tool that stands for reading, with its labels and
    /// arguments.
    ///
    /// # Errors
    /// Why it could not be read; `None`: there is no such resource, or it may not be read.
    pub(crate) async fn read(
        &self,
        view: &View,
        uri: &str,
        may: impl FnOnce(&ToolDef, &[Arc<str>], &Value) -> bool,
    ) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let asked = Address::parse(uri).ok_or(None)?;
        let found = self.in_view(view).into_iter().find(|one| one.name() == asked.server);
        let supervisor = found.filter(|one| one.server.takes_resource(asked.own)).ok_or(None)?;
        let (tool, labels) = resources::as_tool(&supervisor.server).ok_or(None)?;
        if !may(&tool, &labels, &json!({"uri": asked.own})) {
            return Err(None);
        }
        supervisor.read(asked).await
    }

    /// What is known of each server, in the order of their names.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        self.running.lock().values().map(|one| one.supervisor.status()).collect()
    }

    /// Whether all servers are ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status().iter().all(|status| status.state == ServerState::Ready)
    }

    /// Ends all servers, each with a moment to end by itself. Their tools go.
    pub async fn close(&self) {
        let all: Vec<Running> = std::mem::take(&mut *self.running.lock()).into_values().collect();
        all.iter().for_each(|one| one.supervisor.end());
        drop(tokio::time::timeout(END_WAIT, ended(all)).await);
    }
}

/// Waits for the end of supervisors that were told to end. Dropped before, it kills what is left.
async fn ended(gone: Vec<Running>) {
    let all = gone.into_iter().map(|mut one| async move { while one.task.join_next().await.is_some() {} });
    futures_util::future::join_all(all).await;
}
