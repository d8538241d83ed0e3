//! The resources of one server: its lists, and what is read of them. What a server says here is data, as everywhere; what
//! is wrong with one resource costs that one.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{ErrorData, Resource, ResourceContents, ResourceTemplate};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, json};
use toolbay_core::call::outside::Outside;
use toolbay_core::output::untrusted::{self, Mark};
use toolbay_core::tool::content::{BlockBody, ContentBlock};
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::tags;
use toolbay_core::tool::wording;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_policy::mcp_server::McpServer;
use toolbay_policy::name::QualifiedName;
use toolbay_policy::output::Truncation;
use toolbay_policy::quantity;
use toolbay_policy::text::{one_line, seen};

use super::address::Address;
use super::bounds::{
    MAX_CONTENTS, MAX_DESCRIPTION, MAX_LABEL, MAX_PROBLEMS, MAX_RESOURCE_BYTES, MAX_RESOURCE_ITEM,
};
use super::link::{Link, LinkError};
use super::list::{self, List};
use super::session::{Extra, Session};
use super::supervisor::Supervisor;
use super::tools;
use crate::protocol::bounded::{self, First};
use crate::protocol::bounds::MAX_HEARD;
use crate::protocol::message::{self, INVALID_PARAMS};
use crate::protocol::mirror;

/// What servers of before 2026-07-28 answer when they have no such resource.
const NOT_FOUND: i64 = -32002;
/// Longest media type, in bytes.
const MAX_MIME: usize = 255;

/// What a server offers beside tools, by the addresses under which clients see it.
#[derive(Debug, Default)]
pub(super) struct Offered {
    pub(super) resources: BTreeMap<String, Resource>,
    pub(super) templates: BTreeMap<String, ResourceTemplate>,
    /// What is wrong with the lists.
    pub(super) problems: Vec<String>,
}

/// An item of either list; what one does not have is absent. Also as clients see it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    #[serde(alias = "uriTemplate")]
    uri: String,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    size: Option<u64>,
}

/// Takes an item; `None`: the policy leaves it out.
///
/// # Errors
/// Why it cannot be taken; values of secrets are still to be taken out of it.
fn take(raw: &RawValue, server: &McpServer, outside: &dyn Outside) -> Result<Option<Item>, String> {
    let unread = |why: String| format!("a resource that is left out: {why}");
    bounded::small(raw, MAX_RESOURCE_ITEM).map_err(unread)?;
    let item: Item = message::object(raw).map_err(|error| unread(one_line(&error.to_string(), MAX_HEARD)))?;
    if !server.takes_resource(&item.uri) {
        return Ok(None);
    }
    let uri = Address::of(server.name.as_str(), &item.uri)
        .ok_or_else(|| unread(format!("its address `{}` is not sound", one_line(&item.uri, MAX_HEARD))))?;
    let redact = wording::redacting(|text| outside.redacted(text));
    if redact(&item.uri) != item.uri {
        return Err(unread("its address has the value of a secret in it".to_owned()));
    }
    let label = |text: String| wording::label(&text, MAX_LABEL, &redact);
    Ok(Some(Item {
        uri,
        name: Some(label(item.name.unwrap_or(item.uri))),
        title: item.title.map(label),
        description: item.description.map(|text| wording::text(&text, MAX_DESCRIPTION, &redact)),
        mime_type: item.mime_type.filter(|kind| is_mime(kind)),
        size: item.size,
    }))
}

fn is_mime(kind: &str) -> bool {
    !kind.is_empty() && kind.len() <= MAX_MIME && kind.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Reads what a server offers.
async fn offered(session: &Session, server: &McpServer, outside: &dyn Outside) -> Offered {
    let mut offered = Offered::default();
    for list in [List::Resources, List::Templates] {
        let listed = match list::read(session, list).await {
            Ok(listed) => listed,
            // Many servers have resources and no templates.
            Err(LinkError::Rpc(_)) if list == List::Templates => continue,
            Err(error) => {
                offered.problems.push(error.to_string());
                continue;
            }
        };
        offered.problems.extend(listed.problems);
        for raw in &listed.items {
            match (take(raw, server, outside), list) {
                (Err(problem), _) => offered.problems.push(problem),
                (Ok(None), _) => {}
                (Ok(Some(item)), List::Templates) => {
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

/// Puts the addresses of clients in place of those of a server in a result. A link that clients could take for another
/// one becomes a text that says so.
pub(super) fn rename(server: &str, content: &mut [ContentBlock]) {
    for block in content {
        match &mut block.body {
            BlockBody::Link(link) => match Address::of(server, &link.uri) {
                Some(uri) => link.uri = uri,
                None => {
                    let text = "[a link that is left out: its address is not sound]";
                    block.body = BlockBody::Text(text.to_owned());
                }
            },
            BlockBody::Embedded(resource) => {
                // What is in it is there; only its address leads nowhere.
                resource.uri = Address::of(server, &resource.uri).unwrap_or_else(|| format!("mcp:{server}"));
            }
            BlockBody::Text(_) | BlockBody::Image(_) | BlockBody::Audio(_) => {}
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(borrow)]
    contents: Option<First<'a, MAX_CONTENTS>>,
    result_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    uri: Option<String>,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// The parts of a resource that was read, as clients get them.
///
/// # Errors
/// What is wrong with it; values of secrets are still to be taken out of it.
fn contents(
    raw: &RawValue,
    asked: Address<'_>,
    server: &McpServer,
    outside: &dyn Outside,
) -> Result<Vec<ResourceContents>, String> {
    bounded::small(raw, MAX_RESOURCE_BYTES)?;
    let unread = |error: serde_json::Error| one_line(&error.to_string(), MAX_HEARD);
    let answer: Answer<'_> = message::object(raw).map_err(unread)?;
    if let Some(kind) = answer.result_type.filter(|kind| kind != "complete") {
        return Err(format!("a result of the type `{}`", one_line(&kind, MAX_HEARD)));
    }
    let parts = answer.contents.ok_or("a result without `contents`")?;
    if parts.more {
        return Err(format!("a resource of more than {MAX_CONTENTS} parts"));
    }
    let label = format!("mcp:{}", server.name);
    let mark = Mark::new(&label, asked.own);
    let marked = server.rules.results.untrusted != Some(false);
    let clean = |text: &str| {
        let text = outside.redacted(text);
        let seen = seen(&text);
        match marked {
            true => mark.fit(&seen, usize::MAX, Truncation::Head, seen.chars().count(), ""),
            false => untrusted::neutral(&seen).into_owned(),
        }
    };
    let part = |raw: &&RawValue| {
        let Part { uri, mime_type, text, blob } = message::object(raw).map_err(unread)?;
        let uri = Address::of(asked.server, uri.as_deref().unwrap_or(asked.own));
        let uri = uri.ok_or("a part whose address is not sound")?;
        let mime_type = mime_type.filter(|kind| is_mime(kind));
        Ok(match (text, blob) {
            (Some(text), _) => {
                ResourceContents::TextResourceContents { uri, mime_type, text: clean(&text), meta: None }
            }
            (None, Some(blob)) => {
                let blob = bytes(&blob, outside)?;
                ResourceContents::BlobResourceContents { uri, mime_type, blob, meta: None }
            }
            (None, None) => return Err("a part without `text` and `blob`".to_owned()),
        })
    };
    parts.items.iter().map(part).collect()
}

/// Bytes in base64, without values of secrets where they are a text.
fn bytes(blob: &str, outside: &dyn Outside) -> Result<String, String> {
    let bytes = STANDARD.decode(blob).map_err(|_| "bytes that are not in base64".to_owned())?;
    Ok(match std::str::from_utf8(&bytes) {
        Ok(text) => STANDARD.encode(&*outside.redacted(text)),
        Err(_) => STANDARD.encode(&bytes),
    })
}

/// What rules see of reading a resource of a server: a tool of it by the name `read_resource`, with the argument `uri`.
pub(super) fn as_tool(server: &McpServer) -> Option<(ToolDef, Arc<[Arc<str>]>)> {
    static SCHEMA: LazyLock<Option<Schema>> = LazyLock::new(|| Schema::input(r#"{"type":"object"}"#).ok());
    let name = QualifiedName::of_mcp(&server.name, "read_resource").ok()?;
    let source = ToolSource::Mcp { server: server.name.as_str().into(), version: None };
    let def = ToolDef {
        traits: ToolTraits { read_only: true, untrusted_output: true, ..ToolTraits::default() },
        ..ToolDef::new(name, "Reads a resource of the server.", SCHEMA.clone()?, source)
    };
    let labels = tags::derive(&def, Some(tools::effects(server)), &[]);
    Some((def, labels))
}

impl Supervisor {
    /// Reads what the server offers beside tools; what is wrong with that costs no tool.
    pub(super) async fn refresh_resources(&self, session: &Session) {
        let (server, outside) = (&self.server, &*self.ports.outside);
        let wanted = server.resources.as_ref().is_none_or(|some| !some.is_empty());
        let mut offered = Offered::default();
        if wanted && session.known.has_resources {
            let reading = self::offered(session, server, outside);
            match tokio::time::timeout(server.start_timeout, reading).await {
                Ok(read) => offered = read,
                Err(_) => offered.problems.push("its resources could not be listed in time".to_owned()),
            }
        }
        offered.problems.truncate(MAX_PROBLEMS);
        for problem in &mut offered.problems {
            *problem = self.heard(problem);
        }
        if self.stop.is_cancelled() || session.inbox.ending.is_over() {
            return;
        }
        let mut now = self.offered.lock();
        if offered.problems != now.problems {
            for problem in &offered.problems {
                tracing::warn!(server = self.name(), "{problem}");
            }
        }
        let same = now.resources == offered.resources && now.templates == offered.templates;
        *now = Arc::new(offered);
        drop(now);
        if !same {
            self.ports.changes.send_modify(|count| *count += 1);
        }
    }

    /// What the server offers beside tools, as it was last known.
    pub(super) fn offered(&self) -> Arc<Offered> {
        Arc::clone(&self.offered.lock())
    }

    /// Reads one of its resources.
    ///
    /// # Errors
    /// Why it could not be read; `None`: there is no such resource.
    pub(super) async fn read(&self, asked: Address<'_>) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let most = self.server.timeout;
        match tokio::time::timeout(most, self.ask_for(asked)).await {
            Ok(read) => read,
            Err(_) => {
                Err(self.unread(&format!("it did not answer within {}", quantity::show_duration(most))))
            }
        }
    }

    async fn ask_for(&self, asked: Address<'_>) -> Result<Vec<ResourceContents>, Option<ErrorData>> {
        let session = self.session(self.server.timeout).await;
        let session =
            session.map_err(|failure| Some(ErrorData::internal_error(failure.to_string(), None)))?;
        if !session.known.has_resources {
            return Err(None);
        }
        tracing::info!(server = self.name(), "a client reads a resource");
        let params: Map<_, _> = [("uri".to_owned(), json!(asked.own))].into_iter().collect();
        let mut headers = Vec::new();
        if session.known.modern && matches!(session.link, Link::Web(_)) {
            headers.push(("mcp-name".to_owned(), mirror::encode(asked.own)));
        }
        let extra = Extra { headers, ..Extra::default() };
        match session.ask("resources/read", params, extra).await {
            Ok(raw) => {
                contents(&raw, asked, &self.server, &*self.ports.outside).map_err(|why| self.unread(&why))
            }
            Err(LinkError::Rpc(error)) if matches!(error.code, NOT_FOUND | INVALID_PARAMS) => Err(None),
            Err(error) => Err(self.unread(&error.to_string())),
        }
    }

    fn unread(&self, why: &str) -> Option<ErrorData> {
        let text =
            format!("a resource of the MCP server `{}` could not be read: {}", self.name(), self.heard(why));
        Some(ErrorData::internal_error(text, None))
    }
}
