//! `tool-invoke`: calls to other tools, for a tool that was granted them.
//!
//! The core runs each call through the whole pipeline. This file bounds their number and the size of their results.
//! The waiting guest lends its run permit to them.

use std::sync::Arc;

use toolbay_core::call::ToolCall;
use toolbay_core::call::invoke::Failure;
use toolbay_core::call::invoke::nested::{InvokeGrant, MAX_DEPTH, NestedBatch, NestedResult, ToolCaller};
use toolbay_core::tool::content::{ErrorCode, ToolError};
use toolbay_policy::GrantKey;
use toolbay_policy::capability::path_rule;
use toolbay_policy::limits::{CallLimits, Limit};
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_sandbox::admission::LentPermit;
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use super::{CallTimes, Capabilities};
use crate::HasCapabilities;
use crate::bindings::callers::toolbay::plugin::tool_invoke::{self, Callable, Host, Invocation, Invoked};
use crate::bindings::types;
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};

/// Calls to the granted tools.
#[derive(Debug)]
pub struct ToolInvoke;

impl Capability for ToolInvoke {
    const KEYS: &'static [GrantKey] = &[GrantKey::Invoke];

    type State = Option<NestedCallAccess>;

    fn begin(_: &CallLimits) -> Option<NestedCallAccess> {
        None
    }

    fn link(linker: &mut Linker<GuestState>, _: AsyncSupport) -> wasmtime::Result<()> {
        // `tool-invoke` is an unstable feature of this version of the contract.
        let mut options = tool_invoke::LinkOptions::default();
        options.tool_invoke(true);
        tool_invoke::add_to_linker::<_, HasCapabilities>(linker, &options, capabilities_of)
    }
}

/// Access to other tools for one guest entry.
#[derive(Debug, Clone)]
pub struct NestedCallAccess {
    /// The tools that the call can reach.
    pub tools: Arc<dyn ToolCaller>,
    /// The run permit of the call, which nested calls borrow.
    pub permit: Arc<LentPermit>,
}

/// The `invoke` grant of a tool, for the core to check nested calls against.
#[derive(Debug)]
pub struct ToolInvokeGrant {
    /// The plugin of the tool.
    pub plugin: PluginId,
    /// What the tool is granted.
    pub grants: Arc<super::ResolvedGrants>,
    /// The profile of the call.
    pub profile: Option<Arc<str>>,
}

impl InvokeGrant for ToolInvokeGrant {
    fn allows(&self, tool: &str) -> bool {
        self.grants.grants.invoke.iter().any(|rule| rule.matches(tool))
    }

    fn refusal(&self, tool: &str) -> PolicyRefusal {
        let text = self.grants.refusal_text(&self.plugin, GrantKey::Invoke, tool);
        let profile = self.profile.as_deref();
        let hint = self.grants.advice(&self.plugin, profile, GrantKey::Invoke, tool).hint();
        let hint = hint.with_about(&text);
        PolicyRefusal::new(text, hint)
    }
}

type InvokeReply = Result<Invoked, types::ToolError>;

fn not_available(about: &str, message: String) -> ToolError {
    ToolError::new(ErrorCode::NotAvailable, message).with_subject(about)
}

impl Capabilities {
    /// Admits `calls`. Returns the access and the number of earlier calls.
    fn admit(&self, calls: &[Invocation]) -> Result<(NestedCallAccess, u32), ToolError> {
        let granted = self.grantee.granted.as_ref().map_or(&[][..], |granted| &granted.grants.invoke);
        if granted.is_empty() {
            let first = calls.first().map_or("*", |call| call.name.as_str());
            return Err(not_available("denied", self.grantee.refuse(GrantKey::Invoke, first)));
        }
        let Some(caller) = &self.nested_calls else {
            let why = format!("calls can be nested at most {MAX_DEPTH} deep, and this call already is");
            return Err(not_available("depth", why));
        };
        let (count, max) = (u32::try_from(calls.len()).unwrap_or(u32::MAX), self.grantee.limits.invocations);
        let Some(before) = caller.tools.count(count, max) else {
            let what = format!("no call was made: {count} more calls exceed the limit");
            return Err(not_available("limit", self.grantee.limit_error(&what, Limit::Invocations)));
        };
        // Recorded only now: before the limit check, the list can be as long as one host call allows.
        for call in calls {
            let allowed = granted.iter().any(|rule| rule.matches(&call.name));
            self.grantee.note(GrantKey::Invoke, &path_rule::printable_path(&call.name), allowed);
        }
        Ok((caller.clone(), before))
    }
}

/// The results for the guest. Their total size is bounded by the limit of one host call.
struct InvokeReplies {
    all: Vec<Option<InvokeReply>>,
    left: u64,
}

impl InvokeReplies {
    fn record(&mut self, index: usize, result: NestedResult) {
        let reply = match result.result {
            Ok(output) => Ok(Invoked {
                value: output.value,
                structured: output.structured.map(|raw| raw.get().to_owned()),
                truncated: result.cut,
            }),
            Err(failure) => Err(failure_to_tool_error(failure)),
        };
        let bytes = match &reply {
            Ok(invoked) => invoked.value.len() + invoked.structured.as_ref().map_or(0, String::len),
            Err(error) => error.message.len(),
        };
        let reply = match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                reply
            }
            None => Err(output_too_large(bytes)),
        };
        if let Some(there) = self.all.get_mut(index) {
            *there = Some(reply.map_err(error_to_guest));
        }
    }
}

fn output_too_large(bytes: usize) -> ToolError {
    let why = format!(
        "the call was made, but with its {bytes} bytes the results exceed the limit of one host call"
    );
    ToolError::new(ErrorCode::ExecutionFailed, why).with_subject("output_too_large")
}

/// The error for the guest, in the form a model gets; a fault is named by its kind.
fn failure_to_tool_error(failure: Failure) -> ToolError {
    let code = failure.code();
    match failure {
        Failure::Refused(error) => error,
        Failure::Fault(fault) => ToolError::new(code, fault.message).with_subject(fault.kind.as_str()),
        Failure::Host(message) => ToolError::new(code, message).with_subject("host_failed"),
    }
}

/// Converts an error for a guest.
pub fn error_to_guest(error: ToolError) -> types::ToolError {
    types::ToolError {
        code: match error.code {
            ErrorCode::InputInvalid => types::ErrorCode::InputInvalid,
            ErrorCode::NotAvailable => types::ErrorCode::NotAvailable,
            ErrorCode::ExecutionFailed => types::ErrorCode::ExecutionFailed,
            ErrorCode::StaleWrite => types::ErrorCode::StaleWrite,
        },
        message: error.message,
        subject: error.subject,
        cost_usd: error.cost_usd,
    }
}

impl Host for Capabilities {
    async fn tools(&mut self) -> Vec<Callable> {
        let Some(caller) = &self.nested_calls else { return Vec::new() };
        let all = caller.tools.tools().into_iter().map(|tool| Callable {
            name: tool.name,
            description: tool.description,
            input_schema: tool.input_schema,
            output_schema: tool.output_schema,
        });
        all.collect()
    }

    async fn invoke(&mut self, calls: Vec<Invocation>) -> Result<Vec<InvokeReply>, types::ToolError> {
        let (caller, before) = self.admit(&calls).map_err(error_to_guest)?;
        let Some(CallTimes { deadline: ends, .. }) = self.times else { return Ok(Vec::new()) };
        let mut replies = InvokeReplies { all: Vec::new(), left: self.grantee.limits.host_call_bytes };
        replies.all.resize_with(calls.len(), || None);
        let numbered = calls.into_iter().zip(before + 1..);
        let calls = numbered.map(|(call, number)| ToolCall::new(number.to_string(), call.name, call.args));
        let inner = NestedBatch {
            calls: calls.collect(),
            max_concurrent: self.grantee.limits.invocations_at_once as usize,
            deadline: ends,
        };
        caller.permit.lend();
        caller.tools.call(inner, &mut |index, result| replies.record(index, result)).await;
        caller.permit.reclaim().await;
        let lost =
            || Err(error_to_guest(failure_to_tool_error(Failure::Host("the call was lost".to_owned()))));
        Ok(replies.all.into_iter().map(|reply| reply.unwrap_or_else(lost)).collect())
    }
}
