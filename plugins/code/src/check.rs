//! One run of a check.

use toolbay_sdk::context;
use toolbay_sdk::prelude::*;
use toolbay_sdk::process::Command;

use crate::problems::{CompilerProblem, problems};

/// Characters of the result that do not come from the program.
const AROUND: usize = 400;

/// The result of a check.
#[data]
#[derive(Debug, PartialEq)]
pub struct CheckReport {
    /// Whether the check passed: exit code 0.
    pub clean: bool,
    /// The program's exit code; absent when a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The problems that the output reports with a line number.
    pub problems: Vec<CompilerProblem>,
    /// Whether problems or output were left out.
    pub truncated: bool,
}

/// The output of a program: the ends of both streams.
pub(crate) struct CheckOutput {
    pub(crate) exit_code: Option<i32>,
    pub(crate) text: String,
    pub(crate) truncated: bool,
}

impl CheckOutput {
    pub(crate) fn clean(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// The text within the call's budget. A program prints its summary at the end.
    pub(crate) fn shown(&self, first: &str) -> String {
        let room = (context::budget_chars() as usize).saturating_sub(AROUND + first.chars().count());
        let total = self.text.chars().count();
        let text: String = self.text.chars().skip(total.saturating_sub(room)).collect();
        let cut =
            if total > room { format!("[{} characters left out]\n", total - room) } else { String::new() };
        let how = match self.exit_code {
            Some(code) => format!("[exit code {code}]"),
            None => "[ended by a signal]".to_owned(),
        };
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        format!("{first}\n{cut}{text}{gap}{how}")
    }
}

/// Runs a command of the operator.
pub(crate) fn run(mut command: Command, timeout_ms: Option<u32>) -> Result<CheckOutput> {
    command.timeout_ms = timeout_ms;
    let done = command.run()?;
    let (out, err) = (done.stdout_text(), done.stderr_text());
    let gap = if out.is_empty() || out.ends_with('\n') { "" } else { "\n" };
    Ok(CheckOutput { exit_code: done.exit_code, text: format!("{out}{gap}{err}"), truncated: done.truncated })
}

/// Runs a check whose problems are lines with a location.
pub(crate) fn check(command: Command, timeout_ms: Option<u32>) -> Result<Rendered<CheckReport>> {
    let said = run(command, timeout_ms)?;
    let (problems, more) = problems(&said.text);
    let first = match (said.clean(), problems.len()) {
        (true, 0) => "Clean.".to_owned(),
        (true, n) => format!("Passed, with {n} remarks."),
        (false, n) => format!("Not clean: {n}{} problems with a place.", if more { " or more" } else { "" }),
    };
    let text = said.shown(&first);
    let data = CheckReport {
        clean: said.clean(),
        exit_code: said.exit_code,
        problems,
        truncated: said.truncated || more,
    };
    Ok(Rendered { text, data })
}
