//! `tool-invoke`: calls of other tools, for a tool that was granted them.
//!
//! The core makes the calls, through every gate; here is how many there may be, and what a guest gets of the answers. While
//! they run the guest waits, and lends its place.

use std::sync::Arc;

use toolbay_core::call::ToolCall;
use toolbay_core::call::invoke::Failure;
use toolbay_core::call::invoke::nested::{InvokeGrant, MAX_DEPTH, NestedBatch, NestedResult, ToolCaller};
use toolbay_core::tool::content::{ErrorCode, ToolError};
use toolbay_policy::Key;
use toolbay_policy::capability::reach;
use toolbay_policy::limits::Limit;
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::Refusal;

use super::{CallTimes, Capabilities};
use crate::engine::admission::Lent;
use crate::engine::bindings::callers::toolbay::plugin::tool_invoke::{Callable, Host, Invocation, Invoked};
use crate::engine::bindings::types;
use crate::plugins::answer::error_to_guest;

/// What it takes to call others.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tools: Arc<dyn ToolCaller>,
    pub(crate) place: Arc<Lent>,
}

/// What a tool was granted, asked about the tools it calls.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) plugin: PluginId,
    pub(crate) all: Arc<super::Granted>,
}

impl InvokeGrant for Granted {
    fn allows(&self, tool: &str) -> bool {
        self.all.grants.invoke.iter().any(|rule| rule.takes(tool))
    }

    fn refusal(&self, tool: &str) -> Refusal {
        let text = self.all.refused(&self.plugin, Key::Invoke, tool);
        let hint = self.all.advice(&self.plugin, Key::Invoke, tool).hint();
        Refusal::new(text.clone(), format!("{text}. {hint}"))
    }
}

type Answer = Result<Invoked, types::ToolError>;

fn refused(about: &str, message: String) -> ToolError {
    ToolError::new(ErrorCode::NotAvailable, message).about(about)
}

impl Capabilities {
    /// The way to so many calls, the first of which has this number.
    fn admit(&self, calls: &[Invocation]) -> Result<(Caller, u32), ToolError> {
        let granted = self.who.granted.as_ref().map_or(&[][..], |granted| &granted.grants.invoke);
        if granted.is_empty() {
            let first = calls.first().map_or("*", |call| call.name.as_str());
            return Err(refused("denied", self.who.refuse(Key::Invoke, first)));
        }
        let Some(caller) = &self.caller else {
            let why = format!("calls lie {MAX_DEPTH} deep in one another at most, and this one does already");
            return Err(refused("depth", why));
        };
        let (count, most) = (u32::try_from(calls.len()).unwrap_or(u32::MAX), self.who.limits.invocations);
        let Some(before) = caller.tools.count(count, most) else {
            let what = format!("no call was made: with {count} more there would be too many");
            return Err(refused("limit", self.who.over(&what, Limit::Invocations)));
        };
        // Not before: the list may be as long as what crosses at once.
        for call in calls {
            let allowed = granted.iter().any(|rule| rule.takes(&call.name));
            self.who.note(Key::Invoke, &reach::shown(&call.name), allowed);
        }
        Ok((caller.clone(), before))
    }
}

/// What a guest gets of the answers: together no more than may cross.
struct Answers {
    all: Vec<Option<Answer>>,
    left: u64,
}

impl Answers {
    fn take(&mut self, place: usize, answered: NestedResult) {
        let answer = match answered.result {
            Ok(output) => Ok(Invoked {
                value: output.value,
                structured: output.structured.map(|raw| raw.get().to_owned()),
                truncated: answered.cut,
            }),
            Err(failure) => Err(told(failure)),
        };
        let bytes = match &answer {
            Ok(invoked) => invoked.value.len() + invoked.structured.as_ref().map_or(0, String::len),
            Err(error) => error.message.len(),
        };
        let answer = match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                answer
            }
            None => Err(too_large(bytes)),
        };
        if let Some(there) = self.all.get_mut(place) {
            *there = Some(answer.map_err(error_to_guest));
        }
    }
}

fn too_large(bytes: usize) -> ToolError {
    let why =
        format!("the call was made, and with its {bytes} bytes the answers are more than may cross at once");
    ToolError::new(ErrorCode::ExecutionFailed, why).about("output_too_large")
}

/// What a model would be told of a call that failed; a fault by its kind.
fn told(failure: Failure) -> ToolError {
    let code = failure.code();
    match failure {
        Failure::Refused(error) => error,
        Failure::Fault(fault) => ToolError::new(code, fault.message).about(fault.kind.as_str()),
        Failure::Host(message) => ToolError::new(code, message).about("host_failed"),
    }
}

impl Host for Capabilities {
    async fn tools(&mut self) -> Vec<Callable> {
        let Some(caller) = &self.caller else { return Vec::new() };
        let all = caller.tools.tools().into_iter().map(|tool| Callable {
            name: tool.name,
            description: tool.description,
            input_schema: tool.input_schema,
            output_schema: tool.output_schema,
        });
        all.collect()
    }

    async fn invoke(&mut self, calls: Vec<Invocation>) -> Result<Vec<Answer>, types::ToolError> {
        let (caller, before) = self.admit(&calls).map_err(error_to_guest)?;
        let Some(CallTimes { deadline: ends, .. }) = self.times else { return Ok(Vec::new()) };
        let mut answers = Answers { all: Vec::new(), left: self.who.limits.host_call_bytes };
        answers.all.resize_with(calls.len(), || None);
        let numbered = calls.into_iter().zip(before + 1..);
        let calls = numbered.map(|(call, number)| ToolCall::new(number.to_string(), call.name, call.args));
        let inner = NestedBatch {
            calls: calls.collect(),
            at_once: self.who.limits.invocations_at_once as usize,
            ends,
        };
        caller.place.give();
        caller.tools.call(inner, &mut |place, answered| answers.take(place, answered)).await;
        caller.place.take_back().await;
        let lost = || Err(error_to_guest(told(Failure::Host("the call was lost".to_owned()))));
        Ok(answers.all.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect())
    }
}
