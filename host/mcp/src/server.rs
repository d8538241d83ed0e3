//! The MCP server, independent of the transport: the state that all clients share.

pub(crate) mod calls;
pub(crate) mod changes;
pub(crate) mod client_dialog;
pub(crate) mod connection;
pub(crate) mod convert;
mod input_requests;
mod instructions;
pub(crate) mod outbox;
pub(crate) mod outputs;
pub(crate) mod prompts_and_resources;
pub(crate) mod request;
pub(crate) mod session_attachments;
mod shared_tasks;
pub(crate) mod tasks;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use rmcp::model::{ErrorData, Resource, ResourceContents, ResourceTemplate};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolbay_core::call::DEFAULT_BUDGET_CHARS;
use toolbay_core::pipeline::Pipeline;
use toolbay_core::registry::view::{Filter, View};
use toolbay_core::registry::{Catalog, Registry, ToolEntry};
use toolbay_core::session::Session;
use toolbay_core::session::attachment_store::{AttachmentStore, MemoryAttachmentStore};
use toolbay_core::tool::{ToolDef, ToolSource};
use toolbay_policy::permission::{Action, DEFAULT_ASK_TIMEOUT};
use toolbay_policy::serve::ServePolicy;

use crate::client::Bridge;
use crate::protocol::outbound::MessageSink;
use crate::protocol::request_state::RequestStateSigner;
use crate::server::calls::ClientContext;
use crate::server::connection::McpConnection;
use crate::server::instructions::PolicyInstructions;
use crate::server::outbox::OutboxSettings;
use crate::server::tasks::TaskTable;

/// Settings and limits of a [`Server`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Instructions for models, before those of [`Server::set_instructions`].
    pub instructions: Option<String>,
    /// Concurrent calls of one connection. Further calls fail with `busy`.
    pub max_in_flight: usize,
    /// Items in one page of a list.
    pub page_size: usize,
    /// Longest input line, in bytes. A longer line gets an error response. Must leave room for the largest arguments
    /// that the policy allows (`args_bytes`), escapes included.
    pub max_line_bytes: usize,
    /// Longest text of one result, in characters.
    pub budget_chars: usize,
    /// How long a list request waits for plugins and other servers that are still loading, measured from the start of
    /// the server. After that the list is incomplete, and clients are notified of later changes.
    pub list_wait: Duration,
    /// Whether clients are asked for approval when a rule of the policy says `ask`.
    pub ask: bool,
    /// How long a client of 2026-07-28 may take to answer an input request.
    pub ask_timeout: Duration,
    /// How long a call runs before it becomes a task, for clients that support tasks. Calls of tools with the tag
    /// `slow` become one at once.
    pub task_after: Duration,
    /// How long a task is kept, measured from its creation. A call that runs longer is cancelled.
    pub task_ttl: Duration,
    /// Whether log messages of native tools are sent to clients that set a log level. The protocol deprecates this
    /// feature.
    pub logging: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            instructions: None,
            // Four times the default concurrency of the host: enough to keep it busy, few enough to fit in memory.
            max_in_flight: 256,
            // Far above the limits of clients (40 to 128 tools): an ordinary registry fits into one page.
            page_size: 1000,
            // Four times the default of `args_bytes`.
            max_line_bytes: 16 << 20,
            budget_chars: DEFAULT_BUDGET_CHARS,
            // Some clients time out list requests after 5 s.
            list_wait: Duration::from_secs(4),
            ask: true,
            // The default of the policy.
            ask_timeout: DEFAULT_ASK_TIMEOUT,
            // Most clients time out requests after 60 s, some after 30 s.
            task_after: Duration::from_secs(10),
            task_ttl: Duration::from_secs(3600),
            logging: false,
        }
    }
}

/// An MCP server. Cheap to clone; serves any number of connections at once.
#[derive(Debug, Clone)]
pub struct Server {
    pub(crate) registry: Arc<Registry>,
    pub(crate) pipeline: Pipeline,
    pub(crate) filter: Arc<Filter>,
    pub(crate) options: Arc<Options>,
    /// The instructions that follow the policy.
    instructions: Arc<ArcSwap<PolicyInstructions>>,
    /// Whether the policy wants `toolbay/…` members in `_meta`.
    usage_meta: Arc<AtomicBool>,
    changes: watch::Sender<u64>,
    pub(crate) state_signer: Arc<RequestStateSigner>,
    pub(crate) tasks: Arc<TaskTable>,
    /// Files that tools created for sessions that belong to this server.
    attachments: Arc<dyn AttachmentStore>,
    pub(crate) calls: RunningCalls,
    /// Fires when all plugins are loaded.
    loaded: CancellationToken,
    /// The bridge to other servers, if the embedder set one.
    bridge: Weak<Bridge>,
    /// Until when list requests wait for tools that are still loading.
    list_deadline: Instant,
    /// The last result of the probe: why the host cannot run calls. `None` without a probe.
    probe: Option<watch::Receiver<Option<Arc<str>>>>,
}

/// The running calls, including those whose client has disconnected.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningCalls {
    pub(crate) tracker: TaskTracker,
    /// Fires when running calls are cancelled because the server shuts down. They get an error result.
    pub(crate) shutdown: CancellationToken,
}

impl RunningCalls {
    fn new() -> Self {
        let calls = Self::default();
        // A closed tracker still accepts tasks, and `wait` works at any time.
        calls.tracker.close();
        calls
    }
}

impl Server {
    /// Creates a server for the tools of `registry` that pass `filter`.
    #[must_use]
    pub fn new(registry: Arc<Registry>, pipeline: Pipeline, filter: Filter, options: Options) -> Self {
        let loaded = CancellationToken::new();
        loaded.cancel();
        Self {
            registry,
            pipeline,
            filter: Arc::new(filter),
            list_deadline: Instant::now() + options.list_wait,
            options: Arc::new(options),
            instructions: Arc::default(),
            usage_meta: Arc::default(),
            changes: watch::Sender::new(0),
            state_signer: Arc::new(RequestStateSigner::new()),
            tasks: Arc::default(),
            attachments: Arc::new(MemoryAttachmentStore::default()),
            calls: RunningCalls::new(),
            loaded,
            bridge: Weak::new(),
            probe: None,
        }
    }

    /// Sets the receiver of probe results: why the host cannot run calls. While there is a reason, the server is not ready,
    /// and refuses requests over HTTP with 503, so that a balancer chooses another server.
    #[must_use]
    pub fn with_probe(self, probe: watch::Receiver<Option<Arc<str>>>) -> Self {
        Self { probe: Some(probe), ..self }
    }

    /// Why this server cannot run calls and another one might; `None` if it can.
    pub(crate) fn serving_problem(&self) -> Option<String> {
        if let Err(lost) = self.pipeline.check_contact() {
            return Some(lost.to_string());
        }
        let problem = self.probe.as_ref().and_then(|probe| probe.borrow().clone())?;
        Some(format!("no call can run on this server: {problem}"))
    }

    /// Makes calls and lists wait for plugins that are still loading, until `loaded` fires. A call waits for its tool,
    /// a list for at most [`Options::list_wait`] from now.
    #[must_use]
    pub fn with_loaded_signal(self, loaded: CancellationToken) -> Self {
        Self { loaded, list_deadline: Instant::now() + self.options.list_wait, ..self }
    }

    /// Signs `requestState` with a key that other replicas have, too, instead of a random one: at least 32 random bytes.
    #[must_use]
    pub fn with_request_state_key(self, key: &[u8]) -> Self {
        Self { state_signer: Arc::new(RequestStateSigner::with_key(key)), ..self }
    }

    /// Adds the servers of a bridge: lists and calls wait for servers that are still starting, as for plugins, and
    /// clients can read their resources. Apply the policy to the bridge first. The server does not keep the bridge
    /// alive.
    #[must_use]
    pub fn with_bridge(self, bridge: &Arc<Bridge>) -> Self {
        let (changes, list_deadline) = (bridge.change_counter(), Instant::now() + self.options.list_wait);
        Self { bridge: Arc::downgrade(bridge), changes, list_deadline, ..self }
    }

    /// The same server restricted to a profile of the policy. `None` if the policy has no such profile, or this server
    /// is already bound to another one.
    pub(crate) fn with_profile(self: &Arc<Self>, profile: Option<&str>) -> Option<Arc<Self>> {
        let Some(name) = profile else { return Some(Arc::clone(self)) };
        let profile = Arc::clone(self.catalog().profile(name)?);
        if self.filter.profile.as_ref().is_some_and(|own| **own.name() != *name) {
            return None;
        }
        let filter = Arc::new(Filter { profile: Some(profile), ..Filter::clone(&self.filter) });
        Some(Arc::new(Self { filter, ..Self::clone(self) }))
    }

    /// Whether all plugins are loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.is_cancelled()
    }

    /// Waits until all plugins are loaded.
    pub(crate) async fn wait_loaded(&self) {
        self.loaded.cancelled().await;
    }

    /// Whether lists are complete: all plugins and documents are loaded, and the first attempt to connect to each other
    /// server has ended.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_loaded()
            && !self.registry.has_pending_sources()
            && self.bridge().is_none_or(|bridge| bridge.all_attempted())
    }

    /// The sources whose tools a list may lack, each with its state: those that are still loading, the documents that could
    /// not be loaded, and the servers that are not ready.
    pub(crate) fn missing_sources(&self) -> BTreeMap<String, &'static str> {
        let plugins = (!self.is_loaded()).then(|| ("plugins".to_owned(), "loading"));
        let catalog = self.registry.snapshot();
        let sources =
            catalog.absent_sources().map(|source| (source.label.to_string(), source.state.as_str()));
        let missing = plugins.into_iter().chain(sources);
        match self.filter.profile {
            None => missing.collect(),
            // A profile may leave out a source, whose name is then not for its clients.
            Some(_) => missing.map(|(_, state)| ("sources".to_owned(), state)).collect(),
        }
    }

    /// Waits until lists are complete, or until the deadline for list requests.
    pub(crate) async fn wait_listable(&self) {
        let all = async {
            self.wait_loaded().await;
            self.registry.wait_for_sources().await;
            if let Some(bridge) = self.bridge() {
                bridge.wait_listed().await;
            }
        };
        // Tools that arrive later are announced as a change.
        drop(tokio::time::timeout_at(self.list_deadline, all).await);
    }

    /// Waits until a tool can be called. A tool that calls no other tools is callable as soon as its plugin is loaded.
    /// A tool of another server is callable once the first attempt to connect has ended, and one of a service once its
    /// document is loaded. All other tools wait until all plugins are loaded and lists are complete.
    pub(crate) async fn wait_callable(&self, tool: &str) {
        if let Some(pending) = self.registry.wait_for_source_of(tool) {
            pending.await;
        }
        let mut changes = self.subscribe_changes();
        loop {
            let coming = self.bridge().and_then(|bridge| bridge.wait_for_server_of(tool));
            let is_ready = self.is_ready_alone(tool);
            if is_ready {
                return;
            }
            if self.is_loaded() && coming.is_none() {
                // The tool may search or call the tools of other servers.
                return self.wait_listable().await;
            }
            let tried = async {
                match coming {
                    Some(coming) => coming.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.wait_loaded(), if !self.is_loaded() => {}
                () = tried => {}
                changed = changes.changed() => {
                    if changed.is_err() {
                        self.wait_loaded().await;
                    }
                }
            }
        }
    }

    /// Whether a tool is callable and depends on no plugin that is still loading.
    fn is_ready_alone(&self, tool: &str) -> bool {
        let profile = self.filter.profile.as_ref().map(|profile| &**profile.name());
        let calls_others = |entry: &ToolEntry| entry.invoker.invoke_grant(profile).is_some();
        let comes_alone = |source: &ToolSource| !matches!(source, ToolSource::Builtin);
        let view = self.view();
        view.get_callable(tool).is_some_and(|entry| comes_alone(&entry.def.source) && !calls_others(entry))
    }

    /// The bridge to other servers, if it is still alive.
    pub(crate) fn bridge(&self) -> Option<Arc<Bridge>> {
        self.bridge.upgrade()
    }

    /// All resources of a view, including those of other servers, sorted by URI.
    pub(crate) fn resources(&self, view: &View) -> BTreeMap<String, Resource> {
        let mut all = prompts_and_resources::list_resources(view);
        self.bridge().into_iter().for_each(|bridge| all.extend(bridge.resources(view)));
        all
    }

    /// Reads a resource of another server if the permission rules allow it.
    ///
    /// # Errors
    /// The resource could not be read, or, with `None`, does not exist or is not allowed.
    pub(crate) async fn read_bridged_resource(
        &self,
        uri: &str,
    ) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let bridge = self.bridge().ok_or(None)?;
        let catalog = self.catalog();
        let view = self.view_on(Arc::clone(&catalog));
        let profile = view.profile().and_then(|name| catalog.profile(name));
        let permissions = profile.map(|profile| &profile.permissions);
        let may = |tool: &ToolDef, labels: &[Arc<str>], spelled: &[Value]| {
            // There is no approval dialog for resources: `ask` counts as a denial.
            self.pipeline.action_for(permissions, tool, labels, spelled) == Action::Allow
        };
        bridge.read(&view, uri, may).await
    }

    /// All resource templates of a view, including those of other servers, sorted by URI.
    pub(crate) fn templates(&self, view: &View) -> BTreeMap<String, ResourceTemplate> {
        let mut all = prompts_and_resources::list_templates(view);
        self.bridge().into_iter().for_each(|bridge| all.extend(bridge.templates(view)));
        all
    }

    /// The same server with its own tracker, so that its calls are awaited and cancelled separately.
    pub(crate) fn with_own_tracker(self) -> Arc<Self> {
        Arc::new(Self { calls: RunningCalls::new(), ..self })
    }

    /// Takes `usage_meta` from `[serve]`: whether results and tools have `toolbay/…` members in `_meta` from now on. Without
    /// a call they have none, since some clients show `_meta` to the model.
    pub fn set_usage_meta(&self, serve: &ServePolicy) {
        self.usage_meta.store(serve.usage_meta, Ordering::Relaxed);
    }

    /// Whether results and tools have `toolbay/…` members in `_meta`.
    pub(crate) fn shows_usage_meta(&self) -> bool {
        self.usage_meta.load(Ordering::Relaxed)
    }

    /// Notifies clients whose list of tools has changed. Call this after the registry may have changed. Changes in
    /// quick succession cause one notification, and changes that no list shows cause none.
    pub fn notify_changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Creates the connection of a client. Messages go to `sink`; `closed` fires when the client disconnects.
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

    /// The view that clients have on a snapshot of the registry.
    pub(crate) fn view_on(&self, catalog: Arc<Catalog>) -> View {
        toolbay_discovery::add_search_tools(View::new(catalog, Arc::clone(&self.filter)))
    }

    /// The current snapshot of the registry.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.registry.refresh_availability();
        self.registry.snapshot()
    }

    /// The store of the files of a session.
    pub(crate) fn attachment_store(&self, session: &Session) -> &Arc<dyn AttachmentStore> {
        match self.pipeline.shared_state_of(session) {
            Some((shared, _)) => &shared.attachments,
            None => &self.attachments,
        }
    }

    /// The settings of all clients' outboxes.
    pub(crate) fn outbox_settings(&self) -> OutboxSettings {
        OutboxSettings::from_pipeline(&self.pipeline)
    }

    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// The owner of a connection.
#[derive(Debug, Clone)]
pub(crate) struct SessionOwner {
    /// Unique name of the session.
    pub(crate) session_id: Arc<str>,
    /// The authenticated agent, if known.
    pub(crate) agent_id: Option<String>,
    /// The session state that later requests can use.
    pub(crate) session: Arc<Session>,
}

impl SessionOwner {
    /// Creates the owner of a new session.
    pub(crate) fn new_session(agent_id: Option<String>) -> Self {
        let session_id: Arc<str> = format!("mcp-{}", uuid::Uuid::new_v4().simple()).into();
        let session = Session::with_random_key().with_id(Arc::clone(&session_id));
        Self { session_id, agent_id, session: Arc::new(session) }
    }
}
