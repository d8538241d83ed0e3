//! The port through which the pipeline runs a plugin's tool: one fresh instance, one call.

use std::sync::Arc;

use serde_json::value::RawValue;
use toolbay_core::call::{Admitted, CallContext};
use toolbay_core::content::{
    Blob, BlockAnnotations, BlockBody, ContentBlock, EmbeddedResource, ErrorCode, ResourceBody, ResourceLink,
    Role, ToolError, ToolOutput, ToolResult,
};
use toolbay_core::fault::{Fault, FaultKind};
use toolbay_core::invoke::{BoxFuture, Failure, Invocation, Invoke};
use toolbay_core::json;
use toolbay_core::limits::{Limits, Usage};
use toolbay_core::name::ToolName;

use crate::bindings::types;
use crate::capability::files::FileGrants;
use crate::capability::{Capabilities, RunningCall};
use crate::instance::Bounds;
use crate::plugin::Plugin;
use crate::state::{GuestState, Seal};

/// One tool of a plugin with what it may use.
#[derive(Debug)]
pub(crate) struct PluginTool {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) name: ToolName,
    pub(crate) limits: Limits,
    pub(crate) files: Option<FileGrants>,
    pub(crate) config: Arc<std::collections::BTreeMap<String, String>>,
}

impl Invoke for PluginTool {
    fn invoke<'a>(&'a self, call: &'a Admitted, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, Invocation> {
        Box::pin(async move {
            let mut usage = Usage { args_bytes: call.args().len() as u64, ..Usage::default() };
            let result = self.run(call, ctx, &mut usage).await;
            Invocation { result, usage }
        })
    }
}

impl PluginTool {
    async fn run(
        &self,
        call: &Admitted,
        ctx: &Arc<CallContext>,
        usage: &mut Usage,
    ) -> Result<ToolOutput, Failure> {
        let shared = &self.plugin.shared;
        let place = shared.admission.enter(&ctx.cancel).await?;
        usage.queued_us = place.queued_us;
        let code = tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => {
                return Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran").into());
            }
            code = self.plugin.code() => code,
        };
        let code = code.map_err(|e| Failure::Host(format!("plugin `{}` {e}", self.plugin.id)))?;
        let Some(pre) = &code.tools else {
            return Err(Failure::Host(format!("plugin `{}` has lost its tools", self.plugin.id)));
        };
        let state = self.state(ctx, code.folders).map_err(|e| Failure::Host(e.to_string()))?;
        let bounds = Bounds {
            engine: &shared.engine,
            plugin: &self.plugin.id,
            limits: &self.limits,
            cancel: &ctx.cancel,
        };
        let (name, args) = (self.name.as_str(), call.args());
        let run = bounds.enter(state, async |store| {
            let guest = pre.instantiate_async(&mut *store).await?;
            guest.toolbay_plugin_tools().call_call(store, name, args).await
        });
        let (result, used) = run.await;
        *usage = Usage { args_bytes: usage.args_bytes, queued_us: usage.queued_us, ..used };
        drop(place);
        let answer = result?;
        usage.result_bytes = size_of(&answer);
        Ok(from_guest(answer).map_err(|problem| self.broken(&problem))??)
    }

    fn state(&self, ctx: &Arc<CallContext>, folders: bool) -> wasmtime::Result<GuestState> {
        let session = ctx.turn.identity.session_id.as_deref();
        let capabilities = Capabilities {
            plugin: self.plugin.id.clone(),
            call: Some(RunningCall {
                ctx: Arc::clone(ctx),
                deadline: std::time::Instant::now() + self.limits.timeout,
            }),
            files: self.files.as_ref().map(|files| files.for_session(&self.plugin.shared.reads, session)),
            config: Arc::clone(&self.config),
            log_lines_left: self.limits.log_lines,
            progress_events: self.limits.progress_events,
        };
        GuestState::new(Seal::Call { folders }, &self.limits, capabilities)
    }

    fn broken(&self, problem: &str) -> Fault {
        Fault::new(FaultKind::BadOutput, format!("`{}` broke the contract: {problem}", self.plugin.id))
    }
}

fn size_of(answer: &types::ToolResult) -> u64 {
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

/// Most content blocks of one result.
const MAX_BLOCKS: usize = 256;

/// A guest's answer in the host's types.
///
/// # Errors
/// What in it breaks the contract.
pub(crate) fn from_guest(answer: types::ToolResult) -> Result<ToolResult, String> {
    let output = match answer {
        Ok(output) => output,
        Err(error) => return Ok(Err(error_from_guest(error))),
    };
    if output.content.len() > MAX_BLOCKS {
        return Err(format!("{} content blocks; at most {MAX_BLOCKS} are taken", output.content.len()));
    }
    Ok(Ok(ToolOutput {
        value: output.value,
        structured: output.structured.map(|text| raw("structured", text)).transpose()?,
        content: output.content.into_iter().map(block_from_guest).collect(),
        cost_usd: output.cost_usd.filter(|c| c.is_finite() && *c >= 0.0),
        meta: output.meta.map(|text| raw("meta", text)).transpose()?,
    }))
}

/// The host's types as a guest takes them.
pub(crate) fn to_guest(answer: &ToolResult) -> types::ToolResult {
    match answer {
        Ok(output) => Ok(types::ToolOutput {
            value: output.value.clone(),
            structured: output.structured.as_ref().map(|raw| raw.get().to_owned()),
            content: output.content.iter().cloned().map(block_to_guest).collect(),
            cost_usd: output.cost_usd,
            meta: output.meta.as_ref().map(|raw| raw.get().to_owned()),
        }),
        Err(error) => Err(types::ToolError {
            code: match error.code {
                ErrorCode::InputInvalid => types::ErrorCode::InputInvalid,
                ErrorCode::NotAvailable => types::ErrorCode::NotAvailable,
                ErrorCode::ExecutionFailed => types::ErrorCode::ExecutionFailed,
                ErrorCode::StaleWrite => types::ErrorCode::StaleWrite,
            },
            message: error.message.clone(),
            subject: error.subject.clone(),
            cost_usd: error.cost_usd,
        }),
    }
}

/// A JSON text, read once so that everybody may rely on it.
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
        subject: error.subject.map(|s| s.chars().take(1000).collect()),
        cost_usd: error.cost_usd.filter(|c| c.is_finite() && *c >= 0.0),
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
