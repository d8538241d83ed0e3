//! Supervises one server: connects, imports its tools, reads the list again when it changes, and reconnects with
//! increasing delays. After repeated failures it suspends the server.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::FusedFuture as _;
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use toolbay_core::call::compute::ComputePool;
use toolbay_core::call::invoke::Failure;
use toolbay_core::call::reduce::Reduce;
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::registry::Registry;
use toolbay_core::tool::content::{ErrorCode, ToolError};
use toolbay_core::tool::definition_text;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::hint::Hint;
use toolbay_policy::limits::{LimitHit, LimitSetting};
use toolbay_policy::mcp_server::{McpServer, ProtocolEra, ServerTransport};
use toolbay_policy::quantity;
use toolbay_policy::refusal::PolicyRefusal;

use super::bounds::{
    HUNG_AFTER, MAX_LABEL, MAX_QUOTED_CHARS, MAX_REFRESH_DELAY, MAX_RETRY_DELAY, REFRESH_DELAY, RETRY_DELAY,
    STABLE_AFTER, SUSPEND_AFTER_FAILURES, SUSPEND_DURATION,
};
use super::denied_path;
use super::elicit::ElicitationHandler;
use super::handshake::BeginError;
use super::http::{HttpLink, LostSessions};
use super::inbox::Inbox;
use super::link::Link;
use super::link_request::LinkError;
use super::list::{self, ServerList};
use super::oauth::{Authenticator, AuthorizationHandler};
use super::resources::RemoteResources;
use super::saved_list::{self, SavedServer};
use super::session::ClientSession;
use super::status::{ServerState, ServerStatus};
use super::stdio::StdioLink;
use crate::protocol::lifecycle::Era;

/// Finds a built-in reducer by its name.
pub type ReducerLookup = Arc<dyn Fn(&str) -> Option<Arc<dyn Reduce>> + Send + Sync>;

/// State that all supervisors of a bridge share.
#[derive(Clone)]
pub(super) struct BridgeContext {
    pub(super) registry: Arc<Registry>,
    pub(super) connector: Arc<dyn ServerConnector>,
    pub(super) elicitation_handler: Option<Arc<dyn ElicitationHandler>>,
    pub(super) authorization_handler: Option<Arc<dyn AuthorizationHandler>>,
    pub(super) reducer: Option<ReducerLookup>,
    /// Where long resources are converted.
    pub(super) compute: ComputePool,
    /// Whether the saved tools of a server are registered before the server has answered.
    pub(super) uses_saved_lists: bool,
    /// Counts changes that the registry does not report, such as those of resources.
    pub(super) changes: watch::Sender<u64>,
}

impl std::fmt::Debug for BridgeContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BridgeContext").field("connector", &self.connector).finish_non_exhaustive()
    }
}

/// Supervises the connection to one server.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) server: Arc<McpServer>,
    pub(super) context: BridgeContext,
    /// The tokens of a server at a URL. They outlive a connection.
    authenticator: Option<Arc<Authenticator>>,
    /// When its sessions over HTTP were lost.
    lost_sessions: Arc<LostSessions>,
    /// Fingerprint of the inputs of the server that are not in its section, such as values of secrets.
    start_fingerprint: u64,
    /// The status without its reason, which `Supervisor::status` adds.
    status: Mutex<ServerStatus>,
    /// Why the server is not ready. Locked after `status`, if both are.
    failure: Mutex<Option<PolicyRefusal>>,
    state: watch::Sender<(ServerState, Option<Arc<ClientSession>>)>,
    /// Notified when a call needs the server.
    wake: Notify,
    /// Time of the next attempt.
    retry_at: Mutex<Instant>,
    /// Whether its tools are registered. The lock is held during registration.
    pub(super) registered: Mutex<bool>,
    /// The list of the tools that were registered last, as the server wrote it.
    pub(super) listed_tools: Mutex<Vec<Box<RawValue>>>,
    /// Last known resources and templates.
    pub(super) resources: Mutex<Arc<RemoteResources>>,
    /// Fires when the tools are registered or the first attempt has failed.
    pub(super) listed: CancellationToken,
    /// Fires when the first attempt has succeeded or failed.
    attempted: CancellationToken,
    /// What the last start found out about the server.
    known_server: Mutex<KnownServer>,
    /// Fingerprint of the saved list.
    saved_fingerprint: Mutex<Option<u64>>,
    pub(super) stop: CancellationToken,
}

/// What the last start found out about a server.
#[derive(Debug, Default)]
struct KnownServer {
    /// The era to begin with; `None` if it must be found.
    era: Option<Era>,
    version: Option<Arc<str>>,
}

impl Supervisor {
    pub(super) fn new(server: Arc<McpServer>, ports: BridgeContext) -> Self {
        let status = ServerStatus { name: server.name.to_string(), ..ServerStatus::default() };
        let (connector, handler) = (Arc::clone(&ports.connector), ports.authorization_handler.clone());
        Self {
            authenticator: Authenticator::for_server(&server, connector, handler).map(Arc::new),
            lost_sessions: Arc::default(),
            start_fingerprint: start_fingerprint(&server, &*ports.connector),
            server,
            context: ports,
            status: Mutex::new(status),
            failure: Mutex::default(),
            state: watch::Sender::new((ServerState::Connecting, None)),
            wake: Notify::new(),
            retry_at: Mutex::new(Instant::now()),
            registered: Mutex::new(false),
            listed_tools: Mutex::default(),
            resources: Mutex::default(),
            listed: CancellationToken::new(),
            attempted: CancellationToken::new(),
            known_server: Mutex::default(),
            saved_fingerprint: Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.server.name.as_str()
    }

    /// Whether the section of the server and all its other inputs are unchanged.
    pub(super) fn is_configured_as(&self, server: &McpServer) -> bool {
        *self.server == *server
            && self.start_fingerprint == start_fingerprint(server, &*self.context.connector)
    }

    pub(super) fn status(&self) -> ServerStatus {
        let known = self.lock_status();
        let mut status = known.clone();
        status.reason = self.failure.lock().as_ref().map(PolicyRefusal::for_operator);
        drop(known);
        status.problems.extend(self.resources().problems.iter().cloned());
        status
    }

    pub(super) fn lock_status(&self) -> MutexGuard<'_, ServerStatus> {
        self.status.lock()
    }

    /// The last known resources and templates.
    pub(super) fn resources(&self) -> Arc<RemoteResources> {
        Arc::clone(&self.resources.lock())
    }

    /// Makes text from a server safe to show: redacted, on one line and truncated.
    pub(super) fn sanitize(&self, text: &str) -> String {
        definition_text::sanitize_label(text, MAX_QUOTED_CHARS, &|text| self.context.connector.redact(text))
    }

    /// Makes both texts of a refusal safe to show.
    pub(super) fn sanitize_refusal(&self, refusal: &PolicyRefusal) -> PolicyRefusal {
        refusal.clone().map_texts(|text| self.sanitize(&text))
    }

    /// How long one attempt to connect may take.
    pub(super) fn start_timeout(&self) -> Duration {
        self.server.start_timeout
    }

    pub(super) fn label(&self) -> String {
        format!("mcp:{}", self.server.name)
    }

    /// Waits until the current attempt to connect has succeeded or failed.
    pub(super) async fn wait_settled(&self) {
        let mut state = self.state.subscribe();
        // An error means that the supervisor was dropped, which is settled, too.
        drop(state.wait_for(|(state, _)| *state != ServerState::Connecting).await);
    }

    /// Waits for a running renewal of the server's tokens, and lets no other begin.
    pub(super) async fn finish_renewals(&self) {
        if let Some(authenticator) = &self.authenticator {
            authenticator.finish_renewals().await;
        }
    }

    /// Whether the first attempt has succeeded or failed.
    pub(super) fn was_attempted(&self) -> bool {
        self.attempted.is_cancelled() || self.stop.is_cancelled()
    }

    /// Whether the server is connecting, so that its tools may still be registered.
    pub(super) fn is_connecting(&self) -> bool {
        self.state.borrow().0 == ServerState::Connecting && !self.stop.is_cancelled()
    }

    /// The current session, if the server is connected.
    pub(super) fn current_session(&self) -> Option<Arc<ClientSession>> {
        self.state.borrow().1.clone()
    }

    /// Returns the session for a call, or waits for one for at most 90 % of `patience`. A failed server is retried.
    pub(super) async fn session(&self, patience: Duration) -> Result<Arc<ClientSession>, Failure> {
        let mut state = self.state.subscribe();
        let mut tried = false;
        let wait = async {
            loop {
                let (now, session) = state.borrow_and_update().clone();
                match (now, session) {
                    (_, Some(session)) if !session.inbox.closure.is_closed() => return Ok(session),
                    (ServerState::Suspended, _) => return Err(self.suspended_error()),
                    // The attempt for this call has failed.
                    (ServerState::Failed, _) if std::mem::replace(&mut tried, true) => {
                        return Err(self.unavailable_error());
                    }
                    (ServerState::Failed, _) => {
                        self.wake.notify_one();
                    }
                    (ServerState::Connecting | ServerState::Ready, _) => {}
                }
                tokio::select! {
                    () = self.stop.cancelled() => return Err(self.unavailable_error()),
                    changed = state.changed() => if changed.is_err() { return Err(self.unavailable_error()) },
                }
            }
        };
        match tokio::time::timeout(patience.mul_f32(0.9), wait).await {
            Ok(found) => found,
            Err(_) => Err(self.unavailable_error()),
        }
    }

    fn unavailable_error(&self) -> Failure {
        let why = self.failure.lock().clone();
        let PolicyRefusal { text, hint } = why.unwrap_or_else(|| "it is still starting".into());
        let text = format!("the MCP server `{}` is unavailable: {text}", self.name());
        ToolError::new(ErrorCode::NotAvailable, text).with_hint(hint).into()
    }

    fn suspended_error(&self) -> Failure {
        let again = *self.retry_at.lock();
        let left = again.saturating_duration_since(Instant::now());
        let limit = LimitHit {
            name: "mcp_failures",
            value: SUSPEND_AFTER_FAILURES.to_string(),
            setting: LimitSetting::Nothing(
                "the host retries after the pause, or at once when the section of the server changes"
                    .to_owned(),
            ),
        };
        let what = format!(
            "the MCP server `{}` failed {SUSPEND_AFTER_FAILURES} times in a row and is suspended for another {}",
            self.name(),
            quantity::show_duration(Duration::from_secs(left.as_secs() + 1)),
        );
        Fault::by_limit(FaultKind::Suspended, &what, limit).retry_after(left).into()
    }

    /// Runs until it is stopped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut failures = 0_u32;
        self.load_saved_list().await;
        while !self.stop.is_cancelled() {
            self.set_state(ServerState::Connecting, None);
            let begun = Instant::now();
            let connected = tokio::select! {
                () = self.stop.cancelled() => break,
                connected = self.connect() => connected,
            };
            let (why, denied, session_lost) = match connected {
                Ok(session) => {
                    self.set_state(ServerState::Ready, Some(Arc::clone(&session)));
                    let why = self.monitor(&session).await;
                    self.drop_session();
                    let why = match session.link.close().await {
                        Some(how) => why.map_text(|why| format!("{why} ({how})")),
                        None => why,
                    };
                    (why, false, session.link.is_session_lost())
                }
                Err(error) => {
                    let denied = matches!(error, LinkError::Denied(_));
                    (error.refusal(), denied, false)
                }
            };
            if self.stop.is_cancelled() {
                break;
            }
            failures = if begun.elapsed() > STABLE_AFTER { 1 } else { failures.saturating_add(1) };
            if session_lost && failures == 1 {
                // The server is there, and a request may wait for the next session.
                tracing::info!(
                    server = self.name(),
                    "an MCP server no longer knows its session: a new one begins"
                );
                continue;
            }
            self.pause(&why, denied, failures).await;
            if failures >= SUSPEND_AFTER_FAILURES {
                failures = 0;
            }
        }
        self.drop_session();
    }

    /// Waits before the next attempt, with exponential backoff. After an error that a retry cannot fix, the delay is
    /// [`SUSPEND_DURATION`].
    async fn pause(&self, why: &PolicyRefusal, denied: bool, failures: u32) {
        let why = self.sanitize_refusal(why);
        let hint = self.denied_path_hint(&why.text);
        let why = why.with_further_hint(hint);
        let shown = why.for_operator();
        tracing::warn!(server = self.name(), failures, "an MCP server is unavailable: {shown}");
        let broken = denied || failures >= SUSPEND_AFTER_FAILURES;
        let doubled = RETRY_DELAY.saturating_mul(1 << failures.saturating_sub(1).min(10));
        let pause = if broken { SUSPEND_DURATION } else { doubled.min(MAX_RETRY_DELAY) };
        // Jitter: servers that failed together do not reconnect together.
        let pause = pause.mul_f64(1.0 + 0.2 * jitter(self.name(), failures));
        *self.retry_at.lock() = Instant::now() + pause;
        *self.failure.lock() = Some(why);
        let suspended = failures >= SUSPEND_AFTER_FAILURES;
        self.set_state(if suspended { ServerState::Suspended } else { ServerState::Failed }, None);
        // A call may trigger an earlier attempt, but not in a tight loop.
        let least = tokio::time::sleep(doubled.min(pause).min(Duration::from_secs(5)));
        let wanted = async {
            if suspended {
                std::future::pending::<()>().await;
            }
            self.wake.notified().await;
            least.await;
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
            () = wanted => {}
        }
    }

    /// The policy line that would let the server use a path that it says it was denied.
    pub(super) fn denied_path_hint(&self, text: &str) -> Option<Hint> {
        denied_path::hint(&self.server, &*self.context.connector, text)
    }

    fn set_state(&self, state: ServerState, session: Option<Arc<ClientSession>>) {
        let mut status = self.lock_status();
        status.state = state;
        if state == ServerState::Ready {
            *self.failure.lock() = None;
        }
        drop(status);
        // Before waiting calls continue: they look up a tool, and learn why its server has none.
        self.publish_state(state.of_source());
        self.state.send_replace((state, session));
        if state != ServerState::Connecting {
            self.listed.cancel();
            self.attempted.cancel();
            // A list that waited for this server may be complete now.
            self.context.changes.send_modify(|count| *count += 1);
        }
    }

    /// Loads what the last start saved about the server, and registers the saved list of tools.
    async fn load_saved_list(self: &Arc<Self>) {
        let Some(saved) = saved_list::load(&self.server, &*self.context.connector).await else {
            return;
        };
        let SavedServer { listed, version, era } = saved;
        let version = version.map(|version| self.sanitize_version(&version));
        *self.known_server.lock() = KnownServer { era, version: version.clone() };
        if !self.context.uses_saved_lists {
            return;
        }
        let supervisor = Arc::clone(self);
        let registered = tokio::task::spawn_blocking(move || {
            supervisor.register_tools(&listed, version.as_ref(), || false);
            *supervisor.listed_tools.lock() = listed.items;
        });
        if registered.await.is_ok() {
            self.listed.cancel();
        }
    }

    /// Makes the version that a server reports safe to show.
    fn sanitize_version(&self, version: &str) -> Arc<str> {
        definition_text::sanitize_label(version, MAX_LABEL, &|text| self.context.connector.redact(text))
            .into()
    }

    /// Saves the list and the era of a session for the next start, unless the same is already saved.
    pub(super) async fn save_list(&self, encoded: Option<Vec<u8>>) {
        let Some(bytes) = encoded else {
            tracing::debug!(server = self.name(), "the list of tools is too long to be saved");
            return;
        };
        let mark = Some(fingerprint(&bytes));
        let before = std::mem::replace(&mut *self.saved_fingerprint.lock(), mark);
        if before != mark {
            self.context.connector.save_tool_list(&self.server.name, bytes).await;
        }
    }

    /// The list and the era of a session, as [`Self::save_list`] saves them. `None` if they are too long. The work grows
    /// with the list.
    pub(super) fn encode_list(&self, session: &ClientSession, listed: &ServerList) -> Option<Vec<u8>> {
        let version = session.negotiated.version.as_deref();
        let era = self.known_server.lock().era;
        saved_list::encode(&self.server, version, era, listed, &*self.context.connector)
    }

    /// Remembers the era of a server for its next start. A server over HTTP is asked each time, which costs one request.
    /// So is a legacy server whose version has changed: it may have become modern. `remembered` is the era that this
    /// session began with.
    fn remember_era(&self, session: &ClientSession, remembered: Option<Era>) {
        let mut known = self.known_server.lock();
        let version = session.negotiated.version.clone();
        let skipped_discover = remembered == Some(Era::Legacy);
        let is_current = session.negotiated.modern || !skipped_discover || known.version == version;
        let is_wanted = self.server.protocol == ProtocolEra::Auto && matches!(session.link, Link::Stdio(_));
        let era = if session.negotiated.modern { Era::Modern } else { Era::Legacy };
        *known = KnownServer { era: (is_wanted && is_current).then_some(era), version };
    }

    /// Drops the session. The tools stay registered, and a call triggers a reconnect.
    pub(super) fn drop_session(&self) {
        self.state.send_modify(|(_, session)| *session = None);
    }

    /// Connects to the server and imports its tools.
    async fn connect(self: &Arc<Self>) -> Result<Arc<ClientSession>, LinkError> {
        let most = self.server.start_timeout;
        let latest: Mutex<Option<Arc<Inbox>>> = Mutex::default();
        // After a failed attempt, the next one finds the era again, unless the handshake succeeds.
        let remembered = self.known_server.lock().era.take();
        let deadline = list::later_pages_deadline(tokio::time::Instant::now(), most);
        let connect = async {
            let mut begin_in = remembered;
            loop {
                let (link, inbox) = self.open_link().await?;
                *latest.lock() = Some(Arc::clone(&inbox));
                match ClientSession::begin(link, inbox, self.server.protocol, begin_in).await {
                    Ok(session) => {
                        let session = Arc::new(session);
                        self.remember_era(&session, remembered);
                        self.record_connected(&session);
                        self.refresh_tools(&session, deadline).await?;
                        return Ok(session);
                    }
                    Err(BeginError::RetryAsLegacy) => begin_in = Some(Era::Legacy),
                    Err(BeginError::Failed(error)) => return Err(error),
                }
            }
        };
        if let Ok(connected) = tokio::time::timeout(most, connect).await {
            return connected;
        }
        let unusable = latest.lock().as_ref().and_then(|inbox| inbox.requests.describe_start());
        let unusable = unusable.map(|what| format!("; {what}")).unwrap_or_default();
        let text = format!("it did not start within {}{unusable}", quantity::show_duration(most));
        let name = &self.server.name;
        let hint = format!("to allow more time, write in the policy: [mcp.{name}] start_timeout = …");
        Err(LinkError::Closed(PolicyRefusal::new(text, hint)))
    }

    async fn open_link(&self) -> Result<(Link, Arc<Inbox>), LinkError> {
        let BridgeContext { connector, elicitation_handler: elicit, .. } = &self.context;
        let inbox = Arc::new(Inbox::new(self.server.name.clone(), Arc::clone(connector), elicit.clone()));
        let link = match &self.server.transport {
            ServerTransport::Stdio(child) => {
                let started = connector.start(&self.server.name, child).await?;
                Link::Stdio(StdioLink::new(started, Arc::clone(&inbox)))
            }
            ServerTransport::Http(endpoint) => {
                let (authenticator, lost) = (self.authenticator.clone(), Arc::clone(&self.lost_sessions));
                let link = HttpLink::new((**endpoint).clone(), authenticator, Arc::clone(&inbox), lost);
                Link::Http(Arc::new(link))
            }
        };
        Ok((link, inbox))
    }

    /// Records a successful handshake in the status.
    fn record_connected(&self, session: &ClientSession) {
        let mut status = self.lock_status();
        status.protocol = Some(session.negotiated.protocol.clone());
        status.title.clone_from(&session.negotiated.title);
        status.version = session.negotiated.version.as_deref().map(ToOwned::to_owned);
        status.confinement = session.link.confinement();
        status.connects += 1;
    }

    /// Serves a session until it ends; returns the reason. Reads the lists again when they change.
    async fn monitor(self: &Arc<Self>, session: &Arc<ClientSession>) -> PolicyRefusal {
        let mut events = pin!(session.read_server_events());
        let mut has_change = false;
        let mut pause = REFRESH_DELAY;
        let mut last = tokio::time::Instant::now();
        // When to read the lists again. Several changes before that count as one.
        let mut due = None;
        // Tools were read during the connect; the other lists are read now.
        let mut reading = pin!(self.read_lists(session, false).fuse());
        loop {
            let wait = tokio::time::sleep_until(due.unwrap_or(last));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return "the host closed the connection".into(),
                why = session.inbox.closure.wait_closed() => return why,
                () = session.inbox.hung.notified() => {
                    let text = format!("it did not answer {HUNG_AFTER} calls in a row: the connection was closed");
                    return text.into();
                }
                read = &mut reading, if !reading.is_terminated() => {
                    if let Err(why) = read {
                        return why;
                    }
                    last = tokio::time::Instant::now();
                }
                () = &mut events, if !has_change => has_change = true,
                () = wait, if due.is_some() && reading.is_terminated() => {
                    due = None;
                    reading.set(self.read_lists(session, true).fuse());
                }
                () = session.inbox.changed.notified(), if due.is_none() => {
                    let calm = last.elapsed() > pause.saturating_mul(4);
                    pause = if calm { REFRESH_DELAY } else { pause.saturating_mul(2).min(MAX_REFRESH_DELAY) };
                    due = Some(tokio::time::Instant::now() + pause);
                }
            }
        }
    }

    /// Reads the lists of the server; the list of tools only if `tools` is set. The error is the reason why the session has
    /// to end.
    async fn read_lists(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        tools: bool,
    ) -> Result<(), PolicyRefusal> {
        if tools {
            let most = self.server.start_timeout;
            let deadline = list::later_pages_deadline(tokio::time::Instant::now(), most);
            let read = tokio::time::timeout(most, self.refresh_tools(session, deadline)).await;
            let read = match read.map_err(|_| "reading its lists again timed out")? {
                Err(error) if !matches!(error, LinkError::Closed(_)) => {
                    let why = error.refusal().for_operator();
                    let unread = ServerList::unread(format!("its list of tools cannot be read: {why}"));
                    self.replace_tools(session, unread).await
                }
                read => read,
            };
            read.map_err(|error| error.refusal())?;
        }
        self.refresh_resources(session).await;
        Ok(())
    }
}

/// Fingerprint of the inputs that a child process gets at its start. A server behind a URL gets them with each request.
fn start_fingerprint(server: &McpServer, connector: &dyn ServerConnector) -> u64 {
    match &server.transport {
        ServerTransport::Stdio(child) => connector.secrets_fingerprint(child),
        ServerTransport::Http(_) => 0,
    }
}

/// Hash of bytes, to detect changes.
fn fingerprint(bytes: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(bytes)
}

/// Random number from 0 to 1.
fn jitter(name: &str, failures: u32) -> f64 {
    let number = RandomState::new().hash_one((name, failures));
    f64::from(u32::try_from(number >> 40).unwrap_or_default()) / f64::from(1_u32 << 24)
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
