//! Sessions: of clients up to 2025-11-25, which begin with `initialize` and have an id, and of later ones, which have none
//! ([`Stateless`]). They are counted together.
//!
//! rmcp runs one that has an id; whose it is, how many there are and how old they get is settled here. An id that belongs
//! to another client is as unknown as one that nobody has.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::Either;
use futures_util::{Stream, stream};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbay_core::session::Session;
use toolbay_policy::serve::ServeLimits;

use super::clients::{Client, Full, Kind, Share};
use super::line::{Line, place};
use super::reading::{Keeper, Reading};
use super::session::{Live, Over, Wire, twice};
use super::stateless::Stateless;
use super::streams::{Refused, Streams};
use super::{Settings, State};
use crate::auth::Standing;
use crate::server::connection::Connection;

/// How long a session must have been silent before another one may take its place.
const SETTLED: Duration = Duration::from_secs(5);
/// How long a client is told to wait before it comes back for a stream that broke.
pub(super) const RETRY: Duration = Duration::from_secs(3);

/// The sessions of all clients.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    with_id: Mutex<HashMap<SessionId, Held>>,
    pub(super) stateless: Stateless,
}

/// One of them; it ends when this is dropped.
#[derive(Debug)]
struct Held {
    live: Arc<Live>,
    client: Arc<str>,
    /// The client under a profile: whose it is.
    owner: Arc<str>,
    /// On what the last request in it stood.
    standing: Standing,
    begun: Instant,
    used: Instant,
    _share: Share,
}

/// The sessions as one request may use them.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) state: Arc<State>,
    pub(super) settings: Arc<Settings>,
    pub(super) client: Arc<Client>,
    /// Whose they are: a client under a profile.
    pub(super) owner: Arc<str>,
    pub(super) standing: Standing,
    /// That which the request names.
    pub(super) live: Option<Arc<Live>>,
    /// What one begins with.
    pub(super) begins: Mutex<Option<Begins>>,
    /// The stream of a call that has begun.
    pub(super) reading: Mutex<Option<Reading>>,
    /// Whether streams begin with an event that says how to come back to them, which older clients do not expect.
    pub(super) primed: bool,
}

/// What a session begins with.
#[derive(Debug)]
pub(super) struct Begins {
    pub(super) connection: Arc<Connection>,
    pub(super) share: Share,
    pub(super) closed: CancellationToken,
}

/// Why a session can not be used.
#[derive(Debug)]
pub(super) enum Problem {
    Unknown,
    NoSeat,
    Ended,
    EventId,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such session"),
            Self::NoSeat => f.write_str("no session was to begin"),
            Self::Ended => f.write_str("the session has ended"),
            Self::EventId => f.write_str("the id of an event is none"),
        }
    }
}

impl std::error::Error for Problem {}

impl From<Over> for Problem {
    fn from(_: Over) -> Self {
        Self::Ended
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
        self.lock().retain(|_, held| !held.standing.is_revoked());
    }

    /// Ends those that are too old, and those that nobody can use any more; forgets what was kept in others for too long.
    pub(super) fn sweep(&self, limits: &ServeLimits) {
        self.stateless.sweep(limits);
        self.lock().retain(|_, held| !held.standing.is_revoked() && held.is_fresh(limits));
        let live: Vec<_> = self.lock().values().map(|held| Arc::clone(&held.live)).collect();
        live.iter().for_each(|live| live.streams.sweep());
    }

    /// The session of this id, if it is this owner's; a request on `standing` uses it.
    pub(super) fn find(
        &self,
        id: &str,
        owner: &str,
        standing: &Standing,
        limits: &ServeLimits,
    ) -> Option<Arc<Live>> {
        let mut sessions = self.lock();
        let held = sessions.get_mut(id).filter(|held| *held.owner == *owner)?;
        if !held.is_fresh(limits) {
            sessions.remove(id);
            return None;
        }
        held.used = Instant::now();
        held.standing = standing.clone();
        Some(Arc::clone(&held.live))
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
        oldest.and_then(|id| sessions.remove(&id)).is_some()
    }
}

impl Held {
    /// Whether it is not too old, and was used lately or is in use.
    fn is_fresh(&self, limits: &ServeLimits) -> bool {
        let streams = &self.live.streams;
        let is_used = self.used.elapsed() < limits.session_idle || !streams.rests() || streams.own.is_read();
        self.begun.elapsed() < limits.session_age && is_used
    }

    /// Whether nothing has happened in it for a while, and nothing is waited for.
    fn is_silent(&self) -> bool {
        self.live.streams.rests() && self.used.elapsed() >= SETTLED
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.live.end();
    }
}

impl Own {
    fn live(&self) -> Result<&Arc<Live>, Problem> {
        self.live.as_ref().ok_or(Problem::Unknown)
    }

    fn reading(&self, live: &Arc<Live>, line: Arc<Line>, after: Option<u64>) -> Reading {
        Reading::new(line, after, None, self.keeper(live))
    }

    pub(super) fn keeper(&self, live: &Arc<Live>) -> Keeper {
        Keeper {
            state: Arc::clone(&self.state),
            settings: Arc::clone(&self.settings),
            client: Arc::clone(&self.client),
            live: Arc::clone(live),
        }
    }

    /// The session that the request began.
    fn begun(&self, id: &SessionId) -> Result<Arc<Live>, Problem> {
        self.state.sessions.lock().get(id).map(|held| Arc::clone(&held.live)).ok_or(Problem::Unknown)
    }
}

impl SessionManager for Own {
    type Error = Problem;
    type Transport = Wire;

    async fn create_session(&self) -> Result<(SessionId, Wire), Problem> {
        let begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Begins { connection, share, closed } = begins.ok_or(Problem::NoSeat)?;
        let streams = Streams::new(self.primed.then_some(RETRY));
        let (live, wire) = Live::new(connection, streams, closed);
        let (id, now) = (session_id(), Instant::now());
        let held = Held {
            live,
            client: Arc::clone(&self.client.name),
            owner: Arc::clone(&self.owner),
            standing: self.standing.clone(),
            begun: now,
            used: now,
            _share: share,
        };
        self.state.sessions.lock().insert(Arc::clone(&id), held);
        Ok((id, wire))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Problem> {
        // Whoever leaves now will never know its id.
        let unknown = Unknown { own: self, id, known: false };
        let answer = self.begun(id)?.initialize(message).await?;
        unknown.told();
        Ok(answer)
    }

    async fn has_session(&self, _: &SessionId) -> Result<bool, Problem> {
        Ok(self.live.is_some())
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Problem> {
        self.state.sessions.lock().remove(id);
        Ok(())
    }

    async fn create_stream(
        &self,
        _: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Problem> {
        if let Some(reading) = self.reading.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(Either::Right(reading));
        }
        let live = self.live()?;
        let ClientJsonRpcMessage::Request(request) = message else { return Err(Problem::Unknown) };
        let id = request.id.clone();
        match live.ask(request) {
            Ok((line, work)) => Ok(Either::Right(Reading::new(line, None, Some(work), self.keeper(live)))),
            Err(Refused::Twice) => {
                Ok(Either::Left(stream::iter([ServerSseMessage::from_message(twice(id))])))
            }
            Err(Refused::Over) => Err(Problem::Ended),
        }
    }

    async fn accept_message(&self, _: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Problem> {
        Ok(self.live()?.hear(message).await?)
    }

    async fn create_standalone_stream(
        &self,
        _: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Problem> {
        let live = self.live()?;
        Ok(self.reading(live, Arc::clone(&live.streams.own), None))
    }

    async fn resume(
        &self,
        _: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Problem> {
        let live = self.live()?;
        let (after, number) = place(&last_event_id).ok_or(Problem::EventId)?;
        let line = match number {
            Some(number) => live.streams.numbered(number).ok_or(Problem::EventId)?,
            None => Arc::clone(&live.streams.own),
        };
        Ok(self.reading(live, line, Some(after)))
    }
}

/// A session whose client does not know its id yet; it ends if that one never will.
struct Unknown<'a> {
    own: &'a Own,
    id: &'a SessionId,
    known: bool,
}

impl Unknown<'_> {
    fn told(mut self) {
        self.known = true;
    }
}

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        if !self.known {
            self.own.state.sessions.lock().remove(self.id);
        }
    }
}

/// An id that nobody can guess.
fn session_id() -> SessionId {
    uuid::Uuid::new_v4().to_string().into()
}
