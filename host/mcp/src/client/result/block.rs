//! Reads one block of a result. A block that cannot be read becomes a note in its place.

use serde::Deserialize;
use serde_json::value::RawValue;
use toolbay_core::output::base64;
use toolbay_core::tool::content::{
    self, Blob, BlockAnnotations, BlockBody, ContentBlock, EmbeddedResource, ResourceBody, ResourceLink, Role,
};
use toolbay_policy::excerpt::one_line;

use crate::protocol::bounded;
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::members::Members;
use crate::protocol::message;

/// Bytes of the annotations of one block.
const MAX_BLOCK_ANNOTATION_BYTES: usize = 4 << 10;
/// The media type of data that names none.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// The members of all kinds of content blocks.
const BLOCK_MEMBERS: &[&str] = &[
    "type",
    "text",
    "data",
    "mimeType",
    "mime_type",
    "uri",
    "name",
    "title",
    "description",
    "size",
    "resource",
    "annotations",
];

/// A content block of any kind.
struct RawContentBlock<'a>(Members<'a>);

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAnnotations {
    audience: Vec<String>,
    priority: Option<f32>,
    last_modified: Option<String>,
}

/// A block of a result, or what cannot be read, and why.
pub(super) type ReadBlock = Result<ContentBlock, String>;

fn text_block(text: String) -> ContentBlock {
    ContentBlock { body: BlockBody::Text(text), annotations: None }
}

/// A text in place of a block.
pub(super) fn read_text(raw: &RawValue) -> Option<ContentBlock> {
    serde_json::from_str(raw.get()).ok().map(text_block)
}

/// The JSON itself as a text.
pub(super) fn read_json(raw: &RawValue) -> ContentBlock {
    text_block(raw.get().to_owned())
}

/// Reads a block.
pub(super) fn read_block(raw: &RawValue) -> ReadBlock {
    // Some servers write a text where a block belongs.
    if let Some(text) = read_text(raw) {
        return Ok(text);
    }
    let block = Members::read(raw, BLOCK_MEMBERS)
        .map(RawContentBlock)
        .map_err(|error| one_line(&format!("a block: {error}"), MAX_UNREDACTED_CHARS))?;
    let kind = block.0.get("type").unwrap_or_else(|| block.likely_kind().to_owned());
    let body = block
        .body(&kind)
        .map_err(|why| format!("a block of type `{}`: {why}", one_line(&kind, MAX_UNREDACTED_CHARS)))?;
    let hints = block.0.raw("annotations").map(read_annotations);
    Ok(ContentBlock { body, annotations: hints.filter(|hints| *hints != BlockAnnotations::default()) })
}

/// A media type, from the member `mimeType` or from `mime_type`, as Python programs write it.
fn mime_of(members: &Members<'_>) -> Option<String> {
    let read =
        |name| members.get(name).filter(|kind: &String| !kind.is_empty() && content::is_machine_field(kind));
    read("mimeType").or_else(|| read("mime_type"))
}

impl RawContentBlock<'_> {
    /// The type of a block that does not name it.
    fn likely_kind(&self) -> &'static str {
        let is_audio = || mime_of(&self.0).is_some_and(|kind| kind.starts_with("audio/"));
        match ["text", "resource", "data", "uri"].into_iter().find(|name| self.0.raw(name).is_some()) {
            Some("data") if is_audio() => "audio",
            Some("data") => "image",
            Some("uri") => "resource_link",
            Some(other) => other,
            None => "",
        }
    }

    fn body(&self, kind: &str) -> Result<BlockBody, String> {
        Ok(match kind {
            "text" => BlockBody::Text(self.text()?),
            "image" => BlockBody::Image(self.blob()?),
            "audio" => BlockBody::Audio(self.blob()?),
            "resource_link" => {
                let uri: String = self.0.get("uri").ok_or("it has no `uri`")?;
                BlockBody::Link(ResourceLink {
                    name: self.0.get("name").unwrap_or_else(|| uri.clone()),
                    uri,
                    title: self.0.get("title"),
                    description: self.0.get("description"),
                    mime_type: mime_of(&self.0),
                    size: self.0.get("size"),
                })
            }
            "resource" => {
                let raw = self.0.raw("resource").ok_or("it has no `resource`")?;
                BlockBody::Embedded(read_resource(raw)?)
            }
            // A type of a later revision.
            _ => return Err("this host does not know the type".to_owned()),
        })
    }

    /// The text. A value that is not a text is delivered as JSON.
    fn text(&self) -> Result<String, String> {
        let raw = self.0.raw("text").ok_or("it has no `text`")?;
        Ok(self.0.get("text").unwrap_or_else(|| raw.get().to_owned()))
    }

    fn blob(&self) -> Result<Blob, String> {
        let text: String = self.0.get("data").ok_or("it has no `data`")?;
        let decoded = base64::decode(&text).ok_or("its `data` is not base64")?;
        let mime_type = mime_of(&self.0).or(decoded.mime_type).filter(|kind| content::is_machine_field(kind));
        let mime_type = mime_type.unwrap_or_else(|| UNKNOWN_TYPE.to_owned());
        Ok(Blob { data: decoded.bytes, mime_type })
    }
}

fn read_resource(raw: &RawValue) -> Result<EmbeddedResource, String> {
    let unread = |error: serde_json::Error| one_line(&error.to_string(), MAX_UNREDACTED_CHARS);
    let resource = Members::read(raw, &["uri", "mimeType", "mime_type", "text", "blob"]).map_err(unread)?;
    let (body, kind) = match (resource.get("text"), resource.get::<String>("blob")) {
        (Some(text), _) => (ResourceBody::Text(text), None),
        (None, Some(blob)) => {
            let decoded = base64::decode(&blob).ok_or("its `blob` is not base64")?;
            (ResourceBody::Blob(decoded.bytes), decoded.mime_type)
        }
        (None, None) if resource.raw("text").or(resource.raw("blob")).is_some() => {
            return Err("its `text` or `blob` is not a text".to_owned());
        }
        (None, None) if resource.raw("uri").is_none() => return Err("it has no `uri`".to_owned()),
        (None, None) => (ResourceBody::Text(String::new()), None),
    };
    let mime_type = mime_of(&resource).or(kind).filter(|kind| content::is_machine_field(kind));
    Ok(EmbeddedResource { uri: resource.get("uri").unwrap_or_default(), mime_type, body })
}

/// Reads annotations. They are hints, so invalid ones are ignored.
pub(in crate::client) fn read_annotations(raw: &RawValue) -> BlockAnnotations {
    let is_small = bounded::check_size(raw, MAX_BLOCK_ANNOTATION_BYTES).is_ok();
    let annotations =
        if is_small { message::parse_object(raw).unwrap_or_default() } else { RawAnnotations::default() };
    let role = |role: &String| match role.as_str() {
        "user" => Some(Role::User),
        "assistant" => Some(Role::Assistant),
        _ => None,
    };
    BlockAnnotations {
        audience: annotations.audience.iter().filter_map(role).take(2).collect(),
        priority: annotations.priority,
        last_modified: annotations.last_modified.filter(|date| content::is_machine_field(date)),
    }
}
