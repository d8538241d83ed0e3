//! A server behind a URL, over Streamable HTTP in both eras. Each request is one POST. The response is the body or an
//! event of a stream. A stream that is interrupted is resumed if the server sent an event id (revision 2025-11-25).

mod content;
mod session;

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use toolbay_core::call::compute::run_outside_calls;
use toolbay_core::call::server_connector::{BodyStream, ConnectorRequest, ConnectorResponse};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::mcp_server::HttpServerConfig;
use toolbay_policy::quantity;
use toolbay_policy::refusal::PolicyRefusal;

use self::content::{BodyContent, EventContent, answers, reading_steps};
pub(super) use self::session::LostSessions;
use self::session::{RefusalSign, SessionProbe, session_id};
use super::bounds::{
    CLOSE_TIMEOUT, MAX_ERROR_BODY, MAX_IN_FLIGHT, MAX_RESPONSE_BUFFER_BYTES, MAX_RESUMES, MAX_STREAM_BYTES,
    MAX_TOKEN_TRIES, NOTIFY_TIMEOUT, RESUME_DELAY,
};
use super::inbox::{BufferLimitError, FloodError, Inbox, ResponseBufferUsage};
use super::link_request::{LinkError, LinkRequest, quote};
use super::negotiated::VERSION_HEADER;
use super::oauth::{Authenticator, Challenge, SecretText};
use crate::protocol::bounds::MAX_MESSAGE_BYTES;
use crate::protocol::message::{self, RawRequest, RpcMessage, RpcResult};
use crate::protocol::repair::RepairedResponse;
use crate::protocol::sse::SseParser;

/// Longest Content-Type in a message, in characters.
const MAX_SHOWN_TYPE: usize = 100;
/// Header with the session id.
const SESSION_HEADER: &str = "mcp-session-id";

/// A connection to a server behind a URL.
#[derive(Debug)]
pub(super) struct HttpLink {
    endpoint: HttpServerConfig,
    authenticator: Option<Arc<Authenticator>>,
    inbox: Arc<Inbox>,
    state: Mutex<HttpSessionState>,
    /// The stream of unsolicited messages, opened before the first call.
    listen_stream: Mutex<Option<ConnectorResponse>>,
    /// Permits for cancellation notifications in flight.
    cancel_permits: Arc<Semaphore>,
    session_probe: SessionProbe,
    lost_sessions: Arc<LostSessions>,
}

impl Drop for HttpLink {
    /// Closes the connection, which withdraws open elicitations.
    fn drop(&mut self) {
        self.inbox.closure.close("the host closed the connection".to_owned());
    }
}

/// The state that the handshake negotiated.
#[derive(Debug, Clone, Default)]
struct HttpSessionState {
    session: Option<String>,
    version: Option<String>,
    modern: bool,
}

/// How an event stream ended.
enum StreamEnd {
    Answer(RpcResult),
    Interrupted,
}

impl HttpLink {
    pub(super) fn new(
        endpoint: HttpServerConfig,
        authenticator: Option<Arc<Authenticator>>,
        inbox: Arc<Inbox>,
        lost_sessions: Arc<LostSessions>,
    ) -> Self {
        Self {
            endpoint,
            authenticator,
            inbox,
            state: Mutex::default(),
            listen_stream: Mutex::default(),
            cancel_permits: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            session_probe: SessionProbe::default(),
            lost_sessions,
        }
    }

    fn state(&self) -> HttpSessionState {
        self.state.lock().clone()
    }

    /// Sets the protocol version that all further requests carry. The modern era has no sessions.
    pub(super) fn set_negotiated(&self, version: &str, modern: bool) {
        let mut known = self.state.lock();
        (known.version, known.modern) = (Some(version.to_owned()), modern);
        known.session.take_if(|_| modern);
    }

    /// A request with the headers of the protocol, and the session that it belongs to.
    fn build_request(
        &self,
        method: &'static str,
        body: Vec<u8>,
        more: Vec<(String, String)>,
    ) -> (ConnectorRequest, Option<String>) {
        let known = self.state();
        let mut headers = more;
        let accept =
            if method == "GET" { "text/event-stream" } else { "application/json, text/event-stream" };
        headers.push(("accept".to_owned(), accept.to_owned()));
        if method == "POST" {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        if let Some(session) = &known.session {
            headers.push((SESSION_HEADER.to_owned(), session.clone()));
        }
        // Revisions before 2025-06-18 ignore this header. Requests before the end of the handshake bring their own.
        if let Some(version) = known.version
            && !headers.iter().any(|(name, _)| name == VERSION_HEADER)
        {
            headers.push((VERSION_HEADER.to_owned(), version));
        }
        (ConnectorRequest { method, headers, body }, known.session)
    }

    async fn send(
        &self,
        method: &'static str,
        body: Vec<u8>,
        more: Vec<(String, String)>,
    ) -> Result<ConnectorResponse, LinkError> {
        let (request, session) = self.build_request(method, body, more);
        let response = match &self.authenticator {
            Some(authenticator) => self.send_authorized(authenticator, request).await?,
            None => self.send_once(request).await?,
        };
        if let Some(sent) = &session {
            self.follow_session(sent, &response);
        }
        Ok(response)
    }

    async fn send_once(&self, request: ConnectorRequest) -> Result<ConnectorResponse, LinkError> {
        let response = self.inbox.connector.send(&self.inbox.name, &self.endpoint, request).await;
        response.map_err(|error| match LinkError::from(error) {
            // An unreachable server ends the session; the supervisor reconnects.
            LinkError::Closed(why) => {
                self.inbox.closure.close(why.clone());
                LinkError::Closed(why)
            }
            other => other,
        })
    }

    /// Sends a request with a token. If the server wants another one, the request is sent again with it.
    async fn send_authorized(
        &self,
        authenticator: &Authenticator,
        request: ConnectorRequest,
    ) -> Result<ConnectorResponse, LinkError> {
        let mut tries = 0;
        loop {
            let token = authenticator.token().await;
            let mut request = request.clone();
            if let Some(token) = &token {
                request.headers.push(bearer(token));
            }
            let response = self.send_once(request).await?;
            let challenge = Challenge::from_headers(&response.headers);
            let challenge = match (response.status, challenge) {
                (401, challenge) => challenge.unwrap_or_default(),
                (403, Some(challenge)) if challenge.insufficient_scope => challenge,
                _ => return Ok(response),
            };
            let status = response.status;
            drop(response);
            tries += 1;
            if tries > MAX_TOKEN_TRIES {
                let text = format!(" to {MAX_TOKEN_TRIES} different tokens");
                return Err(LinkError::Status(status, text.into()));
            }
            let better = authenticator.respond(&challenge, token.as_ref()).await;
            better.map_err(|error| {
                LinkError::Status(status, error.into_refusal().map_text(|why| format!(": {why}")))
            })?;
        }
    }

    pub(super) async fn notify(&self, method: &str, params: Option<&Value>) -> Result<(), LinkError> {
        let mut headers = Vec::new();
        if self.state().modern {
            headers.push(("mcp-method".to_owned(), method.to_owned()));
        }
        let response = self.send("POST", message::encode_notification(method, params), headers).await?;
        match response.status {
            200..=299 => Ok(()),
            _ => Err(self.error_from_response(response).await),
        }
    }

    pub(super) async fn request(self: &Arc<Self>, ask: LinkRequest<'_>) -> Result<Box<RawValue>, LinkError> {
        if self.inbox.closure.is_closed() {
            let closed = self.inbox.closure.error();
            // It was not sent, so a new session may run it.
            return Err(if self.is_session_lost() {
                LinkError::SessionLost(Box::new(closed))
            } else {
                closed
            });
        }
        let is_handshake = ask.is_handshake();
        let LinkRequest { id, method, body, headers } = ask;
        let (status, answer) = match self.send("POST", body, headers).await {
            Ok(response) => {
                if method == "initialize" {
                    self.state.lock().session = session_id(&response);
                }
                (response.status, self.read_response(id, response).await)
            }
            Err(LinkError::Status(status, text)) => (status, Err(LinkError::Status(status, text))),
            Err(error) => return Err(error),
        };
        let sign = RefusalSign::of(status, &answer).filter(|_| !is_handshake);
        let answer = answer.and_then(|result| result.map_err(LinkError::from));
        match (sign, answer) {
            (Some(sign), Err(refusal)) if self.has_lost_session(sign).await && sign.is_refusal() => {
                Err(LinkError::SessionLost(Box::new(refusal)))
            }
            (_, answer) => answer,
        }
    }

    async fn read_response(
        self: &Arc<Self>,
        id: u64,
        response: ConnectorResponse,
    ) -> Result<RpcResult, LinkError> {
        if !is_success(response.status) {
            return Err(self.error_from_response(response).await);
        }
        if is_event_stream(&response) {
            return self.read_stream(id, response.body).await;
        }
        self.read_body(id, response, MAX_MESSAGE_BYTES).await
    }

    /// Reads the response to a request from a whole body. Some servers send JSON under another media type.
    async fn read_body(
        &self,
        id: u64,
        response: ConnectorResponse,
        most: usize,
    ) -> Result<RpcResult, LinkError> {
        let status = response.status;
        let kind = response.header("content-type").map(|kind| one_line(kind, MAX_SHOWN_TYPE));
        let body = collect(response.body, most, self.inbox.track_response_buffer()).await?;
        let is_json = kind.as_deref().is_some_and(is_json);
        let steps = reading_steps(&body);
        let response = match run_outside_calls(steps, move || BodyContent::read(id, &body, is_json)).await {
            BodyContent::Response(result) => Ok(result),
            BodyContent::Repaired(repaired) => return Ok(self.accept_repaired(repaired)),
            BodyContent::Unreadable(problem) => {
                Err(format!("the server's response does not match the request: {problem}"))
            }
            BodyContent::NoJson(quoted) => {
                let kind = kind
                    .map_or_else(|| "no Content-Type".to_owned(), |kind| format!("Content-Type `{kind}`"));
                Err(format!(
                    "the server answered with status {status}, {kind} and no JSON: check that `url` is the endpoint of an \
                     MCP server{quoted}"
                ))
            }
        };
        if response.is_ok() {
            self.inbox.record_activity();
        }
        response.map_err(|problem| LinkError::InvalidResponse(problem.into()))
    }

    /// Records that a response was repaired.
    fn accept_repaired(&self, RepairedResponse { id, result, repair }: RepairedResponse) -> RpcResult {
        self.inbox.record_activity();
        self.inbox.record_repair(id, &repair);
        result
    }

    /// Reads events until the response arrives. If the stream ends before, it is resumed from the last event id.
    async fn read_stream(self: &Arc<Self>, id: u64, body: BodyStream) -> Result<RpcResult, LinkError> {
        let (mut body, mut parser, mut total) = (body, SseParser::default(), 0);
        for _ in 0..=MAX_RESUMES {
            match self.read_events(Some(id), body, &mut parser, &mut total).await? {
                StreamEnd::Answer(answer) => return Ok(answer),
                StreamEnd::Interrupted => {}
            }
            let Some(last) = parser.last_id.clone().filter(|_| !self.state().modern) else {
                let seen =
                    self.inbox.requests.describe(id).map(|seen| format!("; {seen}")).unwrap_or_default();
                let what = format!("the server's stream ended without a response{seen}");
                return Err(LinkError::InvalidResponse(what.into()));
            };
            tokio::time::sleep(parser.retry.unwrap_or(RESUME_DELAY)).await;
            let response = self.send("GET", Vec::new(), vec![("last-event-id".to_owned(), last)]).await?;
            if !is_success(response.status) {
                let status = response.status;
                let error = self.error_from_response(response).await;
                // The request may have run, so it is not sent again in a new session.
                self.has_lost_session(RefusalSign::Status(status)).await;
                return Err(error);
            }
            parser = parser.into_resumed();
            body = response.body;
        }
        let what = format!("the server's stream was interrupted {MAX_RESUMES} times before the response");
        Err(LinkError::InvalidResponse(what.into()))
    }

    /// Reads one stream up to the response or to its end.
    async fn read_events(
        self: &Arc<Self>,
        id: Option<u64>,
        mut body: BodyStream,
        parser: &mut SseParser,
        total: &mut usize,
    ) -> Result<StreamEnd, LinkError> {
        let large = |what: &str, most: usize| {
            let most = quantity::show_bytes(most as u64);
            LinkError::InvalidResponse(format!("the server sent {what} of more than {most}").into())
        };
        let mut usage = self.inbox.track_response_buffer();
        while let Some(part) = body.next().await {
            let Ok(part) = part else { return Ok(StreamEnd::Interrupted) };
            *total += part.len();
            if id.is_some() && *total > MAX_STREAM_BYTES {
                return Err(large("a stream", MAX_STREAM_BYTES));
            }
            // Everything on a stream without a request is unsolicited.
            if id.is_none() {
                let lines = part.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
                self.inbox
                    .count_unsolicited_bytes(part.len(), lines)
                    .map_err(|flood| self.close_flooded(&flood))?;
            }
            let events = parser.push(&part).map_err(|_| large("an event", MAX_MESSAGE_BYTES))?;
            usage.resize(parser.buffered_bytes()).map_err(buffer_full_error)?;
            for event in events {
                if let Some(answer) = self.handle_event(id, event).await? {
                    return Ok(StreamEnd::Answer(answer));
                }
            }
        }
        Ok(StreamEnd::Interrupted)
    }

    /// Handles one event; returns the response if the event contains it.
    async fn handle_event(
        self: &Arc<Self>,
        id: Option<u64>,
        event: Vec<u8>,
    ) -> Result<Option<RpcResult>, LinkError> {
        let ended = |flood: FloodError| self.close_flooded(&flood);
        let messages =
            match run_outside_calls(reading_steps(&event), move || EventContent::read(id, event)).await {
                EventContent::Messages(messages) => messages,
                EventContent::Repaired(repaired) => return Ok(Some(self.accept_repaired(repaired))),
                EventContent::Unreadable(event, found) => {
                    self.inbox.record_invalid_message("in a stream", &event).map_err(ended)?;
                    return match found {
                        Some(found) if id.is_some() && found.id.number() == id => {
                            let what = format!("the server's response cannot be read: {}", found.problem);
                            Err(LinkError::InvalidResponse(what.into()))
                        }
                        Some(_) | None => Ok(None),
                    };
                }
            };
        for message in messages {
            match message {
                RpcMessage::Response { id: of, result } if id.is_some_and(|id| answers(id, &of, &result)) => {
                    self.inbox.record_activity();
                    return Ok(Some(result));
                }
                RpcMessage::Response { id: of, .. } => {
                    if of.number().is_none_or(|number| number == 0) {
                        self.inbox.record_unknown_id(&of);
                    }
                    self.inbox.count_unmatched_response().map_err(ended)?;
                }
                RpcMessage::Notification { method, params } => {
                    self.inbox.handle_notification(&method, params.as_deref()).map_err(ended)?;
                }
                RpcMessage::Request(request) => self.respond(request).await.map_err(ended)?,
            }
        }
        Ok(None)
    }

    /// Answers a request of the server. A response that needs no user is sent at once. Elicitations run in a task, so
    /// that later messages are still read. `MAX_OPEN_ELICITATIONS` bounds these tasks.
    async fn respond(self: &Arc<Self>, request: RawRequest) -> Result<(), FloodError> {
        let (inbox, link) = (Arc::clone(&self.inbox), Arc::downgrade(self));
        let mut asked = Box::pin(Arc::clone(&self.inbox).respond(request));
        if let Some(answer) = (&mut asked).now_or_never() {
            self.send_response(answer?).await;
            return Ok(());
        }
        // The task owns itself and ends with the connection.
        drop(tokio::spawn(async move {
            tokio::select! {
                _ = inbox.closure.wait_closed() => {}
                Ok(answer) = asked => if let Some(link) = link.upgrade() { link.send_response(answer).await },
            }
        }));
        Ok(())
    }

    /// Sends a response. Errors are ignored: only the server loses by them.
    async fn send_response(&self, answer: Vec<u8>) {
        drop(tokio::time::timeout(NOTIFY_TIMEOUT, self.send("POST", answer, Vec::new())).await);
    }

    /// Closes the connection because the server exceeded a limit on unsolicited messages.
    fn close_flooded(&self, flood: &FloodError) -> LinkError {
        self.inbox.closure.close(flood.to_string());
        LinkError::Closed(flood.to_string().into())
    }

    /// Opens the stream of unsolicited messages, so that none is lost during the first call. If the server does not
    /// answer in time, [`Self::read_server_events`] opens the stream later.
    pub(super) async fn open_listen_stream(&self) {
        let asked = tokio::time::timeout(CLOSE_TIMEOUT, self.send("GET", Vec::new(), Vec::new())).await;
        if let Ok(Ok(response)) = asked {
            *self.listen_stream.lock() = Some(response);
        }
    }

    /// Reads the unsolicited messages of a legacy server from a GET that stays open. Returns the retry delay when the
    /// stream ends, or an error if the server has no such stream.
    pub(super) async fn read_server_events(self: &Arc<Self>) -> Result<Duration, LinkError> {
        let opened = self.listen_stream.lock().take();
        let first = opened.is_some();
        let response = match opened {
            Some(response) => response,
            None => self.send("GET", Vec::new(), Vec::new()).await?,
        };
        if response.status != 200 || !is_event_stream(&response) {
            let status = response.status;
            drop(response);
            // A server without this stream answers 405.
            if status != 405 && self.has_lost_session(RefusalSign::Status(status)).await {
                return Err(self.inbox.closure.error());
            }
            return Err(LinkError::Status(status, PolicyRefusal::default()));
        }
        if !first {
            // Changes before the stream was open were missed: read the lists again.
            self.inbox.changed.notify_one();
        }
        let mut parser = SseParser::default();
        self.read_events(None, response.body, &mut parser, &mut 0).await?;
        Ok(parser.retry.unwrap_or(RESUME_DELAY))
    }

    /// Converts a response with an error status.
    async fn error_from_response(&self, response: ConnectorResponse) -> LinkError {
        let status = response.status;
        let body = collect(response.body, MAX_ERROR_BODY, self.inbox.track_response_buffer())
            .await
            .unwrap_or_default();
        // An error about an unreadable message has no id.
        #[derive(serde::Deserialize)]
        struct ErrorBody {
            error: message::RpcError,
        }
        if let Ok(ErrorBody { error }) = serde_json::from_slice(message::without_byte_order_mark(&body)) {
            return LinkError::Rpc(error);
        }
        let name = &self.inbox.name;
        let why = match status {
            401 | 403 => PolicyRefusal::new(
                ": it requires credentials",
                format!("write in the policy: [mcp.{name}] bearer = \"NAME\" and [secrets.NAME]"),
            ),
            404 | 405 => ": check that `url` is the endpoint of an MCP server".into(),
            _ => quote(&body).into(),
        };
        LinkError::Status(status, why)
    }

    /// Ends the session, if there is one.
    pub(super) async fn close(&self) {
        let ends = self.state().session.is_some() && !self.inbox.closure.is_closed();
        if ends {
            // The server may release the session early; a failure does not matter.
            drop(tokio::time::timeout(CLOSE_TIMEOUT, self.send("DELETE", Vec::new(), Vec::new())).await);
        }
        self.inbox.closure.close("the host closed the connection".to_owned());
    }

    /// Sends a cancellation to a legacy server. A 2026-07-28 server notices the closed connection instead.
    pub(super) fn notify_cancelled(self: &Arc<Self>, cancelled: Value) {
        if self.state().modern || self.inbox.closure.is_closed() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // Bounds the tasks when many calls are cancelled at once and the server is slow.
        let Ok(place) = Arc::clone(&self.cancel_permits).try_acquire_owned() else { return };
        let link = Arc::clone(self);
        // The task owns itself and ends within `NOTIFY_TIMEOUT`.
        drop(runtime.spawn(async move {
            let _place = place;
            let notified = link.notify("notifications/cancelled", Some(&cancelled));
            drop(tokio::time::timeout(NOTIFY_TIMEOUT, notified).await);
        }));
    }
}

/// The header with a token.
fn bearer(token: &SecretText) -> (String, String) {
    ("authorization".to_owned(), format!("Bearer {}", token.expose()))
}

fn is_success(status: u16) -> bool {
    (200..=299).contains(&status)
}

/// The media type of a Content-Type, without its parameters.
fn media_type(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a Content-Type is that of JSON.
fn is_json(kind: &str) -> bool {
    let kind = media_type(kind);
    matches!(kind.as_str(), "application/json" | "text/json" | "application/json-rpc")
        || kind.ends_with("+json")
}

fn is_event_stream(response: &ConnectorResponse) -> bool {
    response.header("content-type").is_some_and(|kind| media_type(kind) == "text/event-stream")
}

/// Reads a body of at most `most` bytes.
async fn collect(
    mut body: BodyStream,
    most: usize,
    mut usage: ResponseBufferUsage<'_>,
) -> Result<Vec<u8>, LinkError> {
    let mut bytes = Vec::new();
    while let Some(part) = body.next().await {
        let part = part.map_err(|why| {
            LinkError::InvalidResponse(format!("the server's response was interrupted: {why}").into())
        })?;
        if bytes.len() + part.len() > most {
            let most = quantity::show_bytes(most as u64);
            let what = format!("the server's response has more than {most}");
            return Err(LinkError::InvalidResponse(what.into()));
        }
        usage.resize(bytes.len() + part.len()).map_err(buffer_full_error)?;
        bytes.extend(part);
    }
    Ok(bytes)
}

fn buffer_full_error(_: BufferLimitError) -> LinkError {
    let most = quantity::show_bytes(MAX_RESPONSE_BUFFER_BYTES as u64);
    LinkError::Busy(format!("its concurrent responses exceed {most}"))
}

#[cfg(test)]
#[path = "http/tests.rs"]
mod tests;
