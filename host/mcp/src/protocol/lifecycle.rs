//! How a client begins in either era, and what each of its requests may rely on.
//!
//! Up to 2025-11-25 a handshake (`initialize`) settles version and capabilities for all requests that follow. From
//! 2026-07-28 on each request names both in its `_meta`. A connection belongs to the era of the first request that is
//! neither `ping` nor `server/discover`, which a client may send before it decides.

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ErrorData, InitializeRequestParams, ProtocolVersion, RequestMetaObject,
};

/// Which half of MCP's history a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Up to 2025-11-25: a handshake, objects only.
    Legacy,
    /// From 2026-07-28 on: stateless, any JSON value, caching hints.
    Modern,
}

impl Era {
    /// The era of a protocol version; without one nothing is settled yet, as before a handshake.
    pub(crate) fn of(version: Option<&ProtocolVersion>) -> Self {
        match version {
            Some(version) if !version.has_initialize() => Self::Modern,
            Some(_) | None => Self::Legacy,
        }
    }
}

/// What a client has settled on.
#[derive(Debug, Clone, Default)]
pub(crate) enum Lifecycle {
    /// Nothing yet.
    #[default]
    Undecided,
    /// The client shook hands.
    Handshake(Arc<Handshake>),
    /// Each request speaks for itself.
    PerRequest,
}

/// The outcome of `initialize`.
#[derive(Debug)]
pub(crate) struct Handshake {
    version: ProtocolVersion,
    capabilities: ClientCapabilities,
}

/// What a request may rely on.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) capabilities: ClientCapabilities,
    /// Whether methods that only clients with a handshake know may be called.
    pub(crate) has_session: bool,
}

impl Lifecycle {
    /// Settles on what `initialize` asks for: the version itself, or the newest one that still has a handshake.
    pub(crate) fn initialize(&mut self, params: InitializeRequestParams) -> Terms {
        let asked = params.protocol_version;
        let known = asked.has_initialize() && ProtocolVersion::KNOWN_VERSIONS.contains(&asked);
        let version = if known { asked } else { ProtocolVersion::LATEST_WITH_INITIALIZE };
        let capabilities = params.capabilities;
        let terms =
            Terms { version: Some(version.clone()), capabilities: capabilities.clone(), has_session: true };
        *self = Self::Handshake(Arc::new(Handshake { version, capabilities }));
        terms
    }

    /// What a request other than `initialize` may rely on.
    ///
    /// # Errors
    /// It names a version that nobody here speaks, or does not say of itself what it has to.
    pub(crate) fn admit(&mut self, method: &str, meta: &RequestMetaObject) -> Result<Terms, ErrorData> {
        let handshake = match self {
            Self::Undecided if method == "ping" && meta.protocol_version().is_none() => {
                return Ok(Terms { has_session: true, ..Terms::default() });
            }
            Self::Handshake(handshake) => Some(&**handshake),
            Self::Undecided | Self::PerRequest => None,
        };
        let named = meta.protocol_version();
        let capabilities = meta.client_capabilities();
        if let Some(named) = &named
            && !ProtocolVersion::KNOWN_VERSIONS.contains(named)
        {
            return Err(ErrorData::unsupported_protocol_version(
                named.clone(),
                ProtocolVersion::KNOWN_VERSIONS,
            ));
        }
        let stands_alone = method == "server/discover"
            || handshake.is_none()
            || named.as_ref().is_some_and(|version| !version.has_initialize());
        if stands_alone && (named.is_none() || capabilities.is_none()) {
            return Err(missing_metadata(meta));
        }
        let version = named.or_else(|| handshake.map(|handshake| handshake.version.clone()));
        let capabilities = capabilities.or_else(|| handshake.map(|handshake| handshake.capabilities.clone()));
        let has_session = !stands_alone && version.as_ref().is_none_or(ProtocolVersion::has_initialize);
        if method != "server/discover" && matches!(self, Self::Undecided) {
            *self = Self::PerRequest;
        }
        Ok(Terms { version, capabilities: capabilities.unwrap_or_default(), has_session })
    }

    /// Whether there was a handshake.
    pub(crate) fn is_handshake(&self) -> bool {
        matches!(self, Self::Handshake(_))
    }
}

/// What is answered to a request that does not say of itself what it has to.
pub(crate) fn missing_metadata(meta: &RequestMetaObject) -> ErrorData {
    let missing = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).join(", ");
    let text = format!("request _meta is missing or has malformed required fields: {missing}");
    ErrorData::invalid_params(text, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{ErrorCode, Implementation};

    fn meta(version: &str) -> RequestMetaObject {
        let mut meta = RequestMetaObject::default();
        meta.set_protocol_version(serde_json::from_value(version.into()).unwrap());
        meta.set_client_capabilities(ClientCapabilities::default());
        meta
    }

    fn shake(lifecycle: &mut Lifecycle, version: &str) -> String {
        let info = Implementation::new("t", "0");
        let mut params = InitializeRequestParams::new(ClientCapabilities::default(), info);
        params.protocol_version = serde_json::from_value(version.into()).unwrap();
        lifecycle.initialize(params).version.unwrap().to_string()
    }

    #[test]
    fn the_first_request_decides_the_era() {
        let none = RequestMetaObject::default();
        let mut lifecycle = Lifecycle::default();
        assert!(lifecycle.admit("ping", &none).unwrap().has_session);
        assert_eq!(lifecycle.admit("tools/list", &none).unwrap_err().code, ErrorCode::INVALID_PARAMS);
        let unknown = lifecycle.admit("tools/list", &meta("1999-01-01")).unwrap_err();
        assert_eq!(unknown.code, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION);
        let found = lifecycle.admit("server/discover", &meta("2026-07-28")).unwrap();
        assert!(!found.has_session && matches!(lifecycle, Lifecycle::Undecided));
        let mut other = lifecycle.clone();
        assert!(!lifecycle.admit("tools/list", &meta("2026-07-28")).unwrap().has_session);
        assert!(matches!(lifecycle, Lifecycle::PerRequest));
        assert!(!lifecycle.admit("ping", &meta("2026-07-28")).unwrap().has_session);
        assert!(lifecycle.admit("tools/list", &none).is_err(), "each request speaks for itself");

        assert_eq!(shake(&mut other, "2025-06-18"), "2025-06-18");
        assert!(other.admit("tools/list", &none).unwrap().has_session);
        let modern = other.admit("tools/list", &meta("2026-07-28")).unwrap();
        assert_eq!((Era::of(modern.version.as_ref()), modern.has_session), (Era::Modern, false));
    }

    #[test]
    fn a_handshake_for_a_version_without_one_falls_back() {
        for asked in ["2026-07-28", "2999-01-01", "1999-01-01"] {
            assert_eq!(shake(&mut Lifecycle::default(), asked), "2025-11-25");
        }
    }
}
