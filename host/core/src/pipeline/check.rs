//! Checks for every result: it matches the output schema of its tool and contains no value of a secret.

use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::Failure;
use crate::output::redact::Redactor;
use crate::tool::ToolDef;
use crate::tool::content::ToolOutput;
use crate::tool::json;

/// Checks an output against the output schema of its tool, if the tool has one.
pub(super) fn check_output(tool: &ToolDef, output: &ToolOutput) -> Result<(), Fault> {
    let Some(schema) = &tool.output_schema else { return Ok(()) };
    let bad = |problem: String| {
        Fault::new(
            FaultKind::BadOutput,
            format!("the output of `{}` does not match its schema: {problem}", tool.name),
        )
    };
    let Some(structured) = &output.structured else {
        return Err(bad("it has no structured part".to_owned()));
    };
    let value = json::parse(structured.get()).map_err(|e| bad(e.to_string()))?;
    schema.check(&value).map_err(|m| bad(m.message))
}

/// The result without the values of secrets.
pub(super) fn redact_result(
    redactor: &Redactor,
    result: Result<ToolOutput, Failure>,
) -> Result<ToolOutput, Failure> {
    match result {
        Ok(output) => Ok(redactor.redact_output(output)),
        Err(Failure::Refused(error)) => Err(redactor.redact_error(error).into()),
        Err(Failure::Fault(fault)) => {
            Err(Fault { message: redactor.redact_owned(fault.message), ..fault }.into())
        }
        Err(Failure::Host(message)) => Err(Failure::Host(redactor.redact_owned(message))),
    }
}
