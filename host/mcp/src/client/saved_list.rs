//! The last known list of tools of a server, saved between two starts. A client that lists the tools once, right after
//! the start, sees them. A saved list is imported like a fresh one, and only if the definition of the server is
//! unchanged. The era of the server is saved with it, so that the next start begins in it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::tool::canonical;
use toolbay_policy::NamedTool;
use toolbay_policy::mcp_server::McpServer;
use toolbay_policy::name::{PluginId, QualifiedName};
use toolbay_policy::permission::SourceLabel;

use super::bounds::{LOAD_LIST_TIMEOUT, MAX_LABEL, MAX_SAVED_LIST_BYTES, MAX_TOOLS};
use super::list::ServerList;
use super::tools;
use crate::protocol::bounded::BoundedList;
use crate::protocol::lifecycle::Era;
use crate::protocol::members::Members;

/// A saved list of tools.
#[derive(Serialize, Deserialize)]
struct SavedToolList<T> {
    key: String,
    version: Option<String>,
    /// Absent in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    era: Option<Era>,
    tools: T,
}

/// What was saved of a server at its last start.
#[derive(Debug)]
pub(super) struct SavedServer {
    pub(super) listed: ServerList,
    /// The version that the server reported.
    pub(super) version: Option<String>,
    /// The era to begin with; `None` if it must be found.
    pub(super) era: Option<Era>,
}

/// Hash of the definition of a server and of the version of this program, since another version may import a list
/// differently.
fn definition_key(server: &McpServer) -> String {
    let McpServer { transport: place, protocol, .. } = server;
    let settings = format!("{place:?} {protocol:?}");
    canonical::sha256(&json!([env!("CARGO_PKG_VERSION"), server.name.as_str(), settings])).to_string()
}

/// Encodes and redacts a list. The work grows with it. `None` if it is too long to be saved.
pub(super) fn encode(
    server: &McpServer,
    version: Option<&str>,
    era: Option<Era>,
    listed: &ServerList,
    connector: &dyn ServerConnector,
) -> Option<Vec<u8>> {
    let saved = SavedToolList {
        key: definition_key(server),
        version: version.map(str::to_owned),
        era,
        tools: &listed.items,
    };
    let text = serde_json::to_string(&saved).ok().filter(|text| text.len() <= MAX_SAVED_LIST_BYTES)?;
    Some(connector.redact(&text).into_owned().into_bytes())
        .filter(|bytes| bytes.len() <= MAX_SAVED_LIST_BYTES)
}

/// Decodes what was saved. `None` if the bytes are damaged, or the server is now defined differently.
pub(super) fn decode(server: &McpServer, bytes: &[u8]) -> Option<SavedServer> {
    if bytes.len() > MAX_SAVED_LIST_BYTES {
        return None;
    }
    let SavedToolList { key: of, version, era, tools } =
        serde_json::from_slice::<SavedToolList<BoundedList<'_, MAX_TOOLS>>>(bytes).ok()?;
    if of != definition_key(server) {
        return None;
    }
    let items = tools.items.into_iter().map(ToOwned::to_owned).collect();
    let version = version.filter(|version| version.chars().count() <= MAX_LABEL + 1);
    Some(SavedServer { listed: ServerList { items, ..ServerList::default() }, version, era })
}

/// Loads what was saved of a server.
pub(super) async fn load(server: &McpServer, connector: &dyn ServerConnector) -> Option<SavedServer> {
    let saved =
        tokio::time::timeout(LOAD_LIST_TIMEOUT, connector.load_tool_list(&server.name, MAX_SAVED_LIST_BYTES));
    decode(server, &saved.await.ok()??)
}

/// The tools of a server as they were last listed.
#[derive(Debug, Default)]
pub struct SavedTools {
    /// The names of all of them, as the server writes them.
    pub own_names: BTreeSet<String>,
    /// The tools that the policy imports.
    pub imported: Vec<SavedTool>,
}

/// A tool in the saved list of a server.
#[derive(Debug, Clone)]
pub struct SavedTool {
    server: PluginId,
    own_name: String,
    name: QualifiedName,
    /// The schema of its arguments as the server wrote it, which is not checked.
    pub input_schema: Option<Value>,
}

impl SavedTool {
    /// The tool with the names that the length of a name is judged by.
    #[must_use]
    pub fn named(&self) -> NamedTool<'_> {
        let source = SourceLabel { kind: "mcp", name: self.server.as_str() };
        NamedTool { name: self.name.as_str(), own_name: &self.own_name, source }
    }
}

/// Reads the tools in the saved list of a server. `None` if the bytes are damaged, or the server is now defined differently.
#[must_use]
pub fn saved_tools(server: &McpServer, bytes: &[u8]) -> Option<SavedTools> {
    let listed = decode(server, bytes)?.listed;
    let mut saved = SavedTools::default();
    for raw in &listed.items {
        let Some(own_name) = tools::listed_name(raw) else { continue };
        saved.own_names.insert(own_name.clone());
        if let Ok(name) = server.tool_name(&own_name)
            && server.includes_tool(&own_name)
        {
            let input_schema = Members::read_any(Some(&**raw), &["inputSchema"]).get("inputSchema");
            saved.imported.push(SavedTool { server: server.name.clone(), own_name, name, input_schema });
        }
    }
    Some(saved)
}

#[cfg(test)]
mod tests {
    use super::super::inbox::tests::NullConnector;
    use super::*;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;
    use std::time::Duration;
    use toolbay_policy::mcp_server::{HttpServerConfig, ProtocolEra, ServerToolSettings, ServerTransport};

    fn server(url: &str) -> McpServer {
        let endpoint = HttpServerConfig {
            url: url.to_owned(),
            headers: BTreeMap::new(),
            secrets: vec![],
            oauth: None,
            net_private: vec![],
            route: toolbay_policy::route::OutboundRoute::default(),
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
        let listed = ServerList { items, ..ServerList::default() };
        let here = server("http://127.0.0.1:1/");
        let bytes = encode(&here, Some("1.2"), Some(Era::Modern), &listed, &NullConnector).unwrap();
        let again = decode(&here, &bytes).unwrap();
        assert_eq!((again.version.as_deref(), again.era), (Some("1.2"), Some(Era::Modern)));
        let texts: Vec<&str> = again.listed.items.iter().map(|item| item.get()).collect();
        assert_eq!(texts, [r#"{"name": "a"}"#, "7", "\"[secret T]\""]);
        assert!(decode(&server("http://127.0.0.1:2/"), &bytes).is_none(), "another definition");
        let modern = McpServer { protocol: ProtocolEra::Modern, ..here.clone() };
        assert!(decode(&modern, &bytes).is_none(), "another definition");
        for damaged in [&bytes[..bytes.len() - 1], b"", b"null", b"{}", b"[]"] {
            assert!(decode(&here, damaged).is_none());
        }
        let long = ServerList {
            items: vec![raw(&format!("\"{}\"", "x".repeat(MAX_SAVED_LIST_BYTES)))],
            ..ServerList::default()
        };
        assert!(encode(&here, None, None, &long, &NullConnector).is_none());
        let unknown = String::from_utf8(encode(&here, None, None, &listed, &NullConnector).unwrap()).unwrap();
        assert!(!unknown.contains("era"), "as earlier versions wrote it: {unknown}");
        assert_eq!(decode(&here, unknown.as_bytes()).unwrap().era, None);
        let mut padded = bytes.clone();
        padded.resize(MAX_SAVED_LIST_BYTES + 1, b' ');
        assert!(decode(&here, &padded).is_none());
    }
}
