//! Toolbay as an MCP server, whatever the transport: what all its clients share.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolbay_core::call::DEFAULT_BUDGET_CHARS;
use toolbay_core::discovery;
use toolbay_core::permission::DEFAULT_ASK_TIMEOUT;
use toolbay_core::pipeline::Pipeline;
use toolbay_core::registry::{Catalog, Entry, Registry};
use toolbay_core::session::Session;
use toolbay_core::view::{Filter, View};

use crate::calls::Caller;
use crate::connection::Connection;
use crate::handed::Handed;
use crate::seal::Seals;
use crate::tasks::Tasks;

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
    shared: Arc<Shared>,
}

#[derive(Debug, Clone)]
struct Shared {
    registry: Arc<Registry>,
    pipeline: Pipeline,
    filter: Arc<Filter>,
    options: Options,
    changes: watch::Sender<u64>,
    seals: Arc<Seals>,
    tasks: Arc<Tasks>,
    /// The files that tools handed back.
    handed: Arc<Handed>,
    /// The calls that run, whether or not somebody still waits for their answers.
    calls: TaskTracker,
    /// Fires when the tools are there.
    loaded: CancellationToken,
}

impl Server {
    /// A server for what `filter` lets through of `registry`.
    #[must_use]
    pub fn new(registry: Arc<Registry>, pipeline: Pipeline, filter: Filter, options: Options) -> Self {
        let (changes, loaded) = (watch::Sender::new(0), CancellationToken::new());
        loaded.cancel();
        let (filter, seals, tasks) = (Arc::new(filter), Arc::new(Seals::new()), Arc::default());
        let handed = Arc::default();
        let calls = TaskTracker::new();
        // It takes more all the same; so it can be waited for at any time.
        calls.close();
        let shared =
            Shared { registry, pipeline, filter, options, changes, seals, tasks, handed, calls, loaded };
        Self { shared: Arc::new(shared) }
    }

    /// The same, but what is asked of tools waits until `loaded` fires: clients are greeted while plugins are loaded.
    #[must_use]
    pub fn waiting_for(self, loaded: CancellationToken) -> Self {
        Self { shared: Arc::new(Shared { loaded, ..Shared::clone(&self.shared) }) }
    }

    /// The same under a profile of the policy; `None`: it has none of this name, or this server is bound to another.
    pub(crate) fn under(&self, profile: Option<&str>) -> Option<Self> {
        let Some(name) = profile else { return Some(self.clone()) };
        let Shared { registry, filter, .. } = &*self.shared;
        let profile = Arc::clone(registry.current().profile(name)?);
        if filter.profile.as_ref().is_some_and(|own| **own.name() != *name) {
            return None;
        }
        let filter = Arc::new(Filter { profile: Some(profile), ..Filter::clone(filter) });
        Some(Self { shared: Arc::new(Shared { filter, ..Shared::clone(&self.shared) }) })
    }

    /// Whether the tools are there.
    pub(crate) fn is_loaded(&self) -> bool {
        self.shared.loaded.is_cancelled()
    }

    /// Waits until the tools are there. Whoever gives up waiting drops the request.
    pub(crate) async fn loaded(&self) {
        self.shared.loaded.cancelled().await;
    }

    /// Waits until a tool can be called: a plugin's, which calls no others, when it is there; every other when all are.
    pub(crate) async fn callable(&self, tool: &str) {
        let mut changes = self.changes();
        while !self.is_loaded() && !self.stands_alone(tool) {
            tokio::select! {
                () = self.loaded() => {}
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
        let profile = self.shared.filter.profile.as_ref().map(|profile| &**profile.name());
        let calls_others = |entry: &Entry| entry.invoker.may_call(profile).is_some();
        let view = self.view();
        view.get_callable(tool)
            .is_some_and(|entry| entry.def.source.plugin().is_some() && !calls_others(entry))
    }

    /// The same, whose calls are waited for apart.
    pub(crate) fn apart(&self) -> Self {
        let calls = TaskTracker::new();
        calls.close();
        Self { shared: Arc::new(Shared { calls, ..Shared::clone(&self.shared) }) }
    }

    /// Says that a call runs, until what is returned is dropped.
    pub(crate) fn works(&self) -> TaskTrackerToken {
        self.shared.calls.token()
    }

    /// Waits until no call runs.
    pub(crate) async fn rests(&self) {
        self.shared.calls.wait().await;
    }

    /// Tells the clients that the list of tools has changed: those whose list it is. Call it after the registry may
    /// have changed; changes in quick succession are told once, and what does not show in a list is not told.
    pub fn notify_changed(&self) {
        self.shared.changes.send_modify(|count| *count += 1);
    }

    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// What one connection needs; `closed` fires when the client has gone.
    pub(crate) fn connection(&self, closed: CancellationToken) -> Connection {
        self.connection_of(Whose::of_session(None), closed)
    }

    /// The same, for what is known of the client.
    pub(crate) fn connection_of(&self, whose: Whose, closed: CancellationToken) -> Connection {
        Connection::new(Caller::new(self.clone(), whose, closed.clone()), closed)
    }

    pub(crate) fn view(&self) -> View {
        self.view_on(self.catalog())
    }

    /// What clients see of a state of the registry.
    pub(crate) fn view_on(&self, catalog: Arc<Catalog>) -> View {
        discovery::offer(View::new(catalog, Arc::clone(&self.shared.filter)))
    }

    /// The state of the registry as it is now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.shared.registry.current()
    }

    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.shared.pipeline
    }

    pub(crate) fn seals(&self) -> &Seals {
        &self.shared.seals
    }

    pub(crate) fn handed(&self) -> &Arc<Handed> {
        &self.shared.handed
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.shared.tasks
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }
}

/// Whom a connection belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Whose {
    /// A name that no other session has.
    pub(crate) session_id: String,
    /// Who it is, if they said.
    pub(crate) agent_id: Option<String>,
    /// What they may come back to.
    pub(crate) session: Arc<Session>,
}

impl Whose {
    /// A session that begins now.
    pub(crate) fn of_session(agent_id: Option<String>) -> Self {
        Self { session_id: session_id(), agent_id, session: Arc::new(Session::fresh()) }
    }
}

/// A name for a session that no other has, in this process or the next. It is a key, not a secret.
fn session_id() -> String {
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("mcp-{:016x}{:016x}", random(), random())
}
