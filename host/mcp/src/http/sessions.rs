//! Sessions of clients up to 2025-11-25, which begin with `initialize` and have an id.
//!
//! rmcp runs a session; whose it is, how many there are and how old they get is settled here. An id that belongs to
//! another client is as unknown as one that nobody has.

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
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbay_core::serve::ServeLimits;

/// How long a session must have been silent before another one may take its place.
const SETTLED: Duration = Duration::from_secs(5);
/// How long a new session may be without `initialize`, which comes with the request that makes it.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client is told to wait before it comes back for a stream that broke.
pub(super) const RETRY: Duration = Duration::from_secs(3);

/// The sessions of all clients.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<SessionId, Held>>);

#[derive(Debug)]
struct Held {
    handle: LocalSessionHandle,
    owner: Arc<str>,
    begun: Instant,
    used: Instant,
    /// Requests that are not answered yet, by their ids.
    asked: Ids,
    closed: CancellationToken,
}

/// Ids of requests.
type Ids = Arc<Mutex<HashSet<RequestId>>>;

/// The sessions as one client may use them.
#[derive(Debug, Clone)]
pub(super) struct Own {
    pub(super) sessions: Arc<Sessions>,
    /// Whose they are: a client under a profile.
    pub(super) owner: Arc<str>,
    pub(super) limits: ServeLimits,
    /// Fires when a session that is begun now is over.
    pub(super) closed: CancellationToken,
    /// Whether streams begin with an event that says how to come back to them, which older clients do not expect.
    pub(super) primed: bool,
}

/// Why a session can not be used.
#[derive(Debug)]
pub(super) enum Problem {
    Unknown,
    Full(&'static str),
    Ended(SessionError),
    EventId,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such session"),
            Self::Full(key) => {
                write!(f, "there are as many sessions as may be; to allow more: [serve.limits] {key} = …")
            }
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }
}

impl Own {
    fn handle(&self, id: &SessionId) -> Result<(LocalSessionHandle, Ids), Problem> {
        let mut sessions = self.sessions.lock();
        let held = sessions.get_mut(id).filter(|held| held.owner == self.owner).ok_or(Problem::Unknown)?;
        held.used = Instant::now();
        Ok((held.handle.clone(), Arc::clone(&held.asked)))
    }

    /// Whether this client has a session of this id.
    pub(super) fn has(&self, id: &str) -> bool {
        let mut sessions = self.sessions.lock();
        let Some(held) = sessions.get(id).filter(|held| held.owner == self.owner) else { return false };
        if held.begun.elapsed() < self.limits.session_age {
            return true;
        }
        if let Some(old) = sessions.remove(id) {
            old.closed.cancel();
        }
        false
    }

    /// Makes room for one more session.
    ///
    /// # Errors
    /// There is none: the key of the limit.
    pub(super) fn prepare(&self) -> Result<(), &'static str> {
        match self.make_room(&mut self.sessions.lock()) {
            Err(Problem::Full(key)) => Err(key),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Makes room for one more.
    fn make_room(&self, sessions: &mut HashMap<SessionId, Held>) -> Result<(), Problem> {
        let own = sessions.values().filter(|held| held.owner == self.owner).count();
        let (most, most_own) = (self.limits.sessions, self.limits.sessions_per_client);
        let reached = |count: usize, most: u32| count >= usize::try_from(most).unwrap_or(usize::MAX);
        let (all_full, own_full) = (reached(sessions.len(), most), reached(own, most_own));
        if !all_full && !own_full {
            return Ok(());
        }
        // Only one's own makes room: nobody ends another's sessions by beginning many.
        let key = if own_full { "sessions_per_client" } else { "sessions" };
        let silent = sessions.iter().filter(|(_, held)| {
            let asked = held.asked.lock().unwrap_or_else(PoisonError::into_inner);
            held.owner == self.owner && asked.is_empty() && held.used.elapsed() >= SETTLED
        });
        let oldest = silent.min_by_key(|(_, held)| held.used).map(|(id, _)| Arc::clone(id));
        let held = oldest.and_then(|id| sessions.remove(&id)).ok_or(Problem::Full(key))?;
        held.closed.cancel();
        Ok(())
    }
}

impl SessionManager for Own {
    type Error = Problem;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Problem> {
        let mut config = SessionConfig::default();
        config.keep_alive = Some(self.limits.session_idle);
        config.init_timeout = Some(INIT_TIMEOUT);
        config.sse_retry = self.primed.then_some(RETRY);
        let id = session_id();
        let (handle, worker) = create_local_session(Arc::clone(&id), config);
        let now = Instant::now();
        let held = Held {
            handle,
            owner: Arc::clone(&self.owner),
            begun: now,
            used: now,
            asked: Arc::default(),
            closed: self.closed.clone(),
        };
        let mut sessions = self.sessions.lock();
        self.make_room(&mut sessions)?;
        sessions.insert(Arc::clone(&id), held);
        drop(sessions);
        Ok((id, WorkerTransport::spawn(worker)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Problem> {
        Ok(self.handle(id)?.0.initialize(message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Problem> {
        Ok(self.has(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Problem> {
        let held = {
            let mut sessions = self.sessions.lock();
            let own = sessions.get(id).is_some_and(|held| held.owner == self.owner);
            own.then(|| sessions.remove(id)).flatten()
        };
        if let Some(held) = held {
            held.closed.cancel();
            match held.handle.close().await {
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
        let (handle, asked) = self.handle(id)?;
        let open = match &mut message {
            ClientJsonRpcMessage::Request(request) => match Asked::new(asked, request.id.clone()) {
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
            },
            _ => None,
        };
        let receiver = handle.establish_request_wise_channel().await?;
        handle.push_message(message, receiver.http_request_id).await?;
        Ok(Either::Right(messages(receiver.inner, open)))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Problem> {
        Ok(self.handle(id)?.0.push_message(message, None).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Problem> {
        let receiver = self.handle(id)?.0.establish_common_channel().await?;
        Ok(messages(receiver.inner, None))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Problem> {
        let event = last_event_id.parse().map_err(|_| Problem::EventId)?;
        let receiver = self.handle(id)?.0.resume(event).await?;
        Ok(messages(receiver.inner, None))
    }
}

/// A request that is not answered yet, until this is dropped.
#[derive(Debug)]
struct Asked(Ids, RequestId);

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

fn messages(
    mut receiver: mpsc::Receiver<ServerSseMessage>,
    open: Option<Arc<Asked>>,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    stream::poll_fn(move |cx| {
        let _ = &open;
        receiver.poll_recv(cx)
    })
}

/// An id that nobody can guess.
fn session_id() -> SessionId {
    uuid::Uuid::new_v4().to_string().into()
}
