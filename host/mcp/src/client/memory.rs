//! The last known list of a server, kept by the host between two starts: a client that lists once, at once, sees its tools.
//! It is read like a fresh list, and only while the server is defined as it was then.

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolbay_core::call::outside::Outside;
use toolbay_core::tool::canonical;
use toolbay_policy::mcp_server::McpServer;

use super::bounds::{MAX_KEPT_LIST, MAX_LABEL, MAX_TOOLS, RECALL_WAIT};
use super::list::Listed;
use crate::protocol::bounded::First;

/// A list of tools as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept<T> {
    key: String,
    version: Option<String>,
    tools: T,
}

/// Another one for each definition of a server, and for each version of this program, which may read a list otherwise.
fn key(server: &McpServer) -> String {
    let McpServer { place, protocol, .. } = server;
    let told = format!("{place:?} {protocol:?}");
    canonical::sha256(&json!([env!("CARGO_PKG_VERSION"), server.name.as_str(), told])).to_string()
}

/// A list as bytes to be kept, without values of secrets; `None`: it is too long for that.
pub(super) fn written(
    server: &McpServer,
    version: Option<&str>,
    listed: &Listed,
    outside: &dyn Outside,
) -> Option<Vec<u8>> {
    let kept = Kept { key: key(server), version: version.map(str::to_owned), tools: &listed.items };
    let text = serde_json::to_string(&kept).ok()?;
    Some(outside.redacted(&text).into_owned().into_bytes()).filter(|bytes| bytes.len() <= MAX_KEPT_LIST)
}

/// Reads such bytes: the list, and the version that the server claimed. `None`: they are damaged, or of a server that is
/// defined otherwise.
pub(super) fn read(server: &McpServer, bytes: &[u8]) -> Option<(Listed, Option<String>)> {
    if bytes.len() > MAX_KEPT_LIST {
        return None;
    }
    let Kept { key: of, version, tools } =
        serde_json::from_slice::<Kept<First<'_, MAX_TOOLS>>>(bytes).ok()?;
    if of != key(server) {
        return None;
    }
    let items = tools.items.into_iter().map(ToOwned::to_owned).collect();
    let version = version.filter(|version| version.chars().count() <= MAX_LABEL + 1);
    Some((Listed { items, problems: Vec::new() }, version))
}

/// What the host kept of a server's list.
pub(super) async fn recall(server: &McpServer, outside: &dyn Outside) -> Option<(Listed, Option<String>)> {
    let kept = tokio::time::timeout(RECALL_WAIT, outside.recall(&server.name, MAX_KEPT_LIST));
    read(server, &kept.await.ok()??)
}

#[cfg(test)]
mod tests {
    use super::super::inbox::tests::Nowhere;
    use super::*;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;
    use std::time::Duration;
    use toolbay_policy::mcp_server::{Endpoint, Place, Protocol, ToolRules};
    use toolbay_policy::name::PluginId;

    fn server(url: &str) -> McpServer {
        let endpoint =
            Endpoint { url: url.to_owned(), headers: BTreeMap::new(), secrets: vec![], net_private: vec![] };
        McpServer {
            name: PluginId::new("s").unwrap(),
            place: Place::Http(Box::new(endpoint)),
            protocol: Protocol::Auto,
            tools: None,
            exclude: std::collections::BTreeSet::new(),
            resources: None,
            timeout: Duration::from_secs(1),
            start_timeout: Duration::from_secs(1),
            rules: ToolRules::default(),
            of_tools: BTreeMap::new(),
        }
    }

    #[test]
    fn a_list_is_of_one_definition_and_bounded() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let items = vec![raw(r#"{"name": "a"}"#), raw("7"), raw("\"canary-secret\"")];
        let listed = Listed { items, problems: vec![] };
        let here = server("http://127.0.0.1:1/");
        let bytes = written(&here, Some("1.2"), &listed, &Nowhere).unwrap();
        let (again, version) = read(&here, &bytes).unwrap();
        assert_eq!(version.as_deref(), Some("1.2"));
        let texts: Vec<&str> = again.items.iter().map(|item| item.get()).collect();
        assert_eq!(texts, [r#"{"name": "a"}"#, "7", "\"[secret T]\""]);
        assert!(read(&server("http://127.0.0.1:2/"), &bytes).is_none(), "another definition");
        let modern = McpServer { protocol: Protocol::Modern, ..here.clone() };
        assert!(read(&modern, &bytes).is_none(), "another definition");
        for damaged in [&bytes[..bytes.len() - 1], b"", b"null", b"{}", b"[]"] {
            assert!(read(&here, damaged).is_none());
        }
        let long =
            Listed { items: vec![raw(&format!("\"{}\"", "x".repeat(MAX_KEPT_LIST)))], problems: vec![] };
        assert!(written(&here, None, &long, &Nowhere).is_none());
        let mut padded = bytes.clone();
        padded.resize(MAX_KEPT_LIST + 1, b' ');
        assert!(read(&here, &padded).is_none());
    }
}
