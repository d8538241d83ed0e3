//! Converts tool results between the types of the contract and those of the host.

use serde_json::value::RawValue;
use toolbay_capabilities::bindings::types;
use toolbay_capabilities::invoke::error_to_guest;
use toolbay_core::tool::content::{
    Blob, BlockAnnotations, BlockBody, ContentBlock, EmbeddedResource, ErrorCode, ResourceBody, ResourceLink,
    Role, ToolError, ToolOutput, ToolResult,
};
use toolbay_core::tool::json;

/// The size of a guest's result, in bytes.
pub(crate) fn size_of(answer: &types::ToolResult) -> u64 {
    let bytes = match answer {
        Ok(output) => {
            let blocks: usize = output
                .content
                .iter()
                .map(|block| match &block.body {
                    types::BlockBody::Text(text) => text.len(),
                    types::BlockBody::Image(blob) | types::BlockBody::Audio(blob) => blob.data.len(),
                    types::BlockBody::Link(link) => link.uri.len(),
                    types::BlockBody::Embedded(resource) => match &resource.body {
                        types::ResourceBody::Text(text) => text.len(),
                        types::ResourceBody::Blob(data) => data.len(),
                    },
                })
                .sum();
            let json = |text: &Option<String>| text.as_ref().map_or(0, String::len);
            output.value.len() + json(&output.structured) + json(&output.meta) + blocks
        }
        Err(error) => error.message.len(),
    };
    bytes as u64
}

/// Maximum number of content blocks in one result.
const MAX_BLOCKS: usize = 256;

/// Converts a guest's result.
///
/// # Errors
/// The result breaks the contract.
pub(crate) fn from_guest(answer: types::ToolResult) -> Result<ToolResult, String> {
    let output = match answer {
        Ok(output) => output,
        Err(error) => return Ok(Err(error_from_guest(error))),
    };
    if output.content.len() > MAX_BLOCKS {
        return Err(format!("{} content blocks, but the limit is {MAX_BLOCKS}", output.content.len()));
    }
    Ok(Ok(ToolOutput {
        value: output.value,
        structured: output.structured.map(|text| raw("structured", text)).transpose()?,
        content: output.content.into_iter().map(block_from_guest).collect(),
        cost_usd: output.cost_usd.filter(|c| c.is_finite() && *c >= 0.0),
        meta: output.meta.map(|text| raw("meta", text)).transpose()?,
    }))
}

/// Converts a result for a guest.
pub(crate) fn to_guest(answer: &ToolResult) -> types::ToolResult {
    match answer {
        Ok(output) => Ok(types::ToolOutput {
            value: output.value.clone(),
            structured: output.structured.as_ref().map(|raw| raw.get().to_owned()),
            content: output.content.iter().cloned().map(block_to_guest).collect(),
            cost_usd: output.cost_usd,
            meta: output.meta.as_ref().map(|raw| raw.get().to_owned()),
        }),
        Err(error) => Err(error_to_guest(error.clone())),
    }
}

/// Validates a JSON text.
fn raw(what: &str, text: String) -> Result<Box<RawValue>, String> {
    json::check(&text).map_err(|e| format!("`{what}` is not valid JSON: {e}"))?;
    RawValue::from_string(text).map_err(|e| format!("`{what}` is not valid JSON: {e}"))
}

fn error_from_guest(error: types::ToolError) -> ToolError {
    ToolError {
        code: match error.code {
            types::ErrorCode::InputInvalid => ErrorCode::InputInvalid,
            types::ErrorCode::NotAvailable => ErrorCode::NotAvailable,
            types::ErrorCode::ExecutionFailed => ErrorCode::ExecutionFailed,
            types::ErrorCode::StaleWrite => ErrorCode::StaleWrite,
        },
        message: error.message,
        subject: error.subject,
        cost_usd: error.cost_usd.filter(|c| c.is_finite() && *c >= 0.0),
        details: None,
        // Hints come from the host only, never from a guest.
        hint: None,
        refusal: None,
    }
}

fn block_from_guest(block: types::ContentBlock) -> ContentBlock {
    let blob = |blob: types::Blob| Blob { data: blob.data, mime_type: blob.mime_type };
    let body = match block.body {
        types::BlockBody::Text(text) => BlockBody::Text(text),
        types::BlockBody::Image(data) => BlockBody::Image(blob(data)),
        types::BlockBody::Audio(data) => BlockBody::Audio(blob(data)),
        types::BlockBody::Link(link) => BlockBody::Link(ResourceLink {
            uri: link.uri,
            name: link.name,
            title: link.title,
            description: link.description,
            mime_type: link.mime_type,
            size: link.size,
        }),
        types::BlockBody::Embedded(resource) => BlockBody::Embedded(EmbeddedResource {
            uri: resource.uri,
            mime_type: resource.mime_type,
            body: match resource.body {
                types::ResourceBody::Text(text) => ResourceBody::Text(text),
                types::ResourceBody::Blob(data) => ResourceBody::Blob(data),
            },
        }),
    };
    let annotations = block.annotations.map(|a| BlockAnnotations {
        audience: a.audience.into_iter().map(role_from_guest).collect(),
        priority: a.priority.filter(|p| (0.0..=1.0).contains(p)),
        last_modified: a.last_modified,
    });
    ContentBlock { body, annotations }
}

fn role_from_guest(role: types::Role) -> Role {
    match role {
        types::Role::User => Role::User,
        types::Role::Assistant => Role::Assistant,
    }
}

fn block_to_guest(block: ContentBlock) -> types::ContentBlock {
    let blob = |blob: Blob| types::Blob { data: blob.data, mime_type: blob.mime_type };
    let body = match block.body {
        BlockBody::Text(text) => types::BlockBody::Text(text),
        BlockBody::Image(data) => types::BlockBody::Image(blob(data)),
        BlockBody::Audio(data) => types::BlockBody::Audio(blob(data)),
        BlockBody::Link(link) => types::BlockBody::Link(types::ResourceLink {
            uri: link.uri,
            name: link.name,
            title: link.title,
            description: link.description,
            mime_type: link.mime_type,
            size: link.size,
        }),
        BlockBody::Embedded(resource) => types::BlockBody::Embedded(types::EmbeddedResource {
            uri: resource.uri,
            mime_type: resource.mime_type,
            body: match resource.body {
                ResourceBody::Text(text) => types::ResourceBody::Text(text),
                ResourceBody::Blob(data) => types::ResourceBody::Blob(data),
            },
        }),
    };
    let annotations = block.annotations.map(|a| types::BlockAnnotations {
        audience: a
            .audience
            .into_iter()
            .map(|role| match role {
                Role::User => types::Role::User,
                Role::Assistant => types::Role::Assistant,
            })
            .collect(),
        priority: a.priority,
        last_modified: a.last_modified,
    });
    types::ContentBlock { body, annotations }
}
