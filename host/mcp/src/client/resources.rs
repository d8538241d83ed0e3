//! Lists and reads the resources of one server. Their content is untrusted data. An invalid resource costs only itself.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{ErrorData, Resource, ResourceContents, ResourceTemplate};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, json};
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::output::untrusted::{self, UntrustedMark};
use toolbay_core::tool::content::{BlockBody, ContentBlock};
use toolbay_core::tool::definition_text;
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::tags;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_policy::mcp_server::McpServer;
use toolbay_policy::name::QualifiedName;
use toolbay_policy::output::Truncation;
use toolbay_policy::quantity;
use toolbay_policy::text::{one_line, remove_hidden};

use super::address::ResourceAddress;
use super::bounds::{
    MAX_DESCRIPTION, MAX_LABEL, MAX_PROBLEMS, MAX_RESOURCE_BYTES, MAX_RESOURCE_ITEM, MAX_RESOURCE_PARTS,
};
use super::link::{Link, LinkError};
use super::list::{self, ListKind};
use super::session::{ClientSession, RequestExtra};
use super::supervisor::Supervisor;
use super::tools;
use crate::protocol::bounded::{self, BoundedList};
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::message::{self, INVALID_PARAMS};
use crate::protocol::mirror;

/// Error code of legacy servers for an unknown resource.
const NOT_FOUND: i64 = -32002;
/// Longest media type, in bytes.
const MAX_MIME: usize = 255;

/// Resources and templates of a server, by the address that clients see.
#[derive(Debug, Default)]
pub(super) struct RemoteResources {
    pub(super) resources: BTreeMap<String, Resource>,
    pub(super) templates: BTreeMap<String, ResourceTemplate>,
    /// Problems in the lists.
    pub(super) problems: Vec<String>,
}

/// An item of either list. After the import, `uri` is the address that clients see.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceListItem {
    #[serde(alias = "uriTemplate")]
    uri: String,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    size: Option<u64>,
}

/// Imports an item. `None` if the policy excludes it.
///
/// # Errors
/// Why the item is left out. The message is not redacted yet.
fn import_item(
    raw: &RawValue,
    server: &McpServer,
    connector: &dyn ServerConnector,
) -> Result<Option<ResourceListItem>, String> {
    let unread = |why: String| format!("a resource is left out: {why}");
    bounded::check_size(raw, MAX_RESOURCE_ITEM).map_err(unread)?;
    let item: ResourceListItem = message::parse_object(raw)
        .map_err(|error| unread(one_line(&error.to_string(), MAX_UNREDACTED_CHARS)))?;
    if !server.includes_resource(&item.uri) {
        return Ok(None);
    }
    let uri = ResourceAddress::to_client_uri(server.name.as_str(), &item.uri).ok_or_else(|| {
        unread(format!("its URI `{}` is not safe", one_line(&item.uri, MAX_UNREDACTED_CHARS)))
    })?;
    let redact = definition_text::redact_fn(|text| connector.redact(text));
    if redact(&item.uri) != item.uri {
        return Err(unread("its URI contains the value of a secret".to_owned()));
    }
    let label = |text: String| definition_text::sanitize_label(&text, MAX_LABEL, &redact);
    Ok(Some(ResourceListItem {
        uri,
        name: Some(label(item.name.unwrap_or(item.uri))),
        title: item.title.map(label),
        description: item
            .description
            .map(|text| definition_text::sanitize_text(&text, MAX_DESCRIPTION, &redact)),
        mime_type: item.mime_type.filter(|kind| is_mime(kind)),
        size: item.size,
    }))
}

fn is_mime(kind: &str) -> bool {
    !kind.is_empty() && kind.len() <= MAX_MIME && kind.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Lists the resources and templates of a server.
async fn list_resources(
    session: &ClientSession,
    server: &McpServer,
    connector: &dyn ServerConnector,
) -> RemoteResources {
    let mut offered = RemoteResources::default();
    for list in [ListKind::Resources, ListKind::Templates] {
        let listed = match list::read_list(session, list).await {
            Ok(listed) => listed,
            // Many servers with resources do not implement templates.
            Err(LinkError::Rpc(_)) if list == ListKind::Templates => continue,
            Err(error) => {
                offered.problems.push(error.to_string());
                continue;
            }
        };
        offered.problems.extend(listed.problems);
        for raw in &listed.items {
            match (import_item(raw, server, connector), list) {
                (Err(problem), _) => offered.problems.push(problem),
                (Ok(None), _) => {}
                (Ok(Some(item)), ListKind::Templates) => {
                    let mut shown = ResourceTemplate::new(item.uri.clone(), item.name.unwrap_or_default());
                    (shown.title, shown.description) = (item.title, item.description);
                    shown.mime_type = item.mime_type;
                    offered.templates.insert(item.uri, shown);
                }
                (Ok(Some(item)), _) => {
                    let mut shown = Resource::new(item.uri.clone(), item.name.unwrap_or_default());
                    (shown.title, shown.description) = (item.title, item.description);
                    (shown.mime_type, shown.size) = (item.mime_type, item.size);
                    offered.resources.insert(item.uri, shown);
                }
            }
        }
    }
    offered
}

/// Replaces the URIs in a result by the addresses that clients see. A link with an unsafe URI becomes a text that says
/// so.
pub(super) fn rewrite_links(server: &str, content: &mut [ContentBlock]) {
    for block in content {
        match &mut block.body {
            BlockBody::Link(link) => match ResourceAddress::to_client_uri(server, &link.uri) {
                Some(uri) => link.uri = uri,
                None => {
                    let text = "[link removed: its URI is not safe]";
                    block.body = BlockBody::Text(text.to_owned());
                }
            },
            BlockBody::Embedded(resource) => {
                // The content stays. Only the link does not lead anywhere.
                resource.uri = ResourceAddress::to_client_uri(server, &resource.uri)
                    .unwrap_or_else(|| format!("mcp:{server}"));
            }
            BlockBody::Text(_) | BlockBody::Image(_) | BlockBody::Audio(_) => {}
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReadResult<'a> {
    #[serde(borrow)]
    contents: Option<BoundedList<'a, MAX_RESOURCE_PARTS>>,
    result_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResourceContents {
    uri: Option<String>,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// Converts the parts of a resource for clients.
///
/// # Errors
/// Why the result is invalid. The message is not redacted yet.
fn convert_contents(
    raw: &RawValue,
    asked: ResourceAddress<'_>,
    server: &McpServer,
    connector: &dyn ServerConnector,
) -> Result<Vec<ResourceContents>, String> {
    bounded::check_size(raw, MAX_RESOURCE_BYTES)?;
    let unread = |error: serde_json::Error| one_line(&error.to_string(), MAX_UNREDACTED_CHARS);
    let answer: RawReadResult<'_> = message::parse_object(raw).map_err(unread)?;
    if let Some(kind) = answer.result_type.filter(|kind| kind != "complete") {
        return Err(format!("unexpected result type `{}`", one_line(&kind, MAX_UNREDACTED_CHARS)));
    }
    let parts = answer.contents.ok_or("the result has no `contents`")?;
    if parts.truncated {
        return Err(format!("the resource has more than {MAX_RESOURCE_PARTS} parts"));
    }
    let label = format!("mcp:{}", server.name);
    let mark = UntrustedMark::new(&label, asked.server_uri);
    let marked = server.tool_defaults.results.untrusted != Some(false);
    let clean = |text: &str| {
        let text = connector.redact(text);
        let visible = remove_hidden(&text);
        match marked {
            true => mark.fit(&visible, usize::MAX, Truncation::Head, visible.chars().count(), ""),
            false => untrusted::neutralize(&visible).into_owned(),
        }
    };
    let part = |raw: &&RawValue| {
        let RawResourceContents { uri, mime_type, text, blob } =
            message::parse_object(raw).map_err(unread)?;
        let uri = ResourceAddress::to_client_uri(asked.server, uri.as_deref().unwrap_or(asked.server_uri));
        let uri = uri.ok_or("the URI of a part is not safe")?;
        let mime_type = mime_type.filter(|kind| is_mime(kind));
        Ok(match (text, blob) {
            (Some(text), _) => {
                ResourceContents::TextResourceContents { uri, mime_type, text: clean(&text), meta: None }
            }
            (None, Some(blob)) => {
                let blob = redact_base64(&blob, connector)?;
                ResourceContents::BlobResourceContents { uri, mime_type, blob, meta: None }
            }
            (None, None) => return Err("a part has neither `text` nor `blob`".to_owned()),
        })
    };
    parts.items.iter().map(part).collect()
}

/// Redacts base64 data that is UTF-8 text.
fn redact_base64(blob: &str, connector: &dyn ServerConnector) -> Result<String, String> {
    let bytes = STANDARD.decode(blob).map_err(|_| "a blob is not valid base64".to_owned())?;
    Ok(match std::str::from_utf8(&bytes) {
        Ok(text) => STANDARD.encode(&*connector.redact(text)),
        Err(_) => STANDARD.encode(&bytes),
    })
}

/// The tool that stands for reading a resource in permission rules: `read_resource`, with the argument `uri`.
pub(super) fn resource_read_tool(server: &McpServer) -> Option<(ToolDef, Arc<[Arc<str>]>)> {
    static SCHEMA: LazyLock<Option<Schema>> = LazyLock::new(|| Schema::input(r#"{"type":"object"}"#).ok());
    let name = QualifiedName::from_mcp_tool(&server.name, "read_resource").ok()?;
    let source = ToolSource::Mcp { server: server.name.as_str().into(), version: None };
    let def = ToolDef {
        traits: ToolTraits { read_only: true, untrusted_output: true, ..ToolTraits::default() },
        ..ToolDef::new(name, "Reads a resource of the server.", SCHEMA.clone()?, source)
    };
    let labels = tags::derive(&def, Some(tools::server_effects(server)), &[]);
    Some((def, labels))
}

impl Supervisor {
    /// Reads the lists of resources and templates. A failure does not affect the tools.
    pub(super) async fn refresh_resources(&self, session: &ClientSession) {
        let (server, connector) = (&self.server, &*self.context.connector);
        let wanted = server.resources.as_ref().is_none_or(|some| !some.is_empty());
        let mut offered = RemoteResources::default();
        if wanted && session.negotiated.has_resources {
            let reading = self::list_resources(session, server, connector);
            match tokio::time::timeout(server.start_timeout, reading).await {
                Ok(read) => offered = read,
                Err(_) => offered.problems.push("listing its resources timed out".to_owned()),
            }
        }
        offered.problems.truncate(MAX_PROBLEMS);
        for problem in &mut offered.problems {
            *problem = self.sanitize(problem);
        }
        if self.stop.is_cancelled() || session.inbox.closure.is_closed() {
            return;
        }
        let mut now = self.resources.lock();
        if offered.problems != now.problems {
            for problem in &offered.problems {
                tracing::warn!(server = self.name(), "{problem}");
            }
        }
        let same = now.resources == offered.resources && now.templates == offered.templates;
        *now = Arc::new(offered);
        drop(now);
        if !same {
            self.context.changes.send_modify(|count| *count += 1);
        }
    }

    /// The last known resources and templates.
    pub(super) fn resources(&self) -> Arc<RemoteResources> {
        Arc::clone(&self.resources.lock())
    }

    /// Reads a resource of the server.
    ///
    /// # Errors
    /// Why the resource could not be read, or `None` if it does not exist.
    pub(super) async fn read_resource(
        &self,
        asked: ResourceAddress<'_>,
    ) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let most = self.server.timeout;
        match tokio::time::timeout(most, self.request_resource(asked)).await {
            Ok(read) => read,
            Err(_) => Err(self.read_error(&format!("no response within {}", quantity::show_duration(most)))),
        }
    }

    async fn request_resource(
        &self,
        asked: ResourceAddress<'_>,
    ) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let session = self.session(self.server.timeout).await;
        let session =
            session.map_err(|failure| Some(ErrorData::internal_error(failure.to_string(), None)))?;
        if !session.negotiated.has_resources {
            return Err(None);
        }
        tracing::info!(server = self.name(), "a client reads a resource");
        let params: Map<_, _> = [("uri".to_owned(), json!(asked.server_uri))].into_iter().collect();
        let mut headers = Vec::new();
        if session.negotiated.modern && matches!(session.link, Link::Http(_)) {
            headers.push(("mcp-name".to_owned(), mirror::encode_value(asked.server_uri)));
        }
        let extra = RequestExtra { headers, ..RequestExtra::default() };
        match session.request("resources/read", params, extra).await {
            Ok(raw) => convert_contents(&raw, asked, &self.server, &*self.context.connector)
                .map_err(|why| self.read_error(&why)),
            Err(LinkError::Rpc(error)) if matches!(error.code, NOT_FOUND | INVALID_PARAMS) => Err(None),
            Err(error) => Err(self.read_error(&error.to_string())),
        }
    }

    fn read_error(&self, why: &str) -> Option<ErrorData> {
        let text =
            format!("cannot read a resource of the MCP server `{}`: {}", self.name(), self.sanitize(why));
        Some(ErrorData::internal_error(text, None))
    }
}
