//! The handshake with a server, in either era.
//!
//! With `protocol = "auto"`, `server/discover` of 2026-07-28 comes first. A server may start slowly, and a legacy one may
//! not answer an unknown method at all. So `initialize` follows after a while on the same connection, and the late answer
//! is still awaited:
//!
//! | first answer | then |
//! |---|---|
//! | `server/discover` lists 2026-07-28 | modern |
//! | `server/discover` is refused | the answer to `initialize` decides |
//! | `initialize` succeeds | legacy |
//! | `initialize` is refused | the answer to `server/discover` decides; after -32022, it is sent again |
//! | the connection ends | a new one begins with `initialize` |
//!
//! The era of the last start comes first in the next one, without the other.

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{self, Either, FusedFuture};
use serde_json::value::RawValue;
use serde_json::{Map, json};
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::tool::definition_text;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::mcp_server::ProtocolEra;

use super::bounds::{DISCOVER_TIMEOUT, MAX_LABEL, MAX_VERSIONS, NOTIFY_TIMEOUT};
use super::inbox::Inbox;
use super::link::Link;
use super::link_request::LinkError;
use super::negotiated::{MODERN, NegotiatedServer, client_info};
use super::session::{ClientSession, RequestExtra};
use crate::protocol::bounded::BoundedList;
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::lifecycle::Era;
use crate::protocol::members::Members;
use crate::protocol::message::{RpcError, UNSUPPORTED_VERSION};

/// The newest legacy revision.
const LEGACY: &str = "2025-11-25";
/// All legacy revisions.
const HANDSHAKE_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY];

/// The result of either handshake. Each member is read for itself. No other member is stored, however long: a server may
/// send its icons and its manual.
struct HandshakeResult<'a>(Members<'a>);

/// A text or a number.
fn text_or_number(raw: &RawValue) -> Option<String> {
    let is_number = |text: &str| text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    serde_json::from_str(raw.get()).ok().or_else(|| is_number(raw.get()).then(|| raw.get().to_owned()))
}

impl<'a> HandshakeResult<'a> {
    fn parse(result: &'a RawValue) -> Result<Self, LinkError> {
        let names = &["supportedVersions", "protocolVersion", "capabilities", "serverInfo", "_meta"];
        Members::read(result, names).map(Self).map_err(|error| {
            let why = one_line(&error.to_string(), MAX_UNREDACTED_CHARS);
            LinkError::InvalidResponse(format!("the result of the handshake cannot be parsed: {why}").into())
        })
    }

    /// Checks that a result of `server/discover` shows a server of 2026-07-28. A server that lists no versions, but
    /// declares its capabilities, speaks the one that the request was made in.
    fn check_modern(&self) -> Result<(), LinkError> {
        let mut listed = self.0.raw("supportedVersions").map(read_versions).unwrap_or_default();
        if listed.is_empty() {
            listed.extend(self.protocol_version());
        }
        let declares = || self.0.raw("capabilities").is_some_and(|raw| raw.get().starts_with(['{', '[']));
        let what = match listed.as_slice() {
            [] if declares() => return Ok(()),
            [] => "it lists no versions and declares no capabilities".to_owned(),
            some if some.iter().any(|one| one == MODERN) => return Ok(()),
            some => {
                let some = one_line(&some.join(", "), MAX_UNREDACTED_CHARS);
                format!("it supports {some}, but not {MODERN}")
            }
        };
        Err(LinkError::InvalidResponse(what.into()))
    }

    fn protocol_version(&self) -> Option<String> {
        self.0.raw("protocolVersion").and_then(text_or_number)
    }

    fn to_negotiated(
        &self,
        protocol: &str,
        modern: bool,
        connector: &dyn ServerConnector,
    ) -> NegotiatedServer {
        const IN_META: &str = "io.modelcontextprotocol/serverInfo";
        let meta = || Members::read_any(self.0.raw("_meta"), &[IN_META]).raw(IN_META);
        let info = Members::read_any(self.0.raw("serverInfo").or_else(meta), &["name", "version"]);
        let label = |member: &str| {
            let text = text_or_number(info.raw(member)?)?;
            Some(definition_text::sanitize_label(&text, MAX_LABEL, &|text| connector.redact(text)))
        };
        // `null` and `false` declare nothing.
        let declared = Members::read_any(self.0.raw("capabilities"), &["tools", "resources", "prompts"]);
        let is_declared = |of: &str| declared.raw(of).is_some_and(|raw| raw.get() != "false");
        let declares_changes = |of: &str| {
            let options = Members::read_any(declared.raw(of), &["listChanged"]);
            options.raw("listChanged").is_some_and(|raw| raw.get() == "true")
        };
        NegotiatedServer {
            modern,
            protocol: protocol.to_owned(),
            title: label("name"),
            version: label("version").map(Into::into),
            tools_list_changed: declares_changes("tools"),
            has_tools: is_declared("tools"),
            declares_nothing: !["tools", "resources", "prompts"].into_iter().any(is_declared),
            resources_list_changed: declares_changes("resources"),
            has_resources: is_declared("resources"),
        }
    }
}

/// The outcome of `server/discover`: a modern server, or why the server is not modern.
type Discovery = Result<NegotiatedServer, LinkError>;

/// Why a session could not be established.
#[derive(Debug)]
pub(super) enum BeginError {
    /// The server refused, or supports no common revision.
    Failed(LinkError),
    /// The server disconnected on `server/discover`. A new connection with the legacy handshake may succeed.
    RetryAsLegacy,
}

impl From<LinkError> for BeginError {
    fn from(error: LinkError) -> Self {
        Self::Failed(error)
    }
}

impl ClientSession {
    /// Performs the handshake over a link. `remembered` is the era of the last session with the server.
    pub(super) async fn begin(
        link: Link,
        inbox: Arc<Inbox>,
        protocol: ProtocolEra,
        remembered: Option<Era>,
    ) -> Result<Self, BeginError> {
        let mut session = Self::new(link, inbox);
        session.negotiated = match (protocol, remembered) {
            (ProtocolEra::Legacy, _) => session.initialize().await?,
            (ProtocolEra::Modern, _) => session.discover().await?.map_err(|why| {
                LinkError::InvalidResponse(why.refusal().map_text(|why| {
                    format!("it does not support revision {MODERN}, which `protocol` requires: {why}")
                }))
            })?,
            (ProtocolEra::Auto, Some(Era::Legacy)) => session.initialize_again().await?,
            (ProtocolEra::Auto, remembered) => session.probe(remembered).await?,
        };
        if let Link::Http(http) = &session.link {
            http.set_negotiated(&session.negotiated.protocol, session.negotiated.modern);
            if !session.negotiated.modern && session.expects_events() {
                http.open_listen_stream().await;
            }
        }
        Ok(session)
    }

    /// Finds the era of a server.
    async fn probe(&self, remembered: Option<Era>) -> Result<NegotiatedServer, BeginError> {
        let mut discover = pin!(self.discover().fuse());
        let found = tokio::select! {
            found = &mut discover => found,
            // A server that was modern before is awaited.
            () = tokio::time::sleep(DISCOVER_TIMEOUT), if remembered != Some(Era::Modern) => {
                return self.probe_both(discover).await;
            }
        };
        match found {
            Ok(Ok(modern)) => Ok(modern),
            Ok(Err(_)) => match self.initialize().await {
                Err(refusal) => self.reconsider(refusal).await,
                Ok(legacy) => Ok(legacy),
            },
            Err(LinkError::Closed(_)) => Err(BeginError::RetryAsLegacy),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends `initialize` while `discover` is still open. The first success decides.
    async fn probe_both(
        &self,
        mut discover: impl FusedFuture<Output = Result<Discovery, LinkError>> + Unpin,
    ) -> Result<NegotiatedServer, BeginError> {
        let mut initialize = pin!(self.initialize().fuse());
        let mut refusal = None;
        loop {
            tokio::select! {
                biased;
                found = &mut discover, if !discover.is_terminated() => match (found, refusal.take()) {
                    (Ok(Ok(modern)), _) => return Ok(modern),
                    (Err(LinkError::Closed(_)), _) => return Err(BeginError::RetryAsLegacy),
                    (Ok(Err(_)) | Err(_), Some(refusal)) => return self.reconsider(refusal).await,
                    (Ok(Err(_)) | Err(_), None) => {}
                },
                initialized = &mut initialize, if !initialize.is_terminated() => match initialized {
                    Ok(legacy) => return Ok(legacy),
                    Err(error) if discover.is_terminated() => return self.reconsider(error).await,
                    Err(error) if is_modern_refusal(&error) => {
                        // The server may never have read the first one.
                        let again = pin!(self.discover());
                        let found = first_modern(discover, again).await;
                        return Ok(found.map_err(|why| refused_both(&error, &why))?);
                    }
                    Err(error) => refusal = Some(error),
                },
            }
        }
    }

    /// Begins with the handshake, as the last time. A server that no longer knows it may be modern now.
    async fn initialize_again(&self) -> Result<NegotiatedServer, LinkError> {
        let refusal = match self.initialize().await {
            Err(refusal @ (LinkError::Rpc(_) | LinkError::InvalidResponse(_) | LinkError::Status(..))) => {
                refusal
            }
            other => return other,
        };
        match self.discover().await {
            Ok(Ok(modern)) => Ok(modern),
            Ok(Err(why)) | Err(why) if is_modern_refusal(&refusal) => Err(refused_both(&refusal, &why)),
            Ok(Err(_)) | Err(_) => Err(refusal),
        }
    }

    /// Sends `server/discover` once more if a server refused `initialize` because it speaks only newer revisions.
    async fn reconsider(&self, refusal: LinkError) -> Result<NegotiatedServer, BeginError> {
        if !is_modern_refusal(&refusal) {
            return Err(refusal.into());
        }
        match self.discover().await {
            Ok(Ok(modern)) => Ok(modern),
            Ok(Err(why)) | Err(why) => Err(refused_both(&refusal, &why).into()),
        }
    }

    /// Sends `server/discover` of 2026-07-28. The inner error tells why the server is not modern: it refuses the method, or
    /// supports only legacy revisions.
    async fn discover(&self) -> Result<Discovery, LinkError> {
        let mut again = true;
        let result = loop {
            let extra = RequestExtra { is_modern: true, ..RequestExtra::default() };
            match self.request("server/discover", Map::new(), extra).await {
                Ok(result) => break result,
                Err(LinkError::Rpc(error)) if error.code == UNSUPPORTED_VERSION => {
                    let ours =
                        supported_versions(&error).is_some_and(|all| all.iter().any(|one| one == MODERN));
                    if !ours || !std::mem::take(&mut again) {
                        return Ok(Err(LinkError::Rpc(error)));
                    }
                }
                // Legacy servers answer an unknown method in many ways.
                Err(refusal @ (LinkError::Rpc(_) | LinkError::InvalidResponse(_))) => {
                    return Ok(Err(refusal));
                }
                Err(refusal @ LinkError::Status(status, _)) if !matches!(status, 401 | 403 | 429) => {
                    return Ok(Err(refusal));
                }
                Err(error) => return Err(error),
            }
        };
        let hello = HandshakeResult::parse(&result).and_then(|hello| hello.check_modern().map(|()| hello));
        Ok(hello.map(|hello| hello.to_negotiated(MODERN, true, &*self.inbox.connector)))
    }

    /// Performs the handshake of the legacy revisions.
    async fn initialize(&self) -> Result<NegotiatedServer, LinkError> {
        let result = match self.request_initialize(LEGACY).await {
            // Some servers refuse a version instead of naming theirs in the result.
            Err(LinkError::Rpc(error)) => match older_version(&error) {
                Some(version) => self.request_initialize(version).await?,
                None => return Err(LinkError::Rpc(error)),
            },
            result => result?,
        };
        let hello = HandshakeResult::parse(&result)?;
        let Some(version) = hello.protocol_version() else {
            return Err(LinkError::Denied("its answer to `initialize` has no `protocolVersion`".into()));
        };
        if !HANDSHAKE_VERSIONS.contains(&version.as_str()) {
            let text = format!(
                "it supports only protocol revision `{}`; this host supports {MODERN} and {}",
                one_line(&version, MAX_UNREDACTED_CHARS),
                HANDSHAKE_VERSIONS.join(", ")
            );
            return Err(LinkError::Denied(text.into()));
        }
        if let Link::Http(http) = &self.link {
            http.set_negotiated(&version, false);
        }
        self.notify_initialized().await?;
        Ok(hello.to_negotiated(&version, false, &*self.inbox.connector))
    }

    async fn request_initialize(&self, version: &str) -> Result<Box<RawValue>, LinkError> {
        let params = json!({
            "protocolVersion": version,
            "capabilities": self.inbox.capabilities(),
            "clientInfo": client_info(),
        });
        let params = params.as_object().cloned().unwrap_or_default();
        self.request("initialize", params, RequestExtra::default()).await
    }

    /// Ends the handshake. A notification has no answer, so a refusal of it says nothing about the session.
    async fn notify_initialized(&self) -> Result<(), LinkError> {
        let notified = self.link.notify("notifications/initialized", None);
        match tokio::time::timeout(NOTIFY_TIMEOUT, notified).await {
            Ok(Err(error @ LinkError::Closed(_))) => Err(error),
            Ok(Err(refusal)) => {
                let (server, refusal) =
                    (&self.inbox.name, self.inbox.connector.redact(&refusal.to_string()).into_owned());
                let refusal = one_line(&refusal, MAX_UNREDACTED_CHARS);
                tracing::debug!(%server, "a server refused `notifications/initialized`: {refusal}");
                Ok(())
            }
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

/// The first of two answers to `server/discover` that shows a modern server, or why the second one does not.
async fn first_modern<F, G>(one: F, other: G) -> Discovery
where
    F: Future<Output = Result<Discovery, LinkError>> + Unpin,
    G: Future<Output = Result<Discovery, LinkError>> + Unpin,
{
    match future::select(one, other).await {
        Either::Left((Ok(Ok(modern)), _)) | Either::Right((Ok(Ok(modern)), _)) => Ok(modern),
        Either::Left((_, other)) => other.await.flatten(),
        Either::Right((_, one)) => one.await.flatten(),
    }
}

/// The error of a server that refuses `initialize` because it speaks 2026-07-28, and whose answer to `server/discover` does
/// not show that.
fn refused_both(refusal: &LinkError, why: &LinkError) -> LinkError {
    LinkError::InvalidResponse(why.refusal().map_text(|why| {
        format!(
            "it refuses `initialize` ({refusal}), and its answer to `server/discover` cannot be used: {why}"
        )
    }))
}

/// Whether a server refuses `initialize` because it speaks 2026-07-28.
fn is_modern_refusal(refusal: &LinkError) -> bool {
    let LinkError::Rpc(error) = refusal else { return false };
    error.code == UNSUPPORTED_VERSION
        && supported_versions(error).is_none_or(|all| all.iter().any(|one| one == MODERN))
}

/// The versions that an error lists as supported.
fn supported_versions(error: &RpcError) -> Option<Vec<String>> {
    Members::read_any(error.data.as_deref(), &["supported"]).raw("supported").map(read_versions)
}

/// The versions of a list. Entries that are no short texts are ignored, and a text is a list of one.
fn read_versions(raw: &RawValue) -> Vec<String> {
    let list = BoundedList::<MAX_VERSIONS>::read(Some(raw)).unwrap_or_default();
    let short = list.items.into_iter().map(RawValue::get).filter(|entry| entry.len() <= MAX_LABEL);
    short.filter_map(|entry| serde_json::from_str(entry).ok()).collect()
}

/// The newest older revision with a handshake that a refusal lists as supported.
fn older_version(refusal: &RpcError) -> Option<&'static str> {
    let supported = supported_versions(refusal)?;
    let is_common = |version: &&&str| **version != LEGACY && supported.iter().any(|one| one == **version);
    HANDSHAKE_VERSIONS.iter().rev().find(is_common).copied()
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
pub(super) mod negotiation;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::inbox::tests::NullConnector;
    use super::*;

    #[test]
    fn capabilities_that_declare_nothing_are_noticed() {
        for (capabilities, has_tools, declares_nothing) in [
            (r#"{"tools":{}}"#, true, false),
            (r#"{"tools":[]}"#, true, false),
            (r#"{"resources":{}}"#, false, false),
            (r#"{"prompts":{}}"#, false, false),
            (r#"{"tools":null,"logging":{}}"#, false, true),
            ("{}", false, true),
            ("[]", false, true),
            ("[1]", false, true),
            ("null", false, true),
            ("true", false, true),
        ] {
            let raw = RawValue::from_string(format!("{{\"capabilities\":{capabilities}}}")).unwrap();
            let hello = HandshakeResult::parse(&raw).unwrap();
            let known = hello.to_negotiated(LEGACY, false, &NullConnector);
            assert_eq!(
                (known.has_tools, known.declares_nothing),
                (has_tools, declares_nothing),
                "{capabilities}"
            );
        }
        let raw = RawValue::from_string("{}".to_owned()).unwrap();
        let hello = HandshakeResult::parse(&raw).unwrap();
        assert!(hello.to_negotiated(LEGACY, false, &NullConnector).declares_nothing);
    }

    #[tokio::test]
    async fn a_handshake_without_a_version_names_what_is_missing() {
        use tokio::io::AsyncWriteExt as _;
        let (link, inbox, mut pipe) = super::super::stdio::tests::pipe_link();
        pipe.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"capabilities\":{}}}\n").await.unwrap();
        let begun = ClientSession::begin(Link::Stdio(link), inbox, ProtocolEra::Legacy, None).await;
        let Err(BeginError::Failed(error)) = begun else { panic!() };
        assert!(error.to_string().contains("no `protocolVersion`"), "{error}");
    }

    #[test]
    fn versions_are_read_in_every_form_that_servers_write() {
        for (answer, is_modern) in [
            (r#"{"supportedVersions":["2026-07-28"]}"#, true),
            (r#"{"supportedVersions":"2026-07-28"}"#, true),
            (r#"{"supportedVersions":[7,null,{"a":1},"2099-01-01","2026-07-28"]}"#, true),
            (r#"{"supportedVersions":{"0":"2026-07-28"}}"#, true),
            (r#"{"capabilities":{}}"#, true),
            (r#"{"capabilities":[],"supportedVersions":null}"#, true),
            (r#"{"protocolVersion":"2026-07-28"}"#, true),
            // What a legacy server may answer to a method that it does not know.
            ("{}", false),
            ("[]", false),
            (r#"{"capabilities":null}"#, false),
            (r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#, false),
            (r#"{"supportedVersions":["2025-11-25"],"capabilities":{}}"#, false),
            (r#"{"supportedVersions":"2025-11-25","capabilities":{}}"#, false),
        ] {
            let raw = RawValue::from_string(answer.to_owned()).unwrap();
            assert_eq!(HandshakeResult::parse(&raw).unwrap().check_modern().is_ok(), is_modern, "{answer}");
        }
        for (data, expect) in [
            (r#"{"supported":"2024-11-05"}"#, Some("2024-11-05")),
            (r#"{"supported":[5,"2024-11-05",null,"2025-03-26"]}"#, Some("2025-03-26")),
            (r#"{"supported":null}"#, None),
            (r#"{"supported":[5]}"#, None),
        ] {
            let data = RawValue::from_string(data.to_owned()).ok();
            let refusal = RpcError { code: UNSUPPORTED_VERSION, message: String::new(), data };
            assert_eq!(older_version(&refusal), expect);
        }
    }

    #[test]
    fn server_info_is_sanitized_and_bounded() {
        let hello = |info: &Value| {
            let raw =
                serde_json::value::to_raw_value(&json!({"capabilities": {"tools": {}}, "serverInfo": info}));
            let raw = raw.unwrap();
            HandshakeResult::parse(&raw).unwrap().to_negotiated(LEGACY, false, &NullConnector)
        };
        let known = hello(&json!({"name": "a\u{1b}<|im_start|>canary-secret", "version": "1<|im_end|>"}));
        assert_eq!(known.title.as_deref(), Some("a\\u{1b}[STRIPPED-TEMPLATE-TOKEN][secret T]"));
        assert_eq!(known.version.as_deref(), Some("1[STRIPPED-TEMPLATE-TOKEN]"));
        for odd in [json!({"name": 7, "version": [1]}), json!("a"), json!([]), json!(null)] {
            let known = hello(&odd);
            assert_eq!((known.title.as_deref(), known.version), (odd.get("name").map(|_| "7"), None));
        }
        // Icons as data, and a name without end.
        let icons = json!([{"src": "A".repeat(1 << 20)}, vec![0; 1 << 20]]);
        let known = hello(&json!({"name": "n".repeat(1 << 20), "version": "1", "icons": icons}));
        assert!(known.has_tools && known.version.as_deref() == Some("1"));
        assert_eq!(known.title.unwrap().chars().count(), MAX_LABEL + 1);
    }
}
