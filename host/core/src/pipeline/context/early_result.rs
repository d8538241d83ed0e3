//! The end of a call before its tool runs.

use crate::call::dialog::INPUT_REQUIRED;
use crate::call::invoke::Failure;
use crate::tool::content::ToolOutput;
use crate::tool::fault::Fault;
use crate::tool::refusal::{Refusal, RefusalReason};

/// The result of a call that ends before its tool runs. No variant holds the error of a tool, so every refusal has a reason.
pub(crate) enum EarlyResult {
    /// A gate refused the call.
    Refused(Refusal),
    /// The call was cancelled, or waited too long.
    Fault(Fault),
    /// The host failed.
    HostFailed(String),
    /// A dry run ends here.
    DryRun(ToolOutput),
    /// The client repeats the call with the reply of a person. This attempt counts for no budget.
    NeedsInput,
}

impl EarlyResult {
    /// The result for the caller, who called this tool.
    pub(crate) fn into_result(self, tool: &str) -> Result<ToolOutput, Failure> {
        match self {
            Self::Refused(refusal) => Err(refusal.into()),
            Self::Fault(fault) => Err(fault.into()),
            Self::HostFailed(problem) => Err(Failure::Host(problem)),
            Self::DryRun(output) => Ok(output),
            Self::NeedsInput => {
                let text = format!("Tool {tool} was not run: the call needs an approval first");
                Err(Refusal::new(RefusalReason::InputRequired, text).with_subject(INPUT_REQUIRED).into())
            }
        }
    }
}

impl From<Refusal> for EarlyResult {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Fault> for EarlyResult {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
