//! A server behind a URL: Streamable HTTP, both eras. Each request is a POST of its own; its answer is the body, or an
//! event of a stream, which is fetched again where it breaks off and the server said how (revision 2025-11-25).

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use toolbay_core::call::outside::{Body, Request, Response};
use toolbay_policy::mcp_server::Endpoint;
use toolbay_policy::quantity;

use super::bounds::{
    FAREWELL, MAX_ERROR_BODY, MAX_HELD, MAX_IN_FLIGHT, MAX_RESUMES, MAX_STREAM, RESUME_PAUSE, TELL_WAIT,
};
use super::inbox::{Flood, Full, Held, Inbox};
use super::link::{Ask, LinkError, said};
use crate::protocol::bounds::MAX_MESSAGE;
use crate::protocol::message::{self, Message, RawRequest, RpcResult};
use crate::protocol::sse::Parser;

/// Longest session id, in bytes.
const MAX_SESSION: usize = 1024;
/// The header of the session.
const SESSION: &str = "mcp-session-id";

/// A server behind a URL.
#[derive(Debug)]
pub(super) struct Web {
    endpoint: Endpoint,
    inbox: Arc<Inbox>,
    known: Mutex<Known>,
    /// The stream of what the server says by itself, opened before anything is called.
    ear: Mutex<Option<Response>>,
    /// Places for what is told beside all requests.
    asides: Arc<Semaphore>,
}

impl Drop for Web {
    /// Nobody waits any more for what a person was asked.
    fn drop(&mut self) {
        self.inbox.ending.end("the host ended it".to_owned());
    }
}

/// What the handshake settled.
#[derive(Debug, Clone, Default)]
struct Known {
    session: Option<String>,
    version: Option<String>,
    modern: bool,
}

/// What a stream of events came to.
enum End {
    Answer(RpcResult),
    Broken,
}

impl Web {
    pub(super) fn new(endpoint: Endpoint, inbox: Arc<Inbox>) -> Self {
        Self {
            endpoint,
            inbox,
            known: Mutex::default(),
            ear: Mutex::default(),
            asides: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
        }
    }

    fn known(&self) -> Known {
        self.known.lock().clone()
    }

    /// From now on every request says this version.
    pub(super) fn settle(&self, version: &str, modern: bool) {
        let mut known = self.known.lock();
        (known.version, known.modern) = (Some(version.to_owned()), modern);
    }

    /// Nothing is settled yet.
    pub(super) fn unsettle(&self) {
        *self.known.lock() = Known::default();
    }

    async fn send(
        &self,
        method: &'static str,
        body: Vec<u8>,
        more: Vec<(String, String)>,
    ) -> Result<Response, LinkError> {
        let known = self.known();
        let mut headers = more;
        let accept =
            if method == "GET" { "text/event-stream" } else { "application/json, text/event-stream" };
        headers.push(("accept".to_owned(), accept.to_owned()));
        if method == "POST" {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        if let Some(session) = known.session {
            headers.push((SESSION.to_owned(), session));
        }
        // Revisions before 2025-06-18 do not know it, and do not mind it.
        if let Some(version) = known.version {
            headers.push(("mcp-protocol-version".to_owned(), version));
        }
        let request = Request { method, headers, body };
        let response = self.inbox.outside.send(&self.inbox.name, &self.endpoint, request).await;
        response.map_err(|error| match LinkError::from(error) {
            // A server that cannot be reached now may be reached the next time: each request is its own.
            LinkError::Closed(why) => {
                self.inbox.ending.end(why.clone());
                LinkError::Closed(why)
            }
            other => other,
        })
    }

    pub(super) async fn tell(&self, method: &str, params: Option<&Value>) -> Result<(), LinkError> {
        let mut headers = Vec::new();
        if self.known().modern {
            headers.push(("mcp-method".to_owned(), method.to_owned()));
        }
        let response = self.send("POST", message::notification(method, params), headers).await?;
        match response.status {
            200..=299 => Ok(()),
            _ => Err(self.refused(response).await),
        }
    }

    pub(super) async fn ask(self: &Arc<Self>, ask: Ask<'_>) -> Result<Box<RawValue>, LinkError> {
        if self.inbox.ending.is_over() {
            return Err(self.inbox.ending.error());
        }
        let Ask { id, method, body, headers } = ask;
        let response = self.send("POST", body, headers).await?;
        if method == "initialize" {
            let session = response.header(SESSION).filter(|id| {
                !id.is_empty() && id.len() <= MAX_SESSION && id.bytes().all(|b| (b'!'..=b'~').contains(&b))
            });
            self.known.lock().session = session.map(ToOwned::to_owned);
        }
        self.answer(id, response).await?.map_err(LinkError::Rpc)
    }

    async fn answer(self: &Arc<Self>, id: u64, response: Response) -> Result<RpcResult, LinkError> {
        if !(200..=299).contains(&response.status) {
            let known = response.status == 404 && self.known().session.is_some();
            if known {
                self.inbox.ending.end("the server has forgotten the session".to_owned());
            }
            return match self.refused(response).await {
                LinkError::Rpc(error) => Ok(Err(error)),
                other => Err(other),
            };
        }
        let kind = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_owned();
        match kind.as_str() {
            "text/event-stream" => self.stream(id, response.body).await,
            "application/json" => {
                let body = collect(response.body, MAX_MESSAGE, self.inbox.holds()).await?;
                let messages = message::read(&body);
                for message in messages.into_iter().flatten() {
                    if let Message::Response { id: of, result } = message
                        && of == Some(id)
                    {
                        self.inbox.hear();
                        return Ok(result);
                    }
                }
                Err(LinkError::Bad(format!(
                    "the server's response is no answer to the request{}",
                    said(&body)
                )))
            }
            _ => Err(LinkError::Bad(format!(
                "the server answered with status {} and no JSON: is `url` the endpoint of an MCP server?",
                response.status
            ))),
        }
    }

    /// Reads events until the answer is among them. A stream that ends before is asked for again, if the server told how.
    async fn stream(self: &Arc<Self>, id: u64, body: Body) -> Result<RpcResult, LinkError> {
        let (mut body, mut parser, mut total) = (body, Parser::default(), 0);
        for _ in 0..=MAX_RESUMES {
            match self.events(Some(id), body, &mut parser, &mut total).await? {
                End::Answer(answer) => return Ok(answer),
                End::Broken => {}
            }
            let Some(last) = parser.last_id.clone().filter(|_| !self.known().modern) else {
                return Err(LinkError::Bad("the server's stream ended without an answer".to_owned()));
            };
            tokio::time::sleep(parser.retry.unwrap_or(RESUME_PAUSE)).await;
            let response = self.send("GET", Vec::new(), vec![("last-event-id".to_owned(), last)]).await?;
            if !(200..=299).contains(&response.status) {
                return Err(self.refused(response).await);
            }
            parser = parser.anew();
            body = response.body;
        }
        Err(LinkError::Bad(format!("the server's stream broke off {MAX_RESUMES} times without an answer")))
    }

    /// Reads one stream: to the answer, or to its end.
    async fn events(
        self: &Arc<Self>,
        id: Option<u64>,
        mut body: Body,
        parser: &mut Parser,
        total: &mut usize,
    ) -> Result<End, LinkError> {
        let large = |what: &str, most: usize| {
            LinkError::Bad(format!(
                "the server sent {what} of more than {}",
                quantity::show_bytes(most as u64)
            ))
        };
        let mut held = self.inbox.holds();
        while let Some(part) = body.next().await {
            let Ok(part) = part else { return Ok(End::Broken) };
            *total += part.len();
            if id.is_some() && *total > MAX_STREAM {
                return Err(large("a stream", MAX_STREAM));
            }
            // Nothing of a stream that answers no request was asked for.
            if id.is_none() {
                let lines = part.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
                self.inbox.weigh(part.len(), lines).map_err(|flood| self.flooded(&flood))?;
            }
            let events = parser.push(&part).map_err(|_| large("an event", MAX_MESSAGE))?;
            held.resize(parser.held()).map_err(full)?;
            for event in events {
                if let Some(answer) = self.event(id, &event).await? {
                    return Ok(End::Answer(answer));
                }
            }
        }
        Ok(End::Broken)
    }

    /// Takes one event; returns the answer, if it is that.
    async fn event(self: &Arc<Self>, id: Option<u64>, event: &[u8]) -> Result<Option<RpcResult>, LinkError> {
        let ended = |flood: Flood| self.flooded(&flood);
        let Some(messages) = message::read(event) else {
            return self.inbox.garbage("in a stream", event).map(|()| None).map_err(ended);
        };
        for message in messages {
            match message {
                Message::Response { id: of, result } if of.is_some() && of == id => {
                    self.inbox.hear();
                    return Ok(Some(result));
                }
                Message::Response { .. } => self.inbox.stray().map_err(ended)?,
                Message::Notification { method, params } => {
                    self.inbox.tell(&method, params.as_deref()).map_err(ended)?;
                }
                Message::Request(request) => self.reply(request).await.map_err(ended)?,
            }
        }
        Ok(None)
    }

    /// Answers a server's request: at once where that is a word, in a task of its own where a person is asked, so that
    /// what else comes is heard meanwhile. There are no more such tasks than questions may be open.
    async fn reply(self: &Arc<Self>, request: RawRequest) -> Result<(), Flood> {
        let (inbox, web) = (Arc::clone(&self.inbox), Arc::downgrade(self));
        let mut asked = Box::pin(Arc::clone(&self.inbox).respond(request));
        if let Some(answer) = (&mut asked).now_or_never() {
            self.say(answer?).await;
            return Ok(());
        }
        drop(tokio::spawn(async move {
            tokio::select! {
                _ = inbox.ending.over() => {}
                Ok(answer) = asked => if let Some(web) = web.upgrade() { web.say(answer).await },
            }
        }));
        Ok(())
    }

    /// Sends an answer. That the server does not want to hear it is its own affair, and holds up nothing else.
    async fn say(&self, answer: Vec<u8>) {
        drop(tokio::time::timeout(TELL_WAIT, self.send("POST", answer, Vec::new())).await);
    }

    /// It says more than may be: the conversation is over.
    fn flooded(&self, flood: &Flood) -> LinkError {
        self.inbox.ending.end(flood.to_string());
        LinkError::Closed(flood.to_string())
    }

    /// Opens that stream, so that what a server says during the first call is heard. One that does not answer at once is
    /// waited for later.
    pub(super) async fn listen(&self) {
        let asked = tokio::time::timeout(FAREWELL, self.send("GET", Vec::new(), Vec::new())).await;
        if let Ok(Ok(response)) = asked {
            *self.ear.lock() = Some(response);
        }
    }

    /// Hears what the server says by itself, as revisions with a handshake have it: a GET that stays open. Returns when
    /// the stream ends; an error: there is none.
    pub(super) async fn hear(self: &Arc<Self>) -> Result<Duration, LinkError> {
        let opened = self.ear.lock().take();
        let first = opened.is_some();
        let response = match opened {
            Some(response) => response,
            None => self.send("GET", Vec::new(), Vec::new()).await?,
        };
        let kind = response.header("content-type").unwrap_or_default();
        if response.status != 200 || !kind.to_ascii_lowercase().starts_with("text/event-stream") {
            return Err(LinkError::Status(response.status, String::new()));
        }
        if !first {
            // From here on every change is heard; what was said before this stream was open is not.
            self.inbox.changed.notify_one();
        }
        let mut parser = Parser::default();
        self.events(None, response.body, &mut parser, &mut 0).await?;
        Ok(parser.retry.unwrap_or(RESUME_PAUSE))
    }

    /// What a status that is no success says.
    async fn refused(&self, response: Response) -> LinkError {
        let status = response.status;
        let body = collect(response.body, MAX_ERROR_BODY, self.inbox.holds()).await.unwrap_or_default();
        // An error about a message that could not be read has no id.
        #[derive(serde::Deserialize)]
        struct Failed {
            error: message::RpcError,
        }
        if let Ok(Failed { error }) = serde_json::from_slice(&body) {
            return LinkError::Rpc(error);
        }
        let name = &self.inbox.name;
        let hint = match status {
            401 | 403 => format!(
                ": it wants credentials; write in the policy: [mcp.{name}] bearer = \"NAME\", and [secrets.NAME]"
            ),
            404 | 405 => ": is `url` the endpoint of an MCP server?".to_owned(),
            _ => said(&body),
        };
        LinkError::Status(status, hint)
    }

    /// Ends the session, if there is one.
    pub(super) async fn close(&self) {
        let ends = self.known().session.is_some() && !self.inbox.ending.is_over();
        if ends {
            // It is a courtesy.
            drop(tokio::time::timeout(FAREWELL, self.send("DELETE", Vec::new(), Vec::new())).await);
        }
        self.inbox.ending.end("the host ended it".to_owned());
    }

    /// Tells a server of an older revision that nobody waits for an answer any more; for 2026-07-28 the closed connection
    /// says it.
    pub(super) fn give_up(self: &Arc<Self>, cancelled: Value) {
        if self.known().modern || self.inbox.ending.is_over() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // However many calls are given up: who does not read is not told of all of them.
        let Ok(place) = Arc::clone(&self.asides).try_acquire_owned() else { return };
        let web = Arc::clone(self);
        drop(runtime.spawn(async move {
            let _place = place;
            let told = web.tell("notifications/cancelled", Some(&cancelled));
            drop(tokio::time::timeout(TELL_WAIT, told).await);
        }));
    }
}

/// Reads a body of at most `most` bytes.
async fn collect(mut body: Body, most: usize, mut held: Held<'_>) -> Result<Vec<u8>, LinkError> {
    let mut bytes = Vec::new();
    while let Some(part) = body.next().await {
        let part = part.map_err(|why| LinkError::Bad(format!("the server's response broke off: {why}")))?;
        if bytes.len() + part.len() > most {
            let most = quantity::show_bytes(most as u64);
            return Err(LinkError::Bad(format!("the server's response has more than {most}")));
        }
        held.resize(bytes.len() + part.len()).map_err(full)?;
        bytes.extend(part);
    }
    Ok(bytes)
}

fn full(_: Full) -> LinkError {
    let most = quantity::show_bytes(MAX_HELD as u64);
    LinkError::Busy(format!("its responses that are being read have more than {most} together"))
}
