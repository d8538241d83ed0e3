//! The lifecycle of a connection in both eras: the negotiated version and capabilities of each request.
//!
//! Up to 2025-11-25, a handshake (`initialize`) negotiates the version and capabilities for all further requests. Since
//! 2026-07-28, each request contains both in its `_meta`. The first request that is neither `ping` nor
//! `server/discover`, which a client may send before it decides, determines the era of a connection.

use std::sync::Arc;

use rmcp::model::{ClientCapabilities, ErrorCode, ErrorData, ProtocolVersion, RequestMetaObject};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolbay_core::audit;
use toolbay_policy::excerpt::one_line;

use super::bounds::MAX_SHOWN_NAME;

/// The member of `_meta` in which a client names itself (2026-07-28).
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// The protocol era of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Era {
    /// Up to 2025-11-25: with a handshake; structured content must be an object.
    Legacy,
    /// Since 2026-07-28: stateless, with any JSON value as structured content, and with cache hints.
    Modern,
}

impl Era {
    /// The era of a protocol version. Without a version, as before a handshake, the era is legacy.
    pub(crate) fn from_version(version: Option<&ProtocolVersion>) -> Self {
        match version {
            Some(version) if !version.has_initialize() => Self::Modern,
            Some(_) | None => Self::Legacy,
        }
    }
}

/// The state of the negotiation with a client.
#[derive(Debug, Clone, Default)]
pub(crate) enum Lifecycle {
    /// No era was chosen yet.
    #[default]
    Undecided,
    /// The client performed a handshake.
    Handshake(Arc<Handshake>),
    /// Each request carries its own version and capabilities.
    PerRequest,
}

/// The parameters of `initialize` that this server reads. The name and version of the client are for people, so that a
/// client without them is served like any other.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HandshakeParams {
    protocol_version: ProtocolVersion,
    capabilities: Option<ClientCapabilities>,
    client_info: Option<Value>,
}

/// The outcome of `initialize`.
#[derive(Debug)]
pub(crate) struct Handshake {
    version: ProtocolVersion,
    capabilities: ClientCapabilities,
    client: Option<Arc<str>>,
}

/// The negotiated terms of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestTerms {
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) capabilities: ClientCapabilities,
    /// The name and the version of the client, as it gives them.
    pub(crate) client: Option<Arc<str>>,
    /// Whether methods that require a handshake may be called.
    pub(crate) has_session: bool,
}

/// The name and the version of a client, for people; `None` if it gives no name.
fn client_name(info: &Value) -> Option<Arc<str>> {
    let text = |key: &str| info.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = text("name")?;
    let full = text("version").map_or_else(|| name.to_owned(), |version| format!("{name} {version}"));
    Some(audit::cut(&full).into())
}

impl Lifecycle {
    /// Performs the handshake: accepts the requested version, or falls back to the newest legacy version.
    pub(crate) fn initialize(&mut self, params: HandshakeParams) -> RequestTerms {
        let asked = params.protocol_version;
        let known = asked.has_initialize() && ProtocolVersion::KNOWN_VERSIONS.contains(&asked);
        let version = if known { asked } else { ProtocolVersion::LATEST_WITH_INITIALIZE };
        let capabilities = params.capabilities.unwrap_or_default();
        let client = params.client_info.as_ref().and_then(client_name);
        let terms = RequestTerms {
            version: Some(version.clone()),
            capabilities: capabilities.clone(),
            client: client.clone(),
            has_session: true,
        };
        *self = Self::Handshake(Arc::new(Handshake { version, capabilities, client }));
        terms
    }

    /// The terms of a request other than `initialize`.
    ///
    /// # Errors
    /// The request names an unsupported version, or lacks required metadata.
    pub(crate) fn request_terms(
        &mut self,
        method: &str,
        meta: &RequestMetaObject,
    ) -> Result<RequestTerms, ErrorData> {
        let handshake = match self {
            Self::Undecided if method == "ping" && meta.protocol_version().is_none() => {
                return Ok(RequestTerms { has_session: true, ..RequestTerms::default() });
            }
            Self::Handshake(handshake) => Some(&**handshake),
            Self::Undecided | Self::PerRequest => None,
        };
        let named = meta.protocol_version();
        let capabilities = meta.client_capabilities();
        if let Some(named) = &named
            && !ProtocolVersion::KNOWN_VERSIONS.contains(named)
        {
            return Err(unsupported_version(named));
        }
        let stands_alone = method == "server/discover"
            || handshake.is_none()
            || named.as_ref().is_some_and(|version| !version.has_initialize());
        if stands_alone && (named.is_none() || capabilities.is_none()) {
            return Err(missing_metadata(meta));
        }
        let version = named.or_else(|| handshake.map(|handshake| handshake.version.clone()));
        let capabilities = capabilities.or_else(|| handshake.map(|handshake| handshake.capabilities.clone()));
        let client = meta.0.0.get(CLIENT_INFO).and_then(client_name);
        let client = client.or_else(|| handshake.and_then(|handshake| handshake.client.clone()));
        let has_session = !stands_alone && version.as_ref().is_none_or(ProtocolVersion::has_initialize);
        if method != "server/discover" && matches!(self, Self::Undecided) {
            *self = Self::PerRequest;
        }
        Ok(RequestTerms { version, capabilities: capabilities.unwrap_or_default(), client, has_session })
    }

    /// Whether there was a handshake.
    pub(crate) fn is_handshake(&self) -> bool {
        matches!(self, Self::Handshake(_))
    }
}

/// The error for a request with an unknown version.
fn unsupported_version(named: &ProtocolVersion) -> ErrorData {
    let requested = one_line(named.as_str(), MAX_SHOWN_NAME);
    let data = json!({ "requested": requested, "supported": ProtocolVersion::KNOWN_VERSIONS });
    ErrorData::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", Some(data))
}

/// The error for a request that lacks required metadata.
pub(crate) fn missing_metadata(meta: &RequestMetaObject) -> ErrorData {
    let missing = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).join(", ");
    let text = format!("request _meta is missing or has malformed required fields: {missing}");
    ErrorData::invalid_params(text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(version: &str) -> RequestMetaObject {
        let mut meta = RequestMetaObject::default();
        meta.set_protocol_version(serde_json::from_value(version.into()).unwrap());
        meta.set_client_capabilities(ClientCapabilities::default());
        meta
    }

    fn handshake(lifecycle: &mut Lifecycle, version: &str) -> String {
        let protocol_version = serde_json::from_value(version.into()).unwrap();
        let params = HandshakeParams { protocol_version, capabilities: None, client_info: None };
        lifecycle.initialize(params).version.unwrap().to_string()
    }

    #[test]
    fn the_first_request_decides_the_era() {
        let none = RequestMetaObject::default();
        let mut lifecycle = Lifecycle::default();
        assert!(lifecycle.request_terms("ping", &none).unwrap().has_session);
        assert_eq!(lifecycle.request_terms("tools/list", &none).unwrap_err().code, ErrorCode::INVALID_PARAMS);
        let unknown = lifecycle.request_terms("tools/list", &meta("1999-01-01")).unwrap_err();
        assert_eq!(unknown.code, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION);
        assert_eq!(unknown.data.unwrap()["requested"], "1999-01-01");
        let long = lifecycle.request_terms("tools/list", &meta(&"9".repeat(900_000))).unwrap_err();
        assert!(serde_json::to_string(&long).unwrap().len() < 2 * MAX_SHOWN_NAME + 200);
        let found = lifecycle.request_terms("server/discover", &meta("2026-07-28")).unwrap();
        assert!(!found.has_session && matches!(lifecycle, Lifecycle::Undecided));
        let mut other = lifecycle.clone();
        assert!(!lifecycle.request_terms("tools/list", &meta("2026-07-28")).unwrap().has_session);
        assert!(matches!(lifecycle, Lifecycle::PerRequest));
        assert!(!lifecycle.request_terms("ping", &meta("2026-07-28")).unwrap().has_session);
        assert!(lifecycle.request_terms("tools/list", &none).is_err(), "each request needs its own metadata");

        assert_eq!(handshake(&mut other, "2025-06-18"), "2025-06-18");
        assert!(other.request_terms("tools/list", &none).unwrap().has_session);
        let modern = other.request_terms("tools/list", &meta("2026-07-28")).unwrap();
        assert_eq!((Era::from_version(modern.version.as_ref()), modern.has_session), (Era::Modern, false));
    }

    #[test]
    fn a_handshake_for_a_version_without_one_falls_back() {
        for asked in ["2026-07-28", "2999-01-01", "1999-01-01"] {
            assert_eq!(handshake(&mut Lifecycle::default(), asked), "2025-11-25");
        }
    }

    #[test]
    fn a_client_is_named_by_its_handshake_or_by_each_request() {
        let mut lifecycle = Lifecycle::default();
        let protocol_version = serde_json::from_value("2025-06-18".into()).unwrap();
        let client_info = Some(serde_json::json!({"name": "inspector", "version": "1.2"}));
        lifecycle.initialize(HandshakeParams { protocol_version, capabilities: None, client_info });
        let name =
            |lifecycle: &mut Lifecycle, meta| lifecycle.request_terms("tools/list", &meta).unwrap().client;
        assert_eq!(name(&mut lifecycle, RequestMetaObject::default()).as_deref(), Some("inspector 1.2"));
        for (info, expect) in [
            (serde_json::json!({"name": "desk"}), Some("desk")),
            (serde_json::json!({"name": 5}), None),
            (serde_json::json!("desk"), None),
        ] {
            let mut meta = meta("2026-07-28");
            meta.0.0.insert(CLIENT_INFO.to_owned(), info);
            assert_eq!(name(&mut Lifecycle::default(), meta).as_deref(), expect);
        }
    }
}
