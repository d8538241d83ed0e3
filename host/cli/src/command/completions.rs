//! Completions for shells: `toolbay completions` prints a script that asks this program for candidates.
//!
//! Candidates are the commands, options and paths of the command line, and the names of plugins and tools that the last
//! load of the plugin directory left in the cache ([`names`]). Nothing is loaded or compiled for them.

pub(crate) mod names;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory as _, FromArgMatches as _};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, CompletionCandidate, Shell};

use crate::CommandStatus;
use crate::command::args::{Args, SetupArgs};
use crate::command::setup;
use crate::output;

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
    let completed = CompleteEnv::with_factory(Args::command)
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

/// The names of the tools.
pub(crate) fn tools() -> Vec<CompletionCandidate> {
    candidates(|names| names.tools)
}

/// The ids of the plugins.
pub(crate) fn plugins() -> Vec<CompletionCandidate> {
    candidates(|names| names.plugins)
}

fn candidates(of: impl FnOnce(names::CachedNames) -> Vec<String>) -> Vec<CompletionCandidate> {
    let found = setup_args().and_then(|args| {
        let dir = setup::plugin_folder(&args).ok()?;
        names::read(&setup::cache_dir(&args)?, &dir)
    });
    found.map(of).unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}

/// The common options of the line that is being typed, which may be incomplete.
fn setup_args() -> Option<SetupArgs> {
    let parse = |words: Vec<OsString>| {
        let matches = Args::command().ignore_errors(true).try_get_matches_from(words).ok()?;
        SetupArgs::from_arg_matches(&matches).ok()
    };
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    parse(words.collect()).or_else(|| parse(vec![PROGRAM.into(), "list".into()]))
}
