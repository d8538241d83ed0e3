//! Keeps one server there: connects, takes its tools, reads them again when they change, and begins anew when it has
//! gone, later each time, until it is left alone for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use toolbay_core::content::{ErrorCode, ToolError};
use toolbay_core::fault::{Fault, FaultKind, LimitHit};
use toolbay_core::invoke::Failure;
use toolbay_core::mcp_server::{McpServer, Place, Protocol};
use toolbay_core::outside::Outside;
use toolbay_core::quantity;
use toolbay_core::reduce::Reduce;
use toolbay_core::registry::{Bundle, Entry, ReducerEntry, Registry};

use super::bounds::{
    BREAK_AFTER, BREAK_PAUSE, MAX_PROBLEMS, MAX_REFRESH_PAUSE, MAX_RETRY_PAUSE, REFRESH_PAUSE, RETRY_PAUSE,
    STABLE,
};
use super::elicit::Elicit;
use super::http::Web;
use super::inbox::Inbox;
use super::link::{Link, LinkError};
use super::list;
use super::remote::RemoteTool;
use super::session::{Begin, Session};
use super::stdio::Pipe;
use super::tools::{self, Taken};

/// Finds a built-in reducer by its name.
pub type FindReducer = Arc<dyn Fn(&str) -> Option<Arc<dyn Reduce>> + Send + Sync>;

/// What all supervisors of a bridge share.
#[derive(Clone)]
pub(super) struct Ports {
    pub(super) registry: Arc<Registry>,
    pub(super) outside: Arc<dyn Outside>,
    pub(super) elicit: Option<Arc<dyn Elicit>>,
    pub(super) reducer: Option<FindReducer>,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").field("outside", &self.outside).finish_non_exhaustive()
    }
}

/// Where a server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It is being started, and its tools are asked for.
    Connecting,
    /// Its tools can be called.
    Ready,
    /// It could not be reached, or has gone; it is tried again.
    Failed,
    /// It failed so often in a row that it is left alone for a while.
    Suspended,
}

/// What is known of a server.
#[derive(Debug, Clone, Serialize)]
pub struct ServerStatus {
    /// Its name in the policy.
    pub name: String,
    /// Where it stands.
    pub state: ServerState,
    /// The revision of the protocol that is spoken.
    pub protocol: Option<String>,
    /// The name it gives itself.
    pub title: Option<String>,
    /// The version it claims.
    pub version: Option<String>,
    /// How many of its tools are there.
    pub tools: usize,
    /// What holds it, if it is a program.
    pub confinement: Option<&'static str>,
    /// Why it is not ready.
    pub reason: Option<String>,
    /// What is wrong with its list.
    pub problems: Vec<String>,
    /// How often it was connected to.
    pub connects: u64,
}

/// Keeps one server there.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) server: Arc<McpServer>,
    asks_reason: bool,
    ports: Ports,
    status: Mutex<ServerStatus>,
    state: watch::Sender<(ServerState, Option<Arc<Session>>)>,
    /// Somebody wants to call it.
    wanted: Notify,
    /// When it is tried again.
    again: Mutex<Instant>,
    hung: Notify,
    /// Whether it has put tools in; held while it does.
    placed: Mutex<bool>,
    pub(super) stop: CancellationToken,
}

impl Supervisor {
    pub(super) fn new(server: Arc<McpServer>, asks_reason: bool, ports: Ports) -> Self {
        let status = ServerStatus {
            name: server.name.to_string(),
            state: ServerState::Connecting,
            protocol: None,
            title: None,
            version: None,
            tools: 0,
            confinement: None,
            reason: None,
            problems: Vec::new(),
            connects: 0,
        };
        Self {
            server,
            asks_reason,
            ports,
            status: Mutex::new(status),
            state: watch::Sender::new((ServerState::Connecting, None)),
            wanted: Notify::new(),
            again: Mutex::new(Instant::now()),
            hung: Notify::new(),
            placed: Mutex::new(false),
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.server.name.as_str()
    }

    /// Whether the same section would make the same supervisor.
    pub(super) fn is_for(&self, server: &McpServer, asks_reason: bool) -> bool {
        *self.server == *server && self.asks_reason == asks_reason
    }

    pub(super) fn status(&self) -> ServerStatus {
        self.held().clone()
    }

    fn held(&self) -> MutexGuard<'_, ServerStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn label(&self) -> String {
        format!("mcp:{}", self.server.name)
    }

    /// Waits until its first attempt has come to something.
    pub(super) async fn settled(&self) {
        let mut state = self.state.subscribe();
        // A supervisor that has gone has settled.
        drop(state.wait_for(|(state, _)| *state != ServerState::Connecting).await);
    }

    /// The conversation, if there is one.
    pub(super) fn now(&self) -> Option<Arc<Session>> {
        self.state.borrow().1.clone()
    }

    /// It does not answer any more.
    pub(super) fn hung(&self, session: &Arc<Session>) {
        if self.now().is_some_and(|now| Arc::ptr_eq(&now, session)) {
            self.hung.notify_one();
        }
    }

    /// The conversation, for a call that can wait for so long. A server that has gone is tried again for it.
    pub(super) async fn session(&self, patience: Duration) -> Result<Arc<Session>, Failure> {
        let mut state = self.state.subscribe();
        let mut tried = false;
        let wait = async {
            loop {
                let (now, session) = state.borrow_and_update().clone();
                match (now, session) {
                    (_, Some(session)) if !session.link.is_over() => return Ok(session),
                    (ServerState::Suspended, _) => return Err(self.suspended()),
                    // It was tried for this call, and failed.
                    (ServerState::Failed, _) if std::mem::replace(&mut tried, true) => {
                        return Err(self.absent());
                    }
                    (ServerState::Failed, _) => self.wanted.notify_one(),
                    (ServerState::Connecting | ServerState::Ready, _) => {}
                }
                tokio::select! {
                    () = self.stop.cancelled() => return Err(self.absent()),
                    changed = state.changed() => if changed.is_err() { return Err(self.absent()) },
                }
            }
        };
        match tokio::time::timeout(patience.mul_f32(0.9), wait).await {
            Ok(found) => found,
            Err(_) => Err(self.absent()),
        }
    }

    fn absent(&self) -> Failure {
        let status = self.status();
        let why = status.reason.unwrap_or_else(|| "it is still being started".to_owned());
        let text = format!("the MCP server `{}` is not there: {why}", status.name);
        ToolError::new(ErrorCode::NotAvailable, text).into()
    }

    fn suspended(&self) -> Failure {
        let again = *self.again.lock().unwrap_or_else(PoisonError::into_inner);
        let left = again.saturating_duration_since(Instant::now());
        let limit = LimitHit {
            name: "mcp_failures",
            value: BREAK_AFTER.to_string(),
            setting:
                "nothing: it is tried again by itself, and at once when its section of the policy changes"
                    .to_owned(),
        };
        let what = format!(
            "the MCP server `{}` failed {BREAK_AFTER} times in a row and is left alone for another {}",
            self.name(),
            quantity::show_duration(Duration::from_secs(left.as_secs() + 1)),
        );
        Fault::by_limit(FaultKind::Suspended, &what, limit).retry_after(left).into()
    }

    /// Runs until it is stopped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut failures = 0_u32;
        let mut protocol = self.server.protocol;
        while !self.stop.is_cancelled() {
            self.put(ServerState::Connecting, None);
            let begun = Instant::now();
            let connected = tokio::select! {
                () = self.stop.cancelled() => break,
                connected = self.connect(&mut protocol) => connected,
            };
            let (why, denied) = match connected {
                Ok(session) => {
                    self.put(ServerState::Ready, Some(Arc::clone(&session)));
                    let why = self.attend(&session).await;
                    self.let_go();
                    let ended = session.link.close().await;
                    (ended.map_or(why.clone(), |how| format!("{why} ({how})")), false)
                }
                Err(error) => {
                    // What was learnt of its era may have been the failure itself.
                    protocol = self.server.protocol;
                    let denied = matches!(error, LinkError::Denied(_));
                    (error.to_string(), denied)
                }
            };
            if self.stop.is_cancelled() {
                break;
            }
            failures = if begun.elapsed() > STABLE { 1 } else { failures.saturating_add(1) };
            self.pause(why, denied, failures).await;
            if failures >= BREAK_AFTER {
                failures = 0;
            }
        }
        self.let_go();
    }

    /// Waits before the next attempt: longer with each failure; not at all for what no attempt can change.
    async fn pause(&self, why: String, denied: bool, failures: u32) {
        let why = toolbay_core::text::one_line(&self.ports.outside.redacted(&why), 1_000);
        tracing::warn!(server = self.name(), failures, "an MCP server is not there: {why}");
        let broken = denied || failures >= BREAK_AFTER;
        let doubled = RETRY_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10));
        let pause = if broken { BREAK_PAUSE } else { doubled.min(MAX_RETRY_PAUSE) };
        // So that servers that went together do not come together.
        let pause = pause.mul_f64(1.0 + 0.2 * spread(self.name(), failures));
        *self.again.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + pause;
        self.held().reason = Some(why);
        let suspended = failures >= BREAK_AFTER;
        self.put(if suspended { ServerState::Suspended } else { ServerState::Failed }, None);
        // A call may have it tried earlier, but not at once again and again.
        let least = tokio::time::sleep(doubled.min(pause).min(Duration::from_secs(5)));
        let wanted = async {
            if suspended {
                std::future::pending::<()>().await;
            }
            self.wanted.notified().await;
            least.await;
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
            () = wanted => {}
        }
    }

    fn put(&self, state: ServerState, session: Option<Arc<Session>>) {
        let mut status = self.held();
        status.state = state;
        if state == ServerState::Ready {
            status.reason = None;
        }
        drop(status);
        self.state.send_replace((state, session));
    }

    /// The conversation is over; its tools stay listed, and a call has it begun again.
    pub(super) fn let_go(&self) {
        self.state.send_modify(|(_, session)| *session = None);
    }

    /// Starts the server and takes its tools.
    async fn connect(self: &Arc<Self>, protocol: &mut Protocol) -> Result<Arc<Session>, LinkError> {
        let most = self.server.start_timeout;
        let connect = async {
            loop {
                let (link, inbox) = self.open().await?;
                match Session::begin(link, inbox, *protocol).await {
                    Ok(session) => {
                        // The next time it is not asked for what it does not know.
                        let older = !session.known.modern && matches!(session.link, Link::Pipe(_));
                        if *protocol == Protocol::Auto && older {
                            *protocol = Protocol::Legacy;
                        }
                        let session = Arc::new(session);
                        self.took(&session);
                        self.refresh(&session).await?;
                        return Ok(session);
                    }
                    Err(Begin::AgainAsLegacy) => *protocol = Protocol::Legacy,
                    Err(Begin::Failed(error)) => return Err(error),
                }
            }
        };
        match tokio::time::timeout(most, connect).await {
            Ok(connected) => connected,
            Err(_) => Err(LinkError::Closed(format!(
                "it did not begin within {}; to give it longer, write in the policy: [mcp.{}] start_timeout = …",
                quantity::show_duration(most),
                self.server.name
            ))),
        }
    }

    async fn open(&self) -> Result<(Link, Arc<Inbox>), LinkError> {
        let Ports { outside, elicit, .. } = &self.ports;
        let inbox = Arc::new(Inbox::new(self.server.name.clone(), Arc::clone(outside), elicit.clone()));
        let link = match &self.server.place {
            Place::Child(child) => {
                let started = outside.start(&self.server.name, child).await?;
                Link::Pipe(Pipe::new(started, Arc::clone(&inbox)))
            }
            Place::Http(endpoint) => Link::Web(Arc::new(Web::new((**endpoint).clone(), Arc::clone(&inbox)))),
        };
        Ok((link, inbox))
    }

    /// What is known now that it has begun.
    fn took(&self, session: &Session) {
        let mut status = self.held();
        status.protocol = Some(session.known.protocol.clone());
        status.title.clone_from(&session.known.title);
        status.version = session.known.version.as_deref().map(ToOwned::to_owned);
        status.confinement = session.link.confinement();
        status.connects += 1;
    }

    /// Reads the list and puts its tools in place of those before.
    async fn refresh(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), LinkError> {
        let listed =
            if session.known.has_tools { list::tools(session).await? } else { list::Listed::default() };
        let supervisor = Arc::clone(self);
        let version = session.known.version.clone();
        // Thousands of schemas are read: not on a thread that others wait for.
        let made = tokio::task::spawn_blocking(move || supervisor.put_tools(listed, version.as_ref())).await;
        made.map_err(|_| LinkError::Closed("its tools could not be read".to_owned()))
    }

    fn put_tools(self: &Arc<Self>, listed: list::Listed, version: Option<&Arc<str>>) {
        let list::Listed { tools, mut problems } = listed;
        let mut bundle = Bundle::default();
        let mut names = std::collections::HashSet::new();
        for raw in &tools {
            match tools::take(raw, &self.server, version, &*self.ports.outside) {
                Ok(Some(taken)) if names.insert(taken.def.name.clone()) => {
                    problems.extend(taken.warning.clone());
                    if let Err(problem) = self.add(&mut bundle, taken) {
                        problems.push(problem);
                    }
                }
                Ok(Some(taken)) => problems.push(format!(
                    "the tool `{}` is listed twice, or its name comes to that of another; the first is taken",
                    toolbay_core::text::one_line(&taken.own_name, 100)
                )),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        let wanted = bundle.tools.len();
        // A supervisor that was stopped meanwhile must not bring its tools back.
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stop.is_cancelled() {
            return;
        }
        if !(*placed && self.unchanged(&bundle)) {
            let registered = self.ports.registry.replace_source(&self.label(), bundle);
            problems.extend(
                registered.kept.iter().map(|name| format!("`{name}`: the name is taken by another tool")),
            );
            *placed = true;
        }
        drop(placed);
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        for problem in &mut problems {
            *problem = self.ports.outside.redacted(problem).into_owned();
        }
        let mut status = self.held();
        if status.problems != problems {
            for problem in &problems {
                tracing::warn!(server = self.name(), "{problem}");
            }
        }
        status.tools = wanted;
        status.problems = problems;
    }

    /// Whether the same tools are in the registry already.
    fn unchanged(&self, bundle: &Bundle) -> bool {
        let catalog = self.ports.registry.snapshot();
        let label = self.label();
        let mut there = catalog.from_source(&label);
        let mut new: Vec<&Entry> = bundle.tools.iter().collect();
        new.sort_by(|a, b| a.def.name.cmp(&b.def.name));
        let same = |old: &Entry, new: &Entry| {
            let (old, new) = (&old.def, &new.def);
            old.name == new.name
                && old.title == new.title
                && old.description == new.description
                && old.input_schema == new.input_schema
                && old.output_schema == new.output_schema
                && old.traits == new.traits
                && old.source == new.source
        };
        new.iter().all(|new| there.next().is_some_and(|old| same(old, new))) && there.next().is_none()
    }

    fn add(self: &Arc<Self>, bundle: &mut Bundle, taken: Taken) -> Result<(), String> {
        let Taken { own_name, def, rules, mirror, .. } = taken;
        let name = def.name.to_string();
        let timeout = rules.timeout.unwrap_or(self.server.timeout);
        let tool = RemoteTool { supervisor: Arc::clone(self), own_name, mirror, timeout };
        let entry = Entry::new(def, Arc::new(tool)).with_effects(tools::effects(&self.server));
        let entry = tools::dress(entry, &rules);
        bundle.tools.push(if self.asks_reason { entry.asking_reason() } else { entry });
        let Some(wanted) = rules.reduce else { return Ok(()) };
        let found = self.ports.reducer.as_ref().and_then(|find| find(&wanted));
        let reducer = found.ok_or_else(|| {
            format!("`{name}`: there is no reducer `{wanted}`; its results are not reduced")
        })?;
        bundle.reducers.push(ReducerEntry { target: name, declared: wanted, owner: None, reducer });
        Ok(())
    }

    /// Stays with a conversation until it is over; returns why.
    async fn attend(self: &Arc<Self>, session: &Arc<Session>) -> String {
        let hears = session.hear();
        tokio::pin!(hears);
        let mut heard = false;
        let mut pause = REFRESH_PAUSE;
        let mut last = tokio::time::Instant::now();
        // When the list is read again; what is told meanwhile is one more change, not many.
        let mut due = None;
        loop {
            let wait = tokio::time::sleep_until(due.unwrap_or(last));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return "the host ended it".to_owned(),
                why = session.link.over() => return why,
                () = self.hung.notified() => {
                    return "it did not answer several calls in a row, and was ended".to_owned();
                }
                () = &mut hears, if !heard => heard = true,
                () = wait, if due.is_some() => {
                    due = None;
                    match tokio::time::timeout(self.server.start_timeout, self.refresh(session)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(LinkError::Closed(why))) => return why,
                        Ok(Err(error)) => {
                            let why = self.ports.outside.redacted(&error.to_string()).into_owned();
                            let why = toolbay_core::text::one_line(&why, 1_000);
                            tracing::warn!(server = self.name(), "its list could not be read again: {why}");
                        }
                        Err(_) => return "its list could not be read again in time".to_owned(),
                    }
                    last = tokio::time::Instant::now();
                }
                () = session.inbox.changed.notified(), if due.is_none() => {
                    let calm = last.elapsed() > pause.saturating_mul(4);
                    pause = if calm { REFRESH_PAUSE } else { pause.saturating_mul(2).min(MAX_REFRESH_PAUSE) };
                    due = Some(tokio::time::Instant::now() + pause);
                }
            }
        }
    }

    /// Ends it, and takes its tools out.
    pub(super) fn end(&self) {
        // Under the lock under which tools are put in: none come after.
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.cancel();
        if std::mem::take(&mut *placed) {
            self.ports.registry.replace_source(&self.label(), Bundle::default());
        }
    }
}

/// From 0 to 1, another for each name and attempt.
fn spread(name: &str, failures: u32) -> f64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write(name.as_bytes());
    hasher.write_u32(failures);
    f64::from(u32::try_from(hasher.finish() >> 40).unwrap_or_default()) / f64::from(1_u32 << 24)
}
