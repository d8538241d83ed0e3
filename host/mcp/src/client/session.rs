//! A session with one server: requests, and its unsolicited messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use toolbay_core::call::CallContext;

use super::bounds::{LISTEN_RETRY_DELAY, MAX_IN_FLIGHT, MAX_LISTEN_RETRY_DELAY, MAX_QUEUED, STABLE_AFTER};
use super::inbox::Inbox;
use super::link::{Link, progress_target};
use super::link_request::{LinkError, LinkRequest};
use super::negotiated::{MODERN, NegotiatedServer, VERSION_HEADER, client_info};
use super::unusable_output::OutputNotes;
use crate::protocol::message::{self, INVALID_PARAMS, METHOD_NOT_FOUND};

/// A session with a server.
#[derive(Debug)]
pub(super) struct ClientSession {
    pub(super) link: Link,
    pub(super) inbox: Arc<Inbox>,
    pub(super) negotiated: NegotiatedServer,
    next_id: AtomicU64,
    slots: Semaphore,
    queued: AtomicUsize,
}

impl ClientSession {
    /// Creates a session over a link, before its handshake.
    pub(super) fn new(link: Link, inbox: Arc<Inbox>) -> Self {
        Self {
            link,
            inbox,
            negotiated: NegotiatedServer::default(),
            next_id: AtomicU64::new(1),
            slots: Semaphore::new(MAX_IN_FLIGHT),
            queued: AtomicUsize::new(0),
        }
    }

    /// Sends a request, after waiting for a free slot. Dropping the future cancels the request.
    pub(super) async fn request(
        &self,
        method: &str,
        mut params: Map<String, Value>,
        extra: RequestExtra<'_>,
    ) -> Result<Box<RawValue>, LinkError> {
        let _slot = if extra.skips_queue { None } else { Some(self.acquire_slot().await?) };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut headers = extra.headers;
        let mut meta = Map::new();
        if self.negotiated.modern || extra.is_modern {
            headers.push((VERSION_HEADER.to_owned(), MODERN.to_owned()));
            meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!(MODERN));
            meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), self.inbox.capabilities());
            meta.insert("io.modelcontextprotocol/clientInfo".to_owned(), client_info());
            headers.push(("mcp-method".to_owned(), method.to_owned()));
        }
        let progress = progress_target(extra.call).map(|ctx| self.inbox.subscribe_progress(id, ctx));
        if progress.is_some() {
            meta.insert("progressToken".to_owned(), json!(id));
        }
        if !meta.is_empty() {
            params.insert("_meta".to_owned(), Value::Object(meta));
        }
        let body = message::encode_request(id, method, &Value::Object(params));
        let request = LinkRequest { id, method, body, headers };
        // A subscription stays open, and is nobody's call.
        let mut open = (!extra.skips_queue).then(|| self.inbox.requests.open(id, extra.notes));
        if let Some(open) = &mut open {
            // What the handshake leaves belongs to nobody.
            open.is_answered = request.is_handshake();
        }
        let answer = self.link.request(request);
        let answer = match progress {
            None => answer.await,
            Some(progress) => {
                let answer = tokio::select! {
                    biased;
                    answer = answer => answer,
                    never = progress.forward() => match never {},
                };
                progress.flush();
                answer
            }
        };
        if let Some(open) = &mut open {
            open.is_answered |= matches!(answer, Ok(_) | Err(LinkError::Rpc(_)));
        }
        answer
    }

    async fn acquire_slot(&self) -> Result<tokio::sync::SemaphorePermit<'_>, LinkError> {
        if let Ok(permit) = self.slots.try_acquire() {
            return Ok(permit);
        }
        if self.queued.fetch_add(1, Ordering::AcqRel) >= MAX_QUEUED {
            self.queued.fetch_sub(1, Ordering::AcqRel);
            return Err(LinkError::Busy(format!(
                "{MAX_IN_FLIGHT} requests to the server are in flight and {MAX_QUEUED} are queued"
            )));
        }
        let _waits = QueueSlot(&self.queued);
        self.slots.acquire().await.map_err(|_| LinkError::Closed("the connection is closed".into()))
    }

    /// Whether the server may send unsolicited messages on a separate stream: list changes and, from legacy servers
    /// over HTTP, elicitations.
    pub(super) fn expects_events(&self) -> bool {
        let asks = self.inbox.elicitation_handler.is_some()
            && !self.negotiated.modern
            && matches!(self.link, Link::Http(_));
        self.negotiated.tools_list_changed || self.negotiated.resources_list_changed || asks
    }

    /// Reads unsolicited messages until the connection is closed. Never returns if the server sends none on a separate
    /// stream.
    pub(super) async fn read_server_events(&self) {
        if !self.expects_events() {
            return std::future::pending().await;
        }
        let mut pause = LISTEN_RETRY_DELAY;
        loop {
            let begun = Instant::now();
            let ended = self.listen_once(&mut pause).await;
            match ended {
                Err(LinkError::Rpc(error)) if matches!(error.code, METHOD_NOT_FOUND | INVALID_PARAMS) => {
                    return std::future::pending().await;
                }
                // The previous stream of the session is not closed yet, or the server limits the rate: retry.
                Err(LinkError::Status(409 | 425 | 429, _)) => {}
                Err(LinkError::Status(status, _)) if status < 500 => return std::future::pending().await,
                Ok(()) | Err(_) => {}
            }
            if self.inbox.closure.is_closed() {
                return;
            }
            if begun.elapsed() > STABLE_AFTER {
                pause = LISTEN_RETRY_DELAY;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_LISTEN_RETRY_DELAY);
            // Changes while no stream was open were missed: read the lists again.
            self.inbox.changed.notify_one();
        }
    }

    /// Reads one stream until it ends. Raises `pause` to the retry delay that the server sent.
    async fn listen_once(&self, pause: &mut Duration) -> Result<(), LinkError> {
        if self.negotiated.modern {
            let mut wanted = Map::new();
            for (key, has_changes) in [
                ("toolsListChanged", self.negotiated.tools_list_changed),
                ("resourcesListChanged", self.negotiated.resources_list_changed),
            ] {
                if has_changes {
                    wanted.insert(key.to_owned(), Value::Bool(true));
                }
            }
            let params = [("notifications".to_owned(), Value::Object(wanted))].into_iter().collect();
            let extra = RequestExtra { skips_queue: true, ..RequestExtra::default() };
            return self.request("subscriptions/listen", params, extra).await.map(drop);
        }
        let Link::Http(http) = &self.link else {
            // Over stdio, unsolicited messages share the connection.
            return std::future::pending().await;
        };
        let retry = http.read_server_events().await?;
        *pause = (*pause).max(retry);
        Ok(())
    }
}

struct QueueSlot<'a>(&'a AtomicUsize);

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Options of a request.
#[derive(Debug, Default)]
pub(super) struct RequestExtra<'a> {
    /// Headers that mirror parts of the request.
    pub(super) headers: Vec<(String, String)>,
    /// The call that the request belongs to, for progress.
    pub(super) call: Option<&'a Arc<CallContext>>,
    /// Notes what comes instead of an answer.
    pub(super) notes: Option<&'a Arc<OutputNotes>>,
    /// Whether the request takes no slot, because it stays open.
    pub(super) skips_queue: bool,
    /// Whether the request is modern before the era was negotiated.
    pub(super) is_modern: bool,
}
