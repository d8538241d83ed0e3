//! Programs and MCP servers that run without a sandbox on a system that has one.

use super::{CheckInput, CheckReport};
use crate::capability::program::SandboxMode;

/// Adds a problem for each program with `sandbox = "none"` that this system could confine.
pub(super) fn check_unconfined(input: &CheckInput<'_>, report: &mut CheckReport) {
    let sections = input.policy.program_sections();
    let mut unconfined = sections.filter(|one| one.program.sandbox == SandboxMode::None).peekable();
    // The machine is only asked if a section depends on it: the answer takes a thread.
    if unconfined.peek().is_none() {
        return;
    }
    let Some(mode) = input.machine.sandbox() else { return };
    for section in unconfined {
        let message = "it runs with all rights of the host's user, although this system can confine it";
        let [read, write, execute] = section.keys;
        let help = format!(
            "write `sandbox = \"{}\"`, and list the folders that it needs with `{read}`, `{write}` and `{execute}`",
            mode.name()
        );
        report.warn(section.table.into_iter().chain(["sandbox"]), message.to_owned(), help);
    }
}
