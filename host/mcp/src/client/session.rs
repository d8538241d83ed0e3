//! A session with one server: the handshake in either era, and requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use toolbay_core::call::CallContext;
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::tool::definition_text;
use toolbay_policy::mcp_server::ProtocolEra;
use toolbay_policy::text::one_line;

use super::bounds::{
    DISCOVER_TIMEOUT, LISTEN_RETRY_DELAY, MAX_IN_FLIGHT, MAX_LABEL, MAX_LISTEN_RETRY_DELAY, MAX_QUEUED,
    MAX_SERVER_INFO_BYTES, STABLE_AFTER,
};
use super::inbox::Inbox;
use super::link::{Link, LinkError, LinkRequest, progress_target};
use crate::protocol::bounded;
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::message::{self, INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_VERSION};

/// The stateless revision.
pub(super) const MODERN: &str = "2026-07-28";
/// The newest legacy revision.
const LEGACY: &str = "2025-11-25";
/// Longest list of supported versions, in bytes.
const MAX_VERSIONS_BYTES: usize = 64 << 10;
/// All legacy revisions.
const HANDSHAKE_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY];

/// The result of the handshake.
#[derive(Debug, Clone, Default)]
pub(super) struct NegotiatedServer {
    pub(super) modern: bool,
    /// The protocol revision.
    pub(super) protocol: String,
    /// The name that the server reports.
    pub(super) title: Option<String>,
    /// The version that the server reports.
    pub(super) version: Option<Arc<str>>,
    pub(super) has_tools: bool,
    pub(super) tools_list_changed: bool,
    pub(super) has_resources: bool,
    /// Whether the server reports changes of its resources.
    pub(super) resources_list_changed: bool,
}

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

/// The error data of a server that does not support the requested version.
#[derive(Deserialize)]
struct UnsupportedVersionData {
    supported: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct HandshakeResult {
    supported_versions: Option<Vec<String>>,
    protocol_version: Option<String>,
    capabilities: RawCapabilities,
    server_info: Option<RawImplementation>,
    #[serde(rename = "_meta")]
    meta: Option<Map<String, Value>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawCapabilities {
    tools: Option<Value>,
    resources: Option<Value>,
}

impl RawCapabilities {
    /// Whether the server reports changes of this list.
    fn declares_list_changed(of: Option<&Value>) -> bool {
        of.and_then(|of| of.get("listChanged")) == Some(&Value::Bool(true))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawImplementation {
    name: Option<String>,
    version: Option<String>,
}

impl HandshakeResult {
    fn parse(result: &RawValue) -> Result<Self, LinkError> {
        let unread = |why: String| {
            let why = one_line(&why, MAX_UNREDACTED_CHARS);
            LinkError::InvalidResponse(format!("the result of the handshake cannot be parsed: {why}"))
        };
        bounded::check_size(result, MAX_SERVER_INFO_BYTES).map_err(unread)?;
        message::parse_object(result).map_err(|e| unread(e.to_string()))
    }

    fn into_negotiated(
        self,
        protocol: &str,
        modern: bool,
        connector: &dyn ServerConnector,
    ) -> NegotiatedServer {
        let in_meta = || {
            let info = self.meta.as_ref()?.get("io.modelcontextprotocol/serverInfo")?;
            RawImplementation::deserialize(info).ok()
        };
        let info = self.server_info.or_else(in_meta).unwrap_or_default();
        let label =
            |text: String| definition_text::sanitize_label(&text, MAX_LABEL, &|text| connector.redact(text));
        NegotiatedServer {
            modern,
            protocol: protocol.to_owned(),
            title: info.name.map(label),
            version: info.version.map(|version| label(version).into()),
            tools_list_changed: RawCapabilities::declares_list_changed(self.capabilities.tools.as_ref()),
            has_tools: self.capabilities.tools.is_some_and(|tools| !tools.is_null()),
            resources_list_changed: RawCapabilities::declares_list_changed(
                self.capabilities.resources.as_ref(),
            ),
            has_resources: self.capabilities.resources.is_some_and(|resources| !resources.is_null()),
        }
    }
}

/// Why a session could not be established.
#[derive(Debug)]
pub(super) enum BeginError {
    /// The server refused, or supports no common revision.
    Failed(LinkError),
    /// The server disconnected on `server/discover`. A new connection with the legacy handshake may succeed.
    RetryAsLegacy,
}

impl ClientSession {
    /// Performs the handshake over a link.
    pub(super) async fn begin(
        link: Link,
        inbox: Arc<Inbox>,
        protocol: ProtocolEra,
    ) -> Result<Self, BeginError> {
        let mut session = Self {
            link,
            inbox,
            negotiated: NegotiatedServer::default(),
            next_id: AtomicU64::new(1),
            slots: Semaphore::new(MAX_IN_FLIGHT),
            queued: AtomicUsize::new(0),
        };
        if protocol != ProtocolEra::Legacy {
            match session.discover(protocol == ProtocolEra::Auto).await {
                Ok(Some(known)) => {
                    session.negotiated = known;
                    return Ok(session);
                }
                Err(LinkError::Closed(_)) if protocol == ProtocolEra::Auto => {
                    return Err(BeginError::RetryAsLegacy);
                }
                Err(error) => return Err(BeginError::Failed(error)),
                Ok(None) if protocol == ProtocolEra::Modern => {
                    let text = format!("it does not support revision {MODERN}, which `protocol` requires");
                    return Err(BeginError::Failed(LinkError::InvalidResponse(text)));
                }
                Ok(None) => {}
            }
        }
        let known = session.initialize().await.map_err(BeginError::Failed)?;
        session.negotiated = known;
        if let (Link::Http(web), true) = (&session.link, session.expects_events()) {
            web.open_listen_stream().await;
        }
        Ok(session)
    }

    /// Sends `server/discover` of 2026-07-28. `None` if the server supports only legacy revisions.
    async fn discover(&mut self, may_be_older: bool) -> Result<Option<NegotiatedServer>, LinkError> {
        self.set_version(MODERN, true);
        let mut again = true;
        let result = loop {
            let asked = self.request("server/discover", Map::new(), RequestExtra::default());
            // A legacy program may not answer at all.
            let asked = match (&self.link, may_be_older) {
                (Link::Stdio(_), true) => match tokio::time::timeout(DISCOVER_TIMEOUT, asked).await {
                    Ok(result) => result,
                    Err(_) => break None,
                },
                _ => asked.await,
            };
            match asked {
                Ok(result) => break Some(result),
                Err(LinkError::Rpc(error)) if error.code == UNSUPPORTED_VERSION => {
                    let data = error.data.as_ref().filter(|data| data.get().len() <= MAX_VERSIONS_BYTES);
                    let data =
                        data.and_then(|data| message::parse_object::<UnsupportedVersionData>(data).ok());
                    let ours = data.is_some_and(|data| data.supported.iter().any(|one| one == MODERN));
                    if !ours || !std::mem::take(&mut again) {
                        break None;
                    }
                }
                // Legacy servers answer an unknown method in many ways.
                Err(LinkError::Rpc(_) | LinkError::InvalidResponse(_)) => break None,
                Err(LinkError::Status(status, _)) if !matches!(status, 401 | 403 | 429) => {
                    break None;
                }
                Err(error) => return Err(error),
            }
        };
        let hello = result.and_then(|result| HandshakeResult::parse(&result).ok());
        let speaks = |hello: &HandshakeResult| {
            hello.supported_versions.as_ref().is_some_and(|all| all.iter().any(|one| one == MODERN))
        };
        match hello.filter(speaks) {
            Some(hello) => Ok(Some(hello.into_negotiated(MODERN, true, &*self.inbox.connector))),
            None => {
                self.reset_version();
                Ok(None)
            }
        }
    }

    async fn initialize(&mut self) -> Result<NegotiatedServer, LinkError> {
        let params = json!({
            "protocolVersion": LEGACY,
            "capabilities": self.inbox.capabilities(),
            "clientInfo": client_info(),
        });
        let params = params.as_object().cloned().unwrap_or_default();
        let result = self.request("initialize", params, RequestExtra::default()).await?;
        let hello = HandshakeResult::parse(&result)?;
        let version = hello.protocol_version.clone().unwrap_or_default();
        if !HANDSHAKE_VERSIONS.contains(&version.as_str()) {
            return Err(LinkError::Denied(format!(
                "it supports only protocol revision `{}`; this host supports {MODERN} and {}",
                one_line(&version, MAX_UNREDACTED_CHARS),
                HANDSHAKE_VERSIONS.join(", ")
            )));
        }
        self.set_version(&version, false);
        self.link.notify("notifications/initialized", None).await?;
        Ok(hello.into_negotiated(&version, false, &*self.inbox.connector))
    }

    fn set_version(&mut self, version: &str, modern: bool) {
        (self.negotiated.modern, self.negotiated.protocol) = (modern, version.to_owned());
        if let Link::Http(web) = &self.link {
            web.set_negotiated(version, modern);
        }
    }

    /// Resets the negotiated version.
    fn reset_version(&mut self) {
        self.negotiated = NegotiatedServer::default();
        if let Link::Http(web) = &self.link {
            web.reset_negotiated();
        }
    }

    /// Sends a request, after waiting for a free slot. Dropping the future cancels the request.
    pub(super) async fn request(
        &self,
        method: &str,
        mut params: Map<String, Value>,
        extra: RequestExtra<'_>,
    ) -> Result<Box<RawValue>, LinkError> {
        let _place = if extra.skips_queue { None } else { Some(self.acquire_slot().await?) };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut headers = extra.headers;
        let mut meta = Map::new();
        if self.negotiated.modern {
            meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!(MODERN));
            meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), self.inbox.capabilities());
            meta.insert("io.modelcontextprotocol/clientInfo".to_owned(), client_info());
            headers.push(("mcp-method".to_owned(), method.to_owned()));
        }
        let follows = progress_target(extra.call).map(|ctx| self.inbox.subscribe_progress(id, ctx));
        if follows.is_some() {
            meta.insert("progressToken".to_owned(), json!(id));
        }
        if !meta.is_empty() {
            params.insert("_meta".to_owned(), Value::Object(meta));
        }
        let body = message::encode_request(id, method, &Value::Object(params));
        self.link.request(LinkRequest { id, method, body, headers }).await
    }

    async fn acquire_slot(&self) -> Result<tokio::sync::SemaphorePermit<'_>, LinkError> {
        if let Ok(place) = self.slots.try_acquire() {
            return Ok(place);
        }
        if self.queued.fetch_add(1, Ordering::AcqRel) >= MAX_QUEUED {
            self.queued.fetch_sub(1, Ordering::AcqRel);
            return Err(LinkError::Busy(format!(
                "{MAX_IN_FLIGHT} requests to the server are in flight and {MAX_QUEUED} are queued"
            )));
        }
        let _waits = QueueSlot(&self.queued);
        self.slots.acquire().await.map_err(|_| LinkError::Closed("the connection is closed".to_owned()))
    }

    /// Whether the server may send unsolicited messages on a separate stream: list changes and, from legacy servers
    /// over HTTP, elicitations.
    fn expects_events(&self) -> bool {
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
            let heard = self.listen_once(&mut pause).await;
            match heard {
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
            for (key, told) in [
                ("toolsListChanged", self.negotiated.tools_list_changed),
                ("resourcesListChanged", self.negotiated.resources_list_changed),
            ] {
                if told {
                    wanted.insert(key.to_owned(), Value::Bool(true));
                }
            }
            let params = [("notifications".to_owned(), Value::Object(wanted))].into_iter().collect();
            let extra = RequestExtra { skips_queue: true, ..RequestExtra::default() };
            return self.request("subscriptions/listen", params, extra).await.map(drop);
        }
        let Link::Http(web) = &self.link else {
            // Over stdio, unsolicited messages share the connection.
            return std::future::pending().await;
        };
        let retry = web.read_server_events().await?;
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
    /// Whether the request takes no slot, because it stays open.
    pub(super) skips_queue: bool,
}

/// The name and version of this client.
pub(super) fn client_info() -> Value {
    json!({"name": "toolbay", "version": env!("CARGO_PKG_VERSION")})
}

#[cfg(test)]
mod tests {
    use super::super::inbox::tests::NullConnector;
    use super::*;

    #[test]
    fn server_info_is_sanitized_and_bounded() {
        let hello = |info: &Value| {
            let raw =
                serde_json::value::to_raw_value(&json!({"capabilities": {"tools": {}}, "serverInfo": info}));
            HandshakeResult::parse(&raw.unwrap())
                .map(|hello| hello.into_negotiated(LEGACY, false, &NullConnector))
        };
        let known =
            hello(&json!({"name": "a\u{1b}<|im_start|>canary-secret", "version": "1<|im_end|>"})).unwrap();
        assert_eq!(known.title.as_deref(), Some("a\\u{1b}[STRIPPED-TEMPLATE-TOKEN][secret T]"));
        assert_eq!(known.version.as_deref(), Some("1[STRIPPED-TEMPLATE-TOKEN]"));
        let wide: Vec<u8> = vec![0; MAX_SERVER_INFO_BYTES];
        assert!(
            matches!(hello(&json!({"x": wide})), Err(LinkError::InvalidResponse(why)) if why.contains("at most 256KiB"))
        );
    }
}
