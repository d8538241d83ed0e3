//! The last known list of tools of a server, saved between two starts. A client that lists the tools once, right after
//! the start, sees them. A saved list is imported like a fresh one, and only if the definition of the server is
//! unchanged.

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::tool::canonical;
use toolbay_policy::mcp_server::McpServer;

use super::bounds::{LOAD_LIST_TIMEOUT, MAX_LABEL, MAX_SAVED_LIST_BYTES, MAX_TOOLS};
use super::list::ServerList;
use crate::protocol::bounded::BoundedList;

/// A saved list of tools.
#[derive(Serialize, Deserialize)]
struct SavedToolList<T> {
    key: String,
    version: Option<String>,
    tools: T,
}

/// Hash of the definition of a server and of the version of this program, since another version may import a list
/// differently.
fn definition_key(server: &McpServer) -> String {
    let McpServer { transport: place, protocol, .. } = server;
    let told = format!("{place:?} {protocol:?}");
    canonical::sha256(&json!([env!("CARGO_PKG_VERSION"), server.name.as_str(), told])).to_string()
}

/// Encodes and redacts a list. `None` if it is too long to be saved.
pub(super) fn encode(
    server: &McpServer,
    version: Option<&str>,
    listed: &ServerList,
    connector: &dyn ServerConnector,
) -> Option<Vec<u8>> {
    let kept = SavedToolList {
        key: definition_key(server),
        version: version.map(str::to_owned),
        tools: &listed.items,
    };
    let text = serde_json::to_string(&kept).ok()?;
    Some(connector.redact(&text).into_owned().into_bytes())
        .filter(|bytes| bytes.len() <= MAX_SAVED_LIST_BYTES)
}

/// Decodes a saved list and the version of the server. `None` if the bytes are damaged, or the server is now defined
/// differently.
pub(super) fn decode(server: &McpServer, bytes: &[u8]) -> Option<(ServerList, Option<String>)> {
    if bytes.len() > MAX_SAVED_LIST_BYTES {
        return None;
    }
    let SavedToolList { key: of, version, tools } =
        serde_json::from_slice::<SavedToolList<BoundedList<'_, MAX_TOOLS>>>(bytes).ok()?;
    if of != definition_key(server) {
        return None;
    }
    let items = tools.items.into_iter().map(ToOwned::to_owned).collect();
    let version = version.filter(|version| version.chars().count() <= MAX_LABEL + 1);
    Some((ServerList { items, problems: Vec::new() }, version))
}

/// Loads the saved list of a server.
pub(super) async fn load(
    server: &McpServer,
    connector: &dyn ServerConnector,
) -> Option<(ServerList, Option<String>)> {
    let kept =
        tokio::time::timeout(LOAD_LIST_TIMEOUT, connector.load_tool_list(&server.name, MAX_SAVED_LIST_BYTES));
    decode(server, &kept.await.ok()??)
}

#[cfg(test)]
mod tests {
    use super::super::inbox::tests::NullConnector;
    use super::*;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;
    use std::time::Duration;
    use toolbay_policy::mcp_server::{HttpServerConfig, ProtocolEra, ServerToolSettings, ServerTransport};
    use toolbay_policy::name::PluginId;

    fn server(url: &str) -> McpServer {
        let endpoint = HttpServerConfig {
            url: url.to_owned(),
            headers: BTreeMap::new(),
            secrets: vec![],
            oauth: None,
            net_private: vec![],
        };
        McpServer {
            name: PluginId::new("s").unwrap(),
            transport: ServerTransport::Http(Box::new(endpoint)),
            protocol: ProtocolEra::Auto,
            tools: None,
            exclude: std::collections::BTreeSet::new(),
            resources: None,
            timeout: Duration::from_secs(1),
            start_timeout: Duration::from_secs(1),
            tool_defaults: ServerToolSettings::default(),
            tool_overrides: BTreeMap::new(),
        }
    }

    #[test]
    fn a_saved_list_is_bounded_and_valid_for_one_definition() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let items = vec![raw(r#"{"name": "a"}"#), raw("7"), raw("\"canary-secret\"")];
        let listed = ServerList { items, problems: vec![] };
        let here = server("http://127.0.0.1:1/");
        let bytes = encode(&here, Some("1.2"), &listed, &NullConnector).unwrap();
        let (again, version) = decode(&here, &bytes).unwrap();
        assert_eq!(version.as_deref(), Some("1.2"));
        let texts: Vec<&str> = again.items.iter().map(|item| item.get()).collect();
        assert_eq!(texts, [r#"{"name": "a"}"#, "7", "\"[secret T]\""]);
        assert!(decode(&server("http://127.0.0.1:2/"), &bytes).is_none(), "another definition");
        let modern = McpServer { protocol: ProtocolEra::Modern, ..here.clone() };
        assert!(decode(&modern, &bytes).is_none(), "another definition");
        for damaged in [&bytes[..bytes.len() - 1], b"", b"null", b"{}", b"[]"] {
            assert!(decode(&here, damaged).is_none());
        }
        let long = ServerList {
            items: vec![raw(&format!("\"{}\"", "x".repeat(MAX_SAVED_LIST_BYTES)))],
            problems: vec![],
        };
        assert!(encode(&here, None, &long, &NullConnector).is_none());
        let mut padded = bytes.clone();
        padded.resize(MAX_SAVED_LIST_BYTES + 1, b' ');
        assert!(decode(&here, &padded).is_none());
    }
}
