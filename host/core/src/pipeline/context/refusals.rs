//! The refusals of a call for two readers: hints for the operator and texts for the model.

use toolbay_policy::hint::Hint;
use toolbay_policy::refusal;

use crate::call::CallContext;
use crate::call::invoke::Failure;
use crate::tool::ToolSource;
use crate::tool::content::{ContentBlock, ToolOutput};

/// The hints for the operator: first that of the call's own failure, then those of refusals while it ran.
pub(crate) fn hints(result: &Result<ToolOutput, Failure>, ctx: &CallContext) -> Vec<Hint> {
    let hint = match result {
        Err(Failure::Refused(error)) => error.hint.clone(),
        Err(Failure::Fault(fault)) => fault.hint().map(|hint| ctx.redactor().redact_hint(hint)),
        Ok(_) | Err(Failure::Host(_)) => None,
    };
    let mut hints: Vec<Hint> = hint.into_iter().collect();
    for hint in ctx.hints() {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints
}

/// Appends to a fault of a limit that the operator can raise it, and the command that explains how: a program that brings
/// its own tools may have no such command.
pub(crate) fn append_raise_note(
    result: &mut Result<ToolOutput, Failure>,
    tool: &str,
    source: Option<&ToolSource>,
) {
    if let Err(Failure::Fault(fault)) = result
        && fault.hint().is_some()
    {
        fault.message.push_str("; ");
        match source {
            Some(ToolSource::Builtin) => fault.message.push_str(refusal::RAISE_NOTICE),
            Some(_) | None => fault.message.push_str(&refusal::limit_notice(tool)),
        }
    }
}

/// Appends the silent refusals. In an output they are a separate block, so that a JSON text stays JSON; in an error
/// they follow the message. There are few of them, of one line each.
pub(crate) fn append_silent_refusals(result: &mut Result<ToolOutput, Failure>, ctx: &CallContext) {
    let texts = ctx.texts_to_append(result.is_err());
    if texts.is_empty() {
        return;
    }
    let notes = format!("[{}]", texts.join("; "));
    match result {
        Ok(output) => output.content.push(ContentBlock::from_text(notes)),
        Err(Failure::Refused(error)) => push_line(&mut error.message, &notes),
        Err(Failure::Fault(fault)) => push_line(&mut fault.message, &notes),
        Err(Failure::Host(_)) => {}
    }
}

fn push_line(message: &mut String, line: &str) {
    message.push('\n');
    message.push_str(line);
}
