//! Completions for shells: `toolbay completions` prints a script that asks this program for candidates.
//!
//! Candidates are the commands, options and paths of the command line, and the names of plugins and tools
//! ([`crate::args::candidates`]).

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};

use crate::args::Args;
use crate::output::{self, CommandStatus};

/// The variable in which the script names its shell.
const VARIABLE: &str = "TOOLBAY_COMPLETE";
/// The program that the script asks, found on `PATH`.
const PROGRAM: &str = "toolbay";

/// Prints the script for a shell.
pub(crate) fn run(shell: Shell) -> Result<CommandStatus> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&name).context("there are no completions for this shell")?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    output::stdout().write_all(&script)?;
    Ok(CommandStatus::Success)
}

/// Answers the script of a shell; `None`: this run is none of its questions.
pub(crate) fn answer() -> Option<ExitCode> {
    let working_dir = std::env::current_dir().ok();
    let completed = CompleteEnv::with_factory(Args::command_with_examples)
        .var(VARIABLE)
        .bin(PROGRAM)
        .completer(PROGRAM)
        .try_complete(std::env::args_os(), working_dir.as_deref());
    match completed {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        // A message would end up in the line that is being typed.
        Err(_) => Some(ExitCode::from(2)),
    }
}
