//! What a call was refused, for its two readers: hints for the operator, words for the model.

use toolbay_policy::refusal;

use crate::call::CallContext;
use crate::call::invoke::Failure;
use crate::tool::content::{BlockBody, ContentBlock, ToolOutput};

type Outcome = Result<ToolOutput, Failure>;

/// The hints for the operator: why the call itself was refused, then what it was refused while it ran.
pub(super) fn hints(result: &Outcome, ctx: &CallContext) -> Vec<String> {
    let own = match result {
        Err(Failure::Refused(error)) => error.hint.clone(),
        Err(Failure::Fault(fault)) => fault.hint().map(|hint| ctx.redactor().owned(hint)),
        Ok(_) | Err(Failure::Host(_)) => None,
    };
    let mut hints: Vec<String> = own.into_iter().collect();
    for hint in ctx.hints() {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints
}

/// Says behind a limit that the operator can raise it, and how the operator learns to.
pub(super) fn point(result: &mut Outcome, tool: &str) {
    if let Err(Failure::Fault(fault)) = result
        && fault.hint().is_some()
    {
        fault.message.push_str("; ");
        fault.message.push_str(&refusal::raisable(tool));
    }
}

/// Appends the refusals that the tool did not hear: as a block of their own, so that a text that is JSON stays JSON, or
/// behind the message of an error. There are few of them, each of one line.
pub(super) fn append(result: &mut Outcome, ctx: &CallContext) {
    let texts = ctx.to_append(result.is_err());
    if texts.is_empty() {
        return;
    }
    let said = format!("[{}]", texts.join("; "));
    match result {
        Ok(output) => {
            output.content.push(ContentBlock { body: BlockBody::Text(said), annotations: None });
        }
        Err(Failure::Refused(error)) => push_line(&mut error.message, &said),
        Err(Failure::Fault(fault)) => push_line(&mut fault.message, &said),
        Err(Failure::Host(_)) => {}
    }
}

fn push_line(message: &mut String, said: &str) {
    message.push('\n');
    message.push_str(said);
}
