//! One session of a client up to 2025-11-25, while it lasts: what rmcp serves it by, and how its requests are answered.
//!
//! ```text
//! initialize, notifications, answers of the client ─► inbox ─► rmcp ─► Wire::send ─► the stream it belongs to
//! every other request ─────────────────────────────► Connection ────► its own stream
//! ```
//!
//! rmcp would hand a request through five tasks and back. Here it is answered in the one that reads its answer; what the
//! server asks or says meanwhile goes through rmcp, which knows what waits for an answer of the client.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorData, GetExtensions as _, GetMeta as _,
    JsonRpcMessage, JsonRpcRequest, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::{RequestContext, RxJsonRpcMessage, Service, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::line::Line;
use super::reading::Work;
use super::streams::{Refused, Streams};
use crate::server::connection::Connection;

/// Messages of a client that wait for rmcp.
const MAX_WAITING: usize = 16;

/// A session that goes on.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) streams: Streams,
    connection: Arc<Connection>,
    inbox: mpsc::Sender<Box<ClientJsonRpcMessage>>,
    /// Ends it.
    pub(super) closed: CancellationToken,
}

/// What rmcp reads a session from, and writes it to.
pub(super) struct Wire {
    live: Arc<Live>,
    inbox: mpsc::Receiver<Box<ClientJsonRpcMessage>>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

/// The session is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Over;

impl Live {
    /// A session that begins, and its wire.
    pub(super) fn new(
        connection: Arc<Connection>,
        streams: Streams,
        closed: CancellationToken,
    ) -> (Arc<Self>, Wire) {
        let (inbox, waiting) = mpsc::channel(MAX_WAITING);
        let live = Arc::new(Self { streams, connection, inbox, closed });
        (Arc::clone(&live), Wire { live, inbox: waiting })
    }

    /// Ends it: nothing new begins, what runs is cancelled.
    pub(super) fn end(&self) {
        self.closed.cancel();
        self.streams.close();
    }

    /// Hands a message to rmcp.
    pub(super) async fn push(&self, message: ClientJsonRpcMessage) -> Result<(), Over> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Over),
            sent = self.inbox.send(Box::new(message)) => sent.map_err(|_| Over),
        }
    }

    /// Takes what the client says in, which is no request.
    pub(super) async fn hear(&self, message: ClientJsonRpcMessage) -> Result<(), Over> {
        if let JsonRpcMessage::Notification(told) = &message
            && let ClientNotification::CancelledNotification(cancelled) = &told.notification
        {
            if let Some(id) = &cancelled.params.request_id {
                self.streams.cancel(id);
            }
            return Ok(());
        }
        self.push(message).await
    }

    /// The answer of rmcp to the request that begins the session.
    pub(super) async fn initialize(
        &self,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Over> {
        let JsonRpcMessage::Request(request) = &message else { return Err(Over) };
        let line = self.streams.begin(&request.id, None, self.closed.child_token()).map_err(|_| Over)?;
        let reader = line.read(None);
        self.push(message).await?;
        loop {
            let event = poll_fn(|context| line.poll(reader, context)).await.ok_or(Over)?;
            if let Some(message) = event.message {
                return Ok(Arc::unwrap_or_clone(message));
            }
        }
    }

    /// The stream of a request, and what is done for it.
    ///
    /// # Errors
    /// It can not begin.
    pub(super) fn ask(
        self: &Arc<Self>,
        request: JsonRpcRequest<ClientRequest>,
    ) -> Result<(Arc<Line>, Work), Refused> {
        let peer = self.connection.peer().ok_or(Refused::Over)?.clone();
        let token = request.request.get_meta().get_progress_token();
        let line = self.streams.begin(&request.id, token, self.closed.child_token())?;
        let open = Open { live: Arc::clone(self), id: Some(request.id.clone()) };
        Ok((Arc::clone(&line), Box::pin(answer(open, request, peer, line.cancel.clone()))))
    }
}

/// A request until it has its answer: its id is taken.
struct Open {
    live: Arc<Live>,
    id: Option<RequestId>,
}

impl Open {
    fn ends(mut self, answer: ServerJsonRpcMessage) {
        if let Some(id) = self.id.take() {
            self.live.streams.end(&id, Some(answer));
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.live.streams.end(id, None);
        }
    }
}

async fn answer(
    open: Open,
    request: JsonRpcRequest<ClientRequest>,
    peer: Peer<RoleServer>,
    cancel: CancellationToken,
) {
    let answer = answer_of(&open.live.connection, request, peer, cancel).await;
    open.ends(answer);
}

/// What a connection answers to a request.
pub(super) async fn answer_of(
    connection: &Connection,
    request: JsonRpcRequest<ClientRequest>,
    peer: Peer<RoleServer>,
    cancel: CancellationToken,
) -> ServerJsonRpcMessage {
    let (id, mut request) = (request.id, request.request);
    let mut context = RequestContext::new(id.clone(), peer);
    context.ct = cancel;
    context.meta = std::mem::take(request.get_meta_mut());
    context.extensions = std::mem::take(request.extensions_mut());
    match connection.handle_request(request, context).await {
        Ok(result) => ServerJsonRpcMessage::response(result, id),
        Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
    }
}

impl Transport<RoleServer> for Wire {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let live = Arc::clone(&self.live);
        async move {
            live.streams.tell(message).await;
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        tokio::select! {
            biased;
            () = self.live.closed.cancelled() => None,
            message = self.inbox.recv() => message.map(|message| *message),
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.live.end();
        Ok(())
    }
}

/// What is answered to a request that has the id of another.
pub(super) fn twice(id: RequestId) -> ServerJsonRpcMessage {
    let text = "a request of this id is not answered yet; each has an id of its own";
    ServerJsonRpcMessage::error(ErrorData::invalid_request(text, None), Some(id))
}
