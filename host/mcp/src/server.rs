//! Toolbay as an MCP server, whatever the transport: what all its clients share.

pub(crate) mod calls;
pub(crate) mod changes;
pub(crate) mod client_dialog;
pub(crate) mod connection;
pub(crate) mod convert;
pub(crate) mod outbox;
pub(crate) mod outputs;
pub(crate) mod prompts_and_resources;
pub(crate) mod request;
pub(crate) mod session_attachments;
pub(crate) mod tasks;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rmcp::model::{ErrorData, Resource, ResourceContents, ResourceTemplate};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolbay_core::call::DEFAULT_BUDGET_CHARS;
use toolbay_core::pipeline::Pipeline;
use toolbay_core::registry::view::{Filter, View};
use toolbay_core::registry::{Catalog, Entry, Registry};
use toolbay_core::session::Session;
use toolbay_core::tool::{ToolDef, ToolSource};
use toolbay_policy::permission::{Action, DEFAULT_ASK_TIMEOUT};

use crate::client::Bridge;
use crate::protocol::outbound::MessageSink;
use crate::protocol::request_state::RequestStateSigner;
use crate::server::calls::ClientContext;
use crate::server::connection::McpConnection;
use crate::server::outbox::OutboxSettings;
use crate::server::session_attachments::SessionAttachments;
use crate::server::tasks::Tasks;

/// How the server presents itself, and its bounds.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the client may tell the model about this server.
    pub instructions: Option<String>,
    /// Calls of one connection that may run at once; one more is answered `busy`.
    pub max_in_flight: usize,
    /// Tools in one page of `tools/list`.
    pub page_size: usize,
    /// Longest line that is read, in bytes; a longer one is answered with an error. Must leave room for the largest
    /// arguments that the policy allows (`args_bytes`), escapes included.
    pub max_line_bytes: usize,
    /// Characters of text that one result may have.
    pub budget_chars: usize,
    /// How long a client of 2026-07-28 may keep the list of tools without asking again.
    pub list_ttl: Duration,
    /// How long a list waits for plugins and other servers that are still coming, from the start of the server; then it has
    /// what is there, and clients that can be told hear of the rest.
    pub list_wait: Duration,
    /// Whether clients are asked when the rules of the policy say `ask`; else nobody is.
    pub ask: bool,
    /// How long a client of 2026-07-28 may take to answer what it is asked.
    pub ask_life: Duration,
    /// How long a call runs before it becomes a task, for clients that know tasks; those of tools with the tag `slow`
    /// become one at once.
    pub task_after: Duration,
    /// How long a task is kept from its beginning; a call that runs longer is ended.
    pub task_life: Duration,
    /// Whether lines of the log of native tools go to clients that want to hear them. The protocol will give that up.
    pub logging: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            instructions: None,
            // Four times what the host runs at once by default: enough to keep it busy, few enough to hold in memory.
            max_in_flight: 256,
            // Far above what clients take (40 to 128 tools); all of an ordinary registry fit into one page.
            page_size: 1000,
            // Four times the default of `args_bytes`.
            max_line_bytes: 16 << 20,
            budget_chars: DEFAULT_BUDGET_CHARS,
            // Changes are announced; this is for clients that do not listen.
            list_ttl: Duration::from_secs(60),
            // Some clients give a list up after five seconds.
            list_wait: Duration::from_secs(4),
            ask: true,
            // As long as the policy waits for an answer by default.
            ask_life: DEFAULT_ASK_TIMEOUT,
            // Clients give a request up after sixty seconds, some after thirty.
            task_after: Duration::from_secs(10),
            task_life: Duration::from_secs(3600),
            logging: false,
        }
    }
}

/// Toolbay as an MCP server. Cheap to clone; serves any number of connections at once.
#[derive(Debug, Clone)]
pub struct Server {
    pub(crate) registry: Arc<Registry>,
    pub(crate) pipeline: Pipeline,
    pub(crate) filter: Arc<Filter>,
    pub(crate) options: Arc<Options>,
    changes: watch::Sender<u64>,
    pub(crate) state_signer: Arc<RequestStateSigner>,
    pub(crate) tasks: Arc<Tasks>,
    /// The files that tools made for sessions.
    pub(crate) attachments: Arc<SessionAttachments>,
    pub(crate) calls: RunningCalls,
    /// Fires when the tools are there.
    loaded: CancellationToken,
    /// The bridge to other servers, if there is one.
    bridge: Weak<Bridge>,
    /// Until when a list waits for tools that are still coming.
    list_by: Instant,
}

/// The calls that run, whether or not somebody still waits for their answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningCalls {
    pub(crate) tracker: TaskTracker,
    /// Fires when those that still run are cancelled because the server ends; they are answered with an error.
    pub(crate) cut_off: CancellationToken,
}

impl RunningCalls {
    fn new() -> Self {
        let calls = Self::default();
        // It takes more all the same; so it can be waited for at any time.
        calls.tracker.close();
        calls
    }
}

impl Server {
    /// A server for what `filter` lets through of `registry`.
    #[must_use]
    pub fn new(registry: Arc<Registry>, pipeline: Pipeline, filter: Filter, options: Options) -> Self {
        let loaded = CancellationToken::new();
        loaded.cancel();
        Self {
            registry,
            pipeline,
            filter: Arc::new(filter),
            list_by: Instant::now() + options.list_wait,
            options: Arc::new(options),
            changes: watch::Sender::new(0),
            state_signer: Arc::new(RequestStateSigner::new()),
            tasks: Arc::default(),
            attachments: Arc::default(),
            calls: RunningCalls::new(),
            loaded,
            bridge: Weak::new(),
        }
    }

    /// The same while plugins are still being loaded, until `loaded` fires: a call waits for its tool, and a list for
    /// [`Options::list_wait`] from now at most.
    #[must_use]
    pub fn waiting_for(self, loaded: CancellationToken) -> Self {
        Self { loaded, list_by: Instant::now() + self.options.list_wait, ..self }
    }

    /// The same with the servers of a bridge: lists and calls wait for those that are being started, as they do for
    /// plugins, and clients read their resources. Give it the policy first; the server does not keep it.
    #[must_use]
    pub fn bridged(self, bridge: &Arc<Bridge>) -> Self {
        let (changes, list_by) = (bridge.changes(), Instant::now() + self.options.list_wait);
        Self { bridge: Arc::downgrade(bridge), changes, list_by, ..self }
    }

    /// The same under a profile of the policy; `None`: it has none of this name, or this server is bound to another.
    pub(crate) fn with_profile(self: &Arc<Self>, profile: Option<&str>) -> Option<Arc<Self>> {
        let Some(name) = profile else { return Some(Arc::clone(self)) };
        let profile = Arc::clone(self.catalog().profile(name)?);
        if self.filter.profile.as_ref().is_some_and(|own| **own.name() != *name) {
            return None;
        }
        let filter = Arc::new(Filter { profile: Some(profile), ..Filter::clone(&self.filter) });
        Some(Arc::new(Self { filter, ..Self::clone(self) }))
    }

    /// Whether the tools are there.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.is_cancelled()
    }

    /// Waits until the tools are there. Whoever gives up waiting drops the request.
    pub(crate) async fn loaded(&self) {
        self.loaded.cancelled().await;
    }

    /// Whether a list is whole: all plugins are loaded, and all other servers were tried.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_loaded() && self.bridge().is_none_or(|bridge| bridge.is_tried())
    }

    /// Waits until a list can be given out: it has all that is to come, or was waited for long enough.
    pub(crate) async fn listable(&self) {
        let all = async {
            self.loaded().await;
            if let Some(bridge) = self.bridge() {
                bridge.listed().await;
            }
        };
        // Who is late is announced.
        drop(tokio::time::timeout_at(self.list_by, all).await);
    }

    /// Waits until a tool can be called: a plugin's, which calls no others, when it is there; one of another server once
    /// that server was tried; every other when all plugins are there, and as a list waits.
    pub(crate) async fn callable(&self, tool: &str) {
        let mut changes = self.changes();
        loop {
            let coming = self.bridge().and_then(|bridge| bridge.coming(tool));
            let there = self.stands_alone(tool);
            if there {
                return;
            }
            if self.is_loaded() && coming.is_none() {
                // It may be one that finds or calls those of other servers.
                return self.listable().await;
            }
            let tried = async {
                match coming {
                    Some(coming) => coming.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.loaded(), if !self.is_loaded() => {}
                () = tried => {}
                changed = changes.changed() => {
                    if changed.is_err() {
                        self.loaded().await;
                    }
                }
            }
        }
    }

    /// Whether a tool is there, and what it does depends on no plugin that may still come.
    fn stands_alone(&self, tool: &str) -> bool {
        let profile = self.filter.profile.as_ref().map(|profile| &**profile.name());
        let calls_others = |entry: &Entry| entry.invoker.invoke_grant(profile).is_some();
        let comes_alone =
            |source: &ToolSource| source.plugin().is_some() || matches!(source, ToolSource::Mcp { .. });
        let view = self.view();
        view.get_callable(tool).is_some_and(|entry| comes_alone(&entry.def.source) && !calls_others(entry))
    }

    /// The bridge to other servers, while there is one.
    pub(crate) fn bridge(&self) -> Option<Arc<Bridge>> {
        self.bridge.upgrade()
    }

    /// All resources of a view, those of other servers included, in the order of their addresses.
    pub(crate) fn resources(&self, view: &View) -> BTreeMap<String, Resource> {
        let mut all = prompts_and_resources::resources(view);
        self.bridge().into_iter().for_each(|bridge| all.extend(bridge.resources(view)));
        all
    }

    /// Reads a resource of another server, as the rules of permission say.
    ///
    /// # Errors
    /// Why it could not be read; `None`: there is no such resource, or it may not be read.
    pub(crate) async fn read_of_others(&self, uri: &str) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let bridge = self.bridge().ok_or(None)?;
        let catalog = self.catalog();
        let view = self.view_on(Arc::clone(&catalog));
        let profile = view.profile().and_then(|name| catalog.profile(name));
        let permissions = profile.map(|profile| &profile.permissions);
        let may = |tool: &ToolDef, labels: &[Arc<str>], args: &Value| {
            // Nobody is asked about a resource: what the rules ask about is not read.
            self.pipeline.action_for(permissions, tool, labels, args) == Action::Allow
        };
        bridge.read(&view, uri, may).await
    }

    /// All templates of a view, those of other servers included, in the order of their addresses.
    pub(crate) fn templates(&self, view: &View) -> BTreeMap<String, ResourceTemplate> {
        let mut all = prompts_and_resources::templates(view);
        self.bridge().into_iter().for_each(|bridge| all.extend(bridge.templates(view)));
        all
    }

    /// The same, whose calls are waited for and cut off apart.
    pub(crate) fn with_own_calls(self) -> Arc<Self> {
        Arc::new(Self { calls: RunningCalls::new(), ..self })
    }

    /// Tells the clients that the list of tools has changed: those whose list it is. Call it after the registry may
    /// have changed; changes in quick succession are told once, and what does not show in a list is not told.
    pub fn notify_changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// The connection of a client to which messages go by `sink`; `closed` fires when the client has gone.
    pub(crate) fn connection(
        self: &Arc<Self>,
        owner: SessionOwner,
        sink: Arc<dyn MessageSink>,
        closed: CancellationToken,
    ) -> McpConnection {
        McpConnection::new(ClientContext::new(Arc::clone(self), owner, closed.clone()), sink, closed)
    }

    pub(crate) fn view(&self) -> View {
        self.view_on(self.catalog())
    }

    /// What clients see of a state of the registry.
    pub(crate) fn view_on(&self, catalog: Arc<Catalog>) -> View {
        toolbay_discovery::offer(View::new(catalog, Arc::clone(&self.filter)))
    }

    /// The state of the registry as it is now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.registry.current()
    }

    /// What the outboxes of its clients have in common.
    pub(crate) fn outboxes(&self) -> OutboxSettings {
        OutboxSettings::of(&self.pipeline)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Whom a connection belongs to.
#[derive(Debug, Clone)]
pub(crate) struct SessionOwner {
    /// A name that no other session has.
    pub(crate) session_id: Arc<str>,
    /// Who it is, if they said.
    pub(crate) agent_id: Option<String>,
    /// What they may come back to.
    pub(crate) session: Arc<Session>,
}

impl SessionOwner {
    /// A session that begins now.
    pub(crate) fn of_session(agent_id: Option<String>) -> Self {
        let session_id = format!("mcp-{}", uuid::Uuid::new_v4().simple()).into();
        Self { session_id, agent_id, session: Arc::new(Session::fresh()) }
    }
}
