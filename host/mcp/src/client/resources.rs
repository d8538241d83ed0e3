//! Imports the resources of one server: its lists, and their content, which is untrusted data. An invalid resource costs only itself.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;
use rmcp::model::{Annotations, Resource, ResourceContents, ResourceTemplate, Role};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::neutral_text;
use toolbay_core::output::base64;
use toolbay_core::output::untrusted::UntrustedMark;
use toolbay_core::tool::content::{self, BlockBody, ContentBlock, ResourceLink};
use toolbay_core::tool::definition_text;
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::tags;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::hidden_chars::remove_hidden;
use toolbay_policy::mcp_server::McpServer;
use toolbay_policy::name::QualifiedName;
use toolbay_policy::output::Truncation;

use super::address::ResourceAddress;
use super::bounds::{
    MAX_DESCRIPTION, MAX_LABEL, MAX_RESOURCE_BYTES, MAX_RESOURCE_ITEM, MAX_RESOURCE_PARTS, MAX_RESOURCES,
};
use super::link_request::LinkError;
use super::list::{self, ListKind, ServerList};
use super::result::block::read_annotations;
use super::session::ClientSession;
use super::tools;
use crate::protocol::bounded::{self, BoundedList};
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::members::Members;
use crate::protocol::message;
use crate::protocol::uri::{is_same_uri, spellings};

/// Longest media type, in bytes.
const MAX_MIME: usize = 255;
/// Longest URI in the note for a removed link, in characters.
const MAX_REMOVED_URI: usize = 300;
/// Longest date in annotations, in bytes. ISO 8601 takes about 30.
const MAX_DATE: usize = 64;

/// Resources and templates of a server, by the address that clients see.
#[derive(Debug, Default)]
pub(super) struct RemoteResources {
    pub(super) resources: BTreeMap<String, Resource>,
    pub(super) templates: BTreeMap<String, ResourceTemplate>,
    /// Problems in the lists.
    pub(super) problems: Vec<String>,
}

impl RemoteResources {
    /// The listed address that a client means by another percent-encoding of it, since some clients encode addresses.
    /// `None` if the address is listed as it is, if none equals it, as with one from a template, or if several do.
    pub(super) fn equal_address(&self, address: &str) -> Option<&str> {
        if self.resources.contains_key(address) {
            return None;
        }
        let mut equal = self.resources.keys().filter(|listed| is_same_uri(listed, address));
        equal.next().filter(|_| equal.next().is_none()).map(String::as_str)
    }
}

/// The members of an item of either list. Only its URI is needed: any other member of another type than expected is
/// ignored.
const ITEM_MEMBERS: &[&str] =
    &["uri", "uriTemplate", "name", "title", "description", "mimeType", "size", "annotations"];

/// An imported item of either list.
struct ResourceListItem<'a> {
    /// The address that clients see.
    uri: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    size: Option<u64>,
    annotations: Option<&'a RawValue>,
}

/// Whether a resource may be read. Its URI is compared in each of its spellings.
pub(super) fn includes(server: &McpServer, uri: &str) -> bool {
    spellings(uri).any(|uri| server.includes_resource(&uri))
}

/// Imports an item. `None` if the policy excludes it.
///
/// # Errors
/// The item cannot be imported. The message is not redacted yet.
fn import_item<'a>(
    raw: &'a RawValue,
    list: ListKind,
    server: &McpServer,
    connector: &dyn ServerConnector,
) -> Result<Option<ResourceListItem<'a>>, String> {
    let unread = |why: String| format!("a resource is left out: {why}");
    bounded::check_size(raw, MAX_RESOURCE_ITEM).map_err(unread)?;
    let item = Members::read(raw, ITEM_MEMBERS)
        .map_err(|error| unread(one_line(&error.to_string(), MAX_UNREDACTED_CHARS)))?;
    let names = match list {
        ListKind::Templates => ["uriTemplate", "uri"],
        ListKind::Tools | ListKind::Resources => ["uri", "uriTemplate"],
    };
    let server_uri: Option<String> = names.into_iter().find_map(|name| item.get(name));
    let server_uri = server_uri.ok_or_else(|| unread("it has no `uri`".to_owned()))?;
    if !includes(server, &server_uri) {
        return Ok(None);
    }
    let uri = ResourceAddress::to_client_uri(server.name.as_str(), &server_uri).ok_or_else(|| {
        unread(format!("its URI `{}` is not safe", one_line(&server_uri, MAX_UNREDACTED_CHARS)))
    })?;
    let redact = definition_text::redact_fn(|text| connector.redact(text));
    if redact(&server_uri) != server_uri {
        return Err(unread("its URI contains the value of a secret".to_owned()));
    }
    let label = |text: String| definition_text::sanitize_label(&text, MAX_LABEL, &redact);
    Ok(Some(ResourceListItem {
        uri,
        name: label(item.get("name").unwrap_or(server_uri)),
        title: item.get("title").map(label),
        description: item
            .get("description")
            .map(|text: String| definition_text::sanitize_text(&text, MAX_DESCRIPTION, &redact)),
        mime_type: item.get("mimeType").filter(|kind: &String| is_mime(kind)),
        size: item.get("size"),
        annotations: item.raw("annotations"),
    }))
}

/// Imports annotations. They are hints, so that invalid ones are ignored.
fn import_annotations(raw: Option<&RawValue>, connector: &dyn ServerConnector) -> Option<Annotations> {
    let claimed = read_annotations(raw?);
    let mut shown = Annotations::default();
    let role = |role: &content::Role| match role {
        content::Role::User => Role::User,
        content::Role::Assistant => Role::Assistant,
    };
    shown.audience = (!claimed.audience.is_empty()).then(|| claimed.audience.iter().map(role).collect());
    // Strict clients refuse the whole list if a priority is outside 0 to 1.
    shown.priority = claimed.priority.filter(|priority| (0.0..=1.0).contains(priority));
    let date = claimed.last_modified.filter(|date| date.len() <= MAX_DATE);
    shown.last_modified =
        date.map(|date| definition_text::sanitize_label(&date, MAX_DATE, &|text| connector.redact(text)));
    (shown != Annotations::default()).then_some(shown)
}

fn is_mime(kind: &str) -> bool {
    !kind.is_empty() && kind.len() <= MAX_MIME && kind.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Lists the resources and templates of a server. Each list may take as long as the start of the server. What was listed
/// `before` stays, if a part of its list cannot be read.
pub(super) async fn list_resources(
    session: &ClientSession,
    server: &Arc<McpServer>,
    connector: &Arc<dyn ServerConnector>,
    before: &RemoteResources,
) -> RemoteResources {
    let mut imported = RemoteResources::default();
    for list in [ListKind::Resources, ListKind::Templates] {
        let (items, most) = (list.noun(), server.start_timeout);
        let reading = list::read_list(session, list, list::later_pages_deadline(Instant::now(), most));
        let unread = |why: &str| ServerList::unread(format!("its list of {items} cannot be read: {why}"));
        let listed = match tokio::time::timeout(most, reading).await {
            Ok(Ok(listed)) => listed,
            // Many servers with resources do not implement templates.
            Ok(Err(LinkError::Rpc(_))) if list == ListKind::Templates && before.templates.is_empty() => {
                continue;
            }
            Ok(Err(error)) => unread(&error.refusal().for_operator()),
            Err(_) => unread("no answer in time"),
        };
        let lacks_part = listed.lacks_part;
        let (server, connector) = (Arc::clone(server), Arc::clone(connector));
        let add = move || {
            imported.add(listed, list, &server, &*connector);
            imported
        };
        // Redacting a thousand descriptions would block an async worker thread.
        imported = tokio::task::spawn_blocking(add).await.unwrap_or_else(|_| RemoteResources {
            problems: vec![format!("its {items} could not be imported")],
            ..RemoteResources::default()
        });
        if lacks_part {
            imported.keep(list, before);
        }
    }
    imported
}

/// Adds the items of `before` that `now` lacks, up to the limit of a list. Returns how many.
fn keep_items<T: Clone>(now: &mut BTreeMap<String, T>, before: &BTreeMap<String, T>) -> usize {
    let count = now.len();
    let missing: Vec<_> = before.iter().filter(|(uri, _)| !now.contains_key(*uri)).collect();
    let room = MAX_RESOURCES.saturating_sub(count);
    now.extend(missing.into_iter().take(room).map(|(uri, item)| (uri.clone(), item.clone())));
    now.len() - count
}

impl RemoteResources {
    /// Keeps the items of a list before.
    fn keep(&mut self, list: ListKind, before: &Self) {
        let kept = match list {
            ListKind::Templates => keep_items(&mut self.templates, &before.templates),
            ListKind::Tools | ListKind::Resources => keep_items(&mut self.resources, &before.resources),
        };
        // The first problems are shown.
        self.problems.splice(0..0, list::kept_problem(kept, list));
    }

    /// Imports the items of a list. The first of several items with one URI is used.
    fn add(
        &mut self,
        listed: ServerList,
        list: ListKind,
        server: &McpServer,
        connector: &dyn ServerConnector,
    ) {
        self.problems.extend(listed.problems);
        for raw in &listed.items {
            let item = match import_item(raw, list, server, connector) {
                Ok(Some(item)) => item,
                Ok(None) => continue,
                Err(problem) => {
                    self.problems.push(problem);
                    continue;
                }
            };
            let is_template = list == ListKind::Templates;
            if self.resources.contains_key(&item.uri) && !is_template
                || self.templates.contains_key(&item.uri) && is_template
            {
                self.problems.push(format!(
                    "the {} `{}` is listed twice; the first one is used",
                    list.item_noun(),
                    one_line(&item.uri, MAX_UNREDACTED_CHARS)
                ));
                continue;
            }
            let annotations = import_annotations(item.annotations, connector);
            if is_template {
                let mut shown = ResourceTemplate::new(item.uri.clone(), item.name);
                (shown.title, shown.description) = (item.title, item.description);
                (shown.mime_type, shown.annotations) = (item.mime_type, annotations);
                self.templates.insert(item.uri, shown);
            } else {
                let mut shown = Resource::new(item.uri.clone(), item.name);
                (shown.title, shown.description) = (item.title, item.description);
                (shown.mime_type, shown.size) = (item.mime_type, item.size);
                shown.annotations = annotations;
                self.resources.insert(item.uri, shown);
            }
        }
    }
}

/// Replaces the URIs in a result by the addresses that clients see. A link with an unsafe URI becomes a text that
/// names it.
pub(super) fn rewrite_links(server: &str, connector: &dyn ServerConnector, content: &mut [ContentBlock]) {
    for block in content {
        match &mut block.body {
            BlockBody::Link(link) => match ResourceAddress::to_client_uri(server, &link.uri) {
                Some(uri) => link.uri = uri,
                None => block.body = BlockBody::Text(removed_link(link, connector)),
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

/// The note in place of a link with an unsafe URI: its name and its URI, in which nothing is hidden.
fn removed_link(link: &ResourceLink, connector: &dyn ServerConnector) -> String {
    let redact = definition_text::redact_fn(|text| connector.redact(text));
    let clean = |text: &str, most: usize| definition_text::sanitize_label(text, most, &redact);
    let uri = clean(&link.uri, MAX_REMOVED_URI);
    let name = Some(clean(&link.name, MAX_LABEL)).filter(|name| !name.is_empty() && link.name != link.uri);
    let name = name.map(|name| format!(" `{name}`")).unwrap_or_default();
    format!("[link{name} removed: its URI `{uri}` is not safe]")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReadResult<'a> {
    #[serde(borrow)]
    contents: Option<&'a RawValue>,
    result_type: Option<String>,
}

/// Converts the parts of a resource for clients.
///
/// # Errors
/// The result is invalid. The message is not redacted yet.
pub(super) fn convert_contents(
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
    let parts = BoundedList::<MAX_RESOURCE_PARTS>::read(answer.contents).map_err(unread)?;
    if parts.truncated {
        return Err(format!("the resource has more than {MAX_RESOURCE_PARTS} parts"));
    }
    let label = format!("mcp:{}", server.name);
    let mark = UntrustedMark::new(&label, asked.server_uri);
    let marked = server.tool_defaults.results.untrusted != Some(false);
    let clean = |text: &str| {
        let visible = remove_hidden(text);
        let visible = connector.redact(&visible);
        match marked {
            true => mark.fit(&visible, usize::MAX, Truncation::Head, visible.chars().count(), ""),
            false => neutral_text::neutralize(&visible).into_owned(),
        }
    };
    let part = |raw: &&RawValue| {
        let part = Members::read(raw, &["uri", "mimeType", "text", "blob"]).map_err(unread)?;
        let uri: Option<String> = part.get("uri");
        let uri = ResourceAddress::to_client_uri(asked.server, uri.as_deref().unwrap_or(asked.server_uri));
        let uri = uri.ok_or("its URI is not safe")?;
        let mime_type = part.get("mimeType").filter(|kind: &String| is_mime(kind));
        Ok::<_, String>(match (part.get::<String>("text"), part.get::<String>("blob")) {
            (Some(text), _) => {
                ResourceContents::TextResourceContents { uri, mime_type, text: clean(&text), meta: None }
            }
            (None, Some(blob)) => {
                let data = base64::decode(&blob).ok_or("its `blob` is not base64")?;
                let mime_type = mime_type.or(data.mime_type.filter(|kind| is_mime(kind)));
                let blob = encode_redacted(&data.bytes, connector);
                ResourceContents::BlobResourceContents { uri, mime_type, blob, meta: None }
            }
            (None, None) => return Err("it has neither `text` nor `blob`".to_owned()),
        })
    };
    // A part that cannot be read becomes a note in its place, unless it is the only one.
    let own_uri = asked.client_uri();
    let read = parts.items.iter().map(|raw| match (part(raw), &own_uri) {
        (Err(why), Some(uri)) if parts.items.len() > 1 => {
            Ok(text_part(uri.clone(), clean(&format!("[cannot be read: a part of the resource: {why}]"))))
        }
        (read, _) => read.map_err(|why| format!("a part of the resource: {why}")),
    });
    read.collect()
}

/// A part of a resource that is a text of the host.
pub(super) fn text_part(uri: String, text: String) -> ResourceContents {
    ResourceContents::TextResourceContents { uri, mime_type: None, text, meta: None }
}

/// Encodes data. If it is UTF-8 text, it is redacted.
fn encode_redacted(bytes: &[u8], connector: &dyn ServerConnector) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => STANDARD.encode(&*connector.redact(text)),
        Err(_) => STANDARD.encode(bytes),
    }
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

#[cfg(test)]
#[path = "resources_tests.rs"]
mod tests;
