//! Keeps one server there: connects, takes its tools, reads them again when they change, and begins anew when it has
//! gone, later each time, until it is left alone for a while.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::FusedFuture as _;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::error::Elapsed;
use tokio_util::sync::CancellationToken;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::call::invoke::Failure;
use toolbay_core::call::outside::Outside;
use toolbay_core::output::reduce::Reduce;
use toolbay_core::registry::Registry;
use toolbay_core::tool::content::{ErrorCode, ToolError};
use toolbay_core::tool::wording;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::mcp_server::{McpServer, Place, Protocol};
use toolbay_policy::quantity;
use toolbay_policy::refusal::Refusal;

use super::bounds::{
    BREAK_AFTER, BREAK_PAUSE, MAX_LABEL, MAX_REFRESH_PAUSE, MAX_RETRY_PAUSE, MAX_SAID, REFRESH_PAUSE,
    RETRY_PAUSE, STABLE,
};
use super::elicit::Elicit;
use super::http::Web;
use super::inbox::Inbox;
use super::link::{Link, LinkError};
use super::list::Listed;
use super::memory;
use super::resources::Offered;
use super::session::{Begin, Session};
use super::status::{ServerState, ServerStatus};
use super::stdio::Pipe;

/// Finds a built-in reducer by its name.
pub type FindReducer = Arc<dyn Fn(&str) -> Option<Arc<dyn Reduce>> + Send + Sync>;

/// What all supervisors of a bridge share.
#[derive(Clone)]
pub(super) struct Ports {
    pub(super) registry: Arc<Registry>,
    pub(super) outside: Arc<dyn Outside>,
    pub(super) elicit: Option<Arc<dyn Elicit>>,
    pub(super) reducer: Option<FindReducer>,
    /// Whether the last known list of a server is put in before the server has answered.
    pub(super) recalls: bool,
    /// Counts what changes beside the tools of the registry.
    pub(super) changes: watch::Sender<u64>,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").field("outside", &self.outside).finish_non_exhaustive()
    }
}

/// Keeps one server there.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) server: Arc<McpServer>,
    pub(super) asks_reason: bool,
    pub(super) ports: Ports,
    /// What it is handed beside its section, as a mark.
    handed: u64,
    status: Mutex<ServerStatus>,
    state: watch::Sender<(ServerState, Option<Arc<Session>>)>,
    /// Somebody wants to call it.
    wanted: Notify,
    /// When it is tried again.
    again: Mutex<Instant>,
    /// Whether it has put tools in; held while it does.
    pub(super) placed: Mutex<bool>,
    /// What it offers beside tools.
    pub(super) offered: Mutex<Arc<Offered>>,
    /// Fires when its tools are there, or could not be had at the first attempt.
    pub(super) listed: CancellationToken,
    /// Fires when the first attempt has come to something.
    tried: CancellationToken,
    /// The list that the host keeps, as a mark.
    kept: Mutex<Option<u64>>,
    pub(super) stop: CancellationToken,
}

impl Supervisor {
    pub(super) fn new(server: Arc<McpServer>, asks_reason: bool, ports: Ports) -> Self {
        let status = ServerStatus { name: server.name.to_string(), ..ServerStatus::default() };
        Self {
            handed: handed(&server, &*ports.outside),
            server,
            asks_reason,
            ports,
            status: Mutex::new(status),
            state: watch::Sender::new((ServerState::Connecting, None)),
            wanted: Notify::new(),
            again: Mutex::new(Instant::now()),
            placed: Mutex::new(false),
            offered: Mutex::default(),
            listed: CancellationToken::new(),
            tried: CancellationToken::new(),
            kept: Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.server.name.as_str()
    }

    /// Whether the same section, and what it would be handed now, would make the same supervisor.
    pub(super) fn is_for(&self, server: &McpServer, asks_reason: bool) -> bool {
        *self.server == *server
            && self.asks_reason == asks_reason
            && self.handed == handed(server, &*self.ports.outside)
    }

    pub(super) fn status(&self) -> ServerStatus {
        let mut status = self.held().clone();
        status.problems.extend(self.offered().problems.iter().cloned());
        status
    }

    pub(super) fn held(&self) -> MutexGuard<'_, ServerStatus> {
        self.status.lock()
    }

    /// What a server said, or made us say, as it can be told: one line, without values of secrets, and then cut.
    pub(super) fn heard(&self, text: &str) -> String {
        wording::label(text, MAX_SAID, &|text| self.ports.outside.redacted(text))
    }

    pub(super) fn label(&self) -> String {
        format!("mcp:{}", self.server.name)
    }

    /// Waits until it has come to something: its first attempt, and every one that is under way.
    pub(super) async fn settled(&self) {
        let mut state = self.state.subscribe();
        // A supervisor that has gone has settled.
        drop(state.wait_for(|(state, _)| *state != ServerState::Connecting).await);
    }

    /// Whether its first attempt has come to something.
    pub(super) fn is_tried(&self) -> bool {
        self.tried.is_cancelled() || self.stop.is_cancelled()
    }

    /// Whether it is being started, so that tools may come.
    pub(super) fn is_coming(&self) -> bool {
        self.state.borrow().0 == ServerState::Connecting && !self.stop.is_cancelled()
    }

    /// The conversation, if there is one.
    pub(super) fn now(&self) -> Option<Arc<Session>> {
        self.state.borrow().1.clone()
    }

    /// The conversation, for a call that can wait for so long. A server that has gone is tried again for it.
    pub(super) async fn session(&self, patience: Duration) -> Result<Arc<Session>, Failure> {
        let mut state = self.state.subscribe();
        let mut tried = false;
        let wait = async {
            loop {
                let (now, session) = state.borrow_and_update().clone();
                match (now, session) {
                    (_, Some(session)) if !session.inbox.ending.is_over() => return Ok(session),
                    (ServerState::Suspended, _) => return Err(self.suspended()),
                    // It was tried for this call, and failed.
                    (ServerState::Failed, _) if std::mem::replace(&mut tried, true) => {
                        return Err(self.absent());
                    }
                    (ServerState::Failed, _) => {
                        self.wanted.notify_one();
                    }
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
        let why = Refusal::of_operator(&why);
        let text = format!("the MCP server `{}` is not there: {}", status.name, why.text);
        ToolError::new(ErrorCode::NotAvailable, text).with_hint(why.hint).into()
    }

    fn suspended(&self) -> Failure {
        let again = *self.again.lock();
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
        if self.ports.recalls {
            self.recall().await;
        }
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
        let why = self.heard(&why);
        tracing::warn!(server = self.name(), failures, "an MCP server is not there: {why}");
        let broken = denied || failures >= BREAK_AFTER;
        let doubled = RETRY_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10));
        let pause = if broken { BREAK_PAUSE } else { doubled.min(MAX_RETRY_PAUSE) };
        // So that servers that went together do not come together.
        let pause = pause.mul_f64(1.0 + 0.2 * spread(self.name(), failures));
        *self.again.lock() = Instant::now() + pause;
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
        if state != ServerState::Connecting {
            self.listed.cancel();
            self.tried.cancel();
            // What is still to come has an end: a list may be whole now.
            self.ports.changes.send_modify(|count| *count += 1);
        }
    }

    /// Puts in what is known of its list from before.
    async fn recall(self: &Arc<Self>) {
        let Some((listed, version)) = memory::recall(&self.server, &*self.ports.outside).await else {
            return;
        };
        let (supervisor, version) = (Arc::clone(self), version.map(|version| self.claimed(&version)));
        let placed = tokio::task::spawn_blocking(move || {
            supervisor.put_tools(&listed, version.as_ref(), || false);
        });
        if placed.await.is_ok() {
            self.listed.cancel();
        }
    }

    /// A version that a server claims, as it is told.
    fn claimed(&self, version: &str) -> Arc<str> {
        wording::label(version, MAX_LABEL, &|text| self.ports.outside.redacted(text)).into()
    }

    /// Has a list kept for the next start, unless it is the one that is kept.
    pub(super) async fn remember(&self, version: Option<&str>, listed: &Listed) {
        let Some(bytes) = memory::written(&self.server, version, listed, &*self.ports.outside) else {
            tracing::debug!(server = self.name(), "its list is too long to be kept");
            return;
        };
        let mark = Some(mark_of(&bytes));
        let before = std::mem::replace(&mut *self.kept.lock(), mark);
        if before != mark {
            self.ports.outside.remember(&self.server.name, bytes).await;
        }
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

    /// Stays with a conversation until it is over; returns why. Whatever it does meanwhile, it hears the end.
    async fn attend(self: &Arc<Self>, session: &Arc<Session>) -> String {
        let mut hears = pin!(session.hear());
        let mut heard = false;
        let mut pause = REFRESH_PAUSE;
        let mut last = tokio::time::Instant::now();
        // When the lists are read again; what is told meanwhile is one more change, not many.
        let mut due = None;
        // The lists are being read: the tools were, as the conversation began.
        let mut reading = pin!(self.read_lists(session, false).fuse());
        loop {
            let wait = tokio::time::sleep_until(due.unwrap_or(last));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return "the host ended it".to_owned(),
                why = session.inbox.ending.over() => return why,
                () = session.inbox.hung.notified() => {
                    return "it did not answer several calls in a row, and was ended".to_owned();
                }
                read = &mut reading, if !reading.is_terminated() => {
                    if let Some(why) = self.read_again(read) {
                        return why;
                    }
                    last = tokio::time::Instant::now();
                }
                () = &mut hears, if !heard => heard = true,
                () = wait, if due.is_some() && reading.is_terminated() => {
                    due = None;
                    reading.set(self.read_lists(session, true).fuse());
                }
                () = session.inbox.changed.notified(), if due.is_none() => {
                    let calm = last.elapsed() > pause.saturating_mul(4);
                    pause = if calm { REFRESH_PAUSE } else { pause.saturating_mul(2).min(MAX_REFRESH_PAUSE) };
                    due = Some(tokio::time::Instant::now() + pause);
                }
            }
        }
    }

    /// Reads what the server offers, its tools only if they may be others.
    async fn read_lists(
        self: &Arc<Self>,
        session: &Arc<Session>,
        tools: bool,
    ) -> Result<Result<(), LinkError>, Elapsed> {
        if tools {
            let read = tokio::time::timeout(self.server.start_timeout, self.refresh(session)).await;
            if !matches!(read, Ok(Ok(()))) {
                return read;
            }
        }
        self.refresh_resources(session).await;
        Ok(Ok(()))
    }

    /// What becomes of a list that was read again; returns why the conversation is over, if it is.
    fn read_again(&self, read: Result<Result<(), LinkError>, Elapsed>) -> Option<String> {
        match read {
            Ok(Ok(())) => None,
            Ok(Err(LinkError::Closed(why))) => Some(why),
            Ok(Err(error)) => {
                let why = self.heard(&error.to_string());
                tracing::warn!(server = self.name(), "its list could not be read again: {why}");
                None
            }
            Err(_) => Some("its list could not be read again in time".to_owned()),
        }
    }
}

/// What a server is handed when it is started; one behind a URL gets it with each request.
fn handed(server: &McpServer, outside: &dyn Outside) -> u64 {
    match &server.place {
        Place::Child(child) => outside.handed(child),
        Place::Http(_) => 0,
    }
}

/// Another number for other bytes.
fn mark_of(bytes: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(bytes)
}

/// From 0 to 1, another for each name and attempt.
fn spread(name: &str, failures: u32) -> f64 {
    let number = RandomState::new().hash_one((name, failures));
    f64::from(u32::try_from(number >> 40).unwrap_or_default()) / f64::from(1_u32 << 24)
}
