//! Sessions: of clients up to 2025-11-25, which begin with `initialize` and have an id, and of later ones, which have none
//! ([`Stateless`]). They are counted together.
//!
//! rmcp runs one that has an id; whose it is, how many there are and how old they get is settled here. An id that belongs
//! to another client is as unknown as one that nobody has.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::Either;
use futures_util::{Stream, stream};
use rmcp::model::{ClientJsonRpcMessage, ErrorData, GetExtensions as _, RequestId, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionHandle, LocalSessionWorker, SessionConfig, SessionError, create_local_session,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbay_core::serve::ServeLimits;
use toolbay_core::session::Session;

use super::clients::{Client, Full, Kind, Share};
use super::replay::{Answering, Keeper, Replays, place};
use super::stateless::Stateless;
use super::{Settings, State};
use crate::auth::Standing;

/// How long a session must have been silent before another one may take its place.
const SETTLED: Duration = Duration::from_secs(5);
/// How long a new session may be without `initialize`, which comes with the request that makes it.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client is told to wait before it comes back for a stream that broke.
pub(super) const RETRY: Duration = Duration::from_secs(3);

/// The sessions of all clients.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    with_id: Mutex<HashMap<SessionId, Held>>,
    pub(super) stateless: Stateless,
}

#[derive(Debug)]
struct Held {
    open: Open,
    client: Arc<str>,
    /// The client under a profile: whose it is.
    owner: Arc<str>,
    /// On what the last request in it stood.
    standing: Standing,
    begun: Instant,
    used: Instant,
    _share: Share,
}

/// A session as its requests use it.
#[derive(Debug, Clone)]
struct Open {
    handle: LocalSessionHandle,
    /// Requests that are not answered yet, by their ids.
    asked: Ids,
    replays: Arc<Replays>,
    /// Ends it.
    closed: CancellationToken,
}

/// Ids of requests.
type Ids = Arc<Mutex<HashSet<RequestId>>>;

/// The sessions as one client may use them.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) state: Arc<State>,
    pub(super) settings: Arc<Settings>,
    pub(super) client: Arc<Client>,
    /// Whose they are: a client under a profile.
    pub(super) owner: Arc<str>,
    pub(super) standing: Standing,
    /// Ends a session that is begun now.
    pub(super) closed: CancellationToken,
    /// The share of such a session.
    pub(super) seat: Mutex<Option<Share>>,
    /// Whether streams begin with an event that says how to come back to them, which older clients do not expect.
    pub(super) primed: bool,
}

/// Why a session can not be used.
#[derive(Debug)]
pub(super) enum Problem {
    Unknown,
    NoSeat,
    Ended(SessionError),
    EventId,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such session"),
            Self::NoSeat => f.write_str("no session was to begin"),
            Self::Ended(error) => write!(f, "the session has ended: {error}"),
            Self::EventId => f.write_str("the id of an event is none"),
        }
    }
}

impl std::error::Error for Problem {}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Self {
        Self::Ended(error)
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Held>> {
        self.with_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many have an id.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Ends those that nobody can use any more, whatever their clients came with.
    pub(super) fn end_revoked(&self) {
        self.lock().retain(|_, held| held.goes_on(|held| !held.standing.is_revoked()));
    }

    /// Ends those that are too old, and those that nobody can use any more.
    pub(super) fn sweep(&self, limits: &ServeLimits) {
        self.stateless.sweep(limits);
        self.end_revoked();
        self.lock().retain(|_, held| held.goes_on(|held| held.begun.elapsed() < limits.session_age));
    }

    /// What a request of 2026-07-28 belongs to: the session of this name.
    ///
    /// # Errors
    /// It would be a new one, and there is no room for it.
    pub(super) fn stateless(
        &self,
        name: &Arc<str>,
        state: &State,
        client: &Client,
        limits: &ServeLimits,
    ) -> Result<Arc<Session>, Full> {
        match self.stateless.get(name, limits) {
            Some(session) => Ok(session),
            None => Ok(self.stateless.begin(name, client, self.seat(state, client, limits)?)),
        }
    }

    /// The share of one more session, for which another one may have to go.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn seat(&self, state: &State, client: &Client, limits: &ServeLimits) -> Result<Share, Full> {
        let share = || state.clients.share(client, Kind::Session, limits);
        share().or_else(|full| {
            let of = full.own.then_some(&*client.name);
            let gone = self.stateless.drop_oldest(of) || self.end_oldest(&client.name);
            if gone { share() } else { Err(full) }
        })
    }

    /// Ends the session with an id that a client has not used for longest. Only one's own: nobody ends another's by
    /// beginning many.
    fn end_oldest(&self, client: &Arc<str>) -> bool {
        let mut sessions = self.lock();
        let silent = sessions.iter().filter(|(_, held)| held.client == *client && held.is_silent());
        let oldest = silent.min_by_key(|(_, held)| held.used).map(|(id, _)| Arc::clone(id));
        let gone = oldest.and_then(|id| sessions.remove(&id));
        gone.map(|held| held.open.closed.cancel()).is_some()
    }
}

impl Held {
    /// Ends it unless something holds of it; returns whether it does.
    fn goes_on(&self, holds: impl FnOnce(&Self) -> bool) -> bool {
        let goes_on = holds(self);
        if !goes_on {
            self.open.closed.cancel();
        }
        goes_on
    }

    /// Whether nothing has happened in it for a while, and nothing is waited for.
    fn is_silent(&self) -> bool {
        let asked = self.open.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_empty() && self.used.elapsed() >= SETTLED
    }
}

impl Own {
    fn limits(&self) -> &ServeLimits {
        &self.settings.serve.limits
    }

    fn open(&self, id: &SessionId) -> Result<Open, Problem> {
        let mut sessions = self.state.sessions.lock();
        let held = sessions.get_mut(id).filter(|held| held.owner == self.owner).ok_or(Problem::Unknown)?;
        held.used = Instant::now();
        held.standing = self.standing.clone();
        Ok(held.open.clone())
    }

    /// Whether this client has a session of this id.
    pub(super) fn has(&self, id: &str) -> bool {
        let mut sessions = self.state.sessions.lock();
        let Some(held) = sessions.get(id).filter(|held| held.owner == self.owner) else { return false };
        if held.goes_on(|held| held.begun.elapsed() < self.limits().session_age) {
            return true;
        }
        sessions.remove(id);
        false
    }

    fn keeper(&self, open: &Open) -> Keeper {
        Keeper {
            state: Arc::clone(&self.state),
            settings: Arc::clone(&self.settings),
            client: Arc::clone(&self.client),
            replays: Arc::clone(&open.replays),
            closed: open.closed.clone(),
        }
    }
}

impl SessionManager for Own {
    type Error = Problem;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Problem> {
        let seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(Problem::NoSeat)?;
        let mut config = SessionConfig::default();
        config.keep_alive = Some(self.limits().session_idle);
        config.init_timeout = Some(INIT_TIMEOUT);
        config.sse_retry = self.primed.then_some(RETRY);
        // Whoever cancels does not come back for the answer.
        config.completed_cache_ttl = Duration::ZERO;
        let id = session_id();
        let (handle, worker) = create_local_session(Arc::clone(&id), config);
        let now = Instant::now();
        let (asked, replays) = (Ids::default(), Arc::default());
        let held = Held {
            open: Open { handle, asked, replays, closed: self.closed.clone() },
            client: Arc::clone(&self.client.name),
            owner: Arc::clone(&self.owner),
            standing: self.standing.clone(),
            begun: now,
            used: now,
            _share: seat,
        };
        self.state.sessions.lock().insert(Arc::clone(&id), held);
        Ok((id, WorkerTransport::spawn(worker)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Problem> {
        Ok(self.open(id)?.handle.initialize(message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Problem> {
        Ok(self.has(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Problem> {
        let held = {
            let mut sessions = self.state.sessions.lock();
            let own = sessions.get(id).is_some_and(|held| held.owner == self.owner);
            own.then(|| sessions.remove(id)).flatten()
        };
        if let Some(held) = held {
            held.open.closed.cancel();
            match held.open.handle.close().await {
                Ok(()) | Err(SessionError::SessionServiceTerminated) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Problem> {
        let session = self.open(id)?;
        let open = match &mut message {
            ClientJsonRpcMessage::Request(request) => {
                match Asked::new(Arc::clone(&session.asked), request.id.clone()) {
                    Ok(open) => {
                        // Until it is answered, and until it has ended: without its connection it still goes on.
                        let open = Arc::new(open);
                        request.request.extensions_mut().insert(Arc::clone(&open));
                        Some(open)
                    }
                    Err(id) => {
                        let text = "a request of this id is not answered yet; each has an id of its own";
                        let refusal =
                            ServerJsonRpcMessage::error(ErrorData::invalid_request(text, None), Some(id));
                        let refusal = ServerSseMessage::from_message(refusal);
                        return Ok(Either::Left(stream::iter([refusal])));
                    }
                }
            }
            _ => None,
        };
        let keeper = self.keeper(&session);
        // In a task: whoever leaves in the middle of it would leave a stream behind that nothing ends.
        let begun = tokio::spawn(async move {
            let receiver = session.handle.establish_request_wise_channel().await?;
            session.handle.push_message(message, receiver.http_request_id).await?;
            Ok::<_, SessionError>(receiver)
        });
        let receiver = begun.await.unwrap_or(Err(SessionError::SessionServiceTerminated))?;
        let number = receiver.http_request_id.unwrap_or_default();
        Ok(Either::Right(Answering::new(keeper, number, receiver.inner, open)))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Problem> {
        Ok(self.open(id)?.handle.push_message(message, None).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Problem> {
        let mut receiver = self.open(id)?.handle.establish_common_channel().await?.inner;
        Ok(stream::poll_fn(move |cx| receiver.poll_recv(cx)))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Problem> {
        let session = self.open(id)?;
        let (index, number) = place(&last_event_id).ok_or(Problem::EventId)?;
        if let Some(number) = number
            && let Some(kept) = session.replays.resume(number, index).await
        {
            return Ok(Either::Left(kept));
        }
        // The stream of the session itself, or one that another connection still has.
        let event = last_event_id.parse().map_err(|_| Problem::EventId)?;
        let mut receiver = session.handle.resume(event).await?.inner;
        Ok(match number {
            Some(number) => Either::Left(Answering::new(self.keeper(&session), number, receiver, None)),
            None => Either::Right(stream::poll_fn(move |cx| receiver.poll_recv(cx))),
        })
    }
}

/// A request that is not answered yet, until this is dropped.
#[derive(Debug)]
pub(super) struct Asked(Ids, RequestId);

impl Asked {
    fn new(asked: Ids, id: RequestId) -> Result<Self, RequestId> {
        let first = asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        if first { Ok(Self(asked, id)) } else { Err(id) }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// An id that nobody can guess.
fn session_id() -> SessionId {
    uuid::Uuid::new_v4().to_string().into()
}
