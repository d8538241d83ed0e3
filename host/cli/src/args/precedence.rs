//! What a flag means beside a variable.

use clap::ArgMatches;
use clap::error::ErrorKind;
use clap::parser::ValueSource;

use crate::setup::SetupArgs;

/// The arguments that exclude each other. Some have a variable, which gives way to a flag.
const EXCLUSIVE: [(&str, &str); 3] =
    [("no_cache", "cache_dir"), ("shared_nkey", "shared_credentials"), ("plugins", "directory")];

/// Lets the flags of the command line count more than variables.
///
/// # Errors
/// The command line has two flags that exclude each other.
pub(super) fn apply(
    args: &mut SetupArgs,
    matches: &ArgMatches,
    command: &mut clap::Command,
) -> Result<(), clap::Error> {
    for (one, other) in EXCLUSIVE {
        if is_written(matches, one) && is_written(matches, other) {
            let flag = |id: &str| match id {
                "directory" => "[DIR]".to_owned(),
                _ => format!("--{}", id.replace('_', "-")),
            };
            let text = format!("the argument '{}' cannot be used with '{}'", flag(one), flag(other));
            return Err(command.error(ErrorKind::ArgumentConflict, text));
        }
    }
    // `setup::cache_dir` prefers `no_cache`, which has no variable.
    let shared = &mut args.shared;
    if is_written(matches, "shared_credentials") {
        shared.shared_nkey = None;
    } else if shared.shared_nkey.is_some() {
        shared.shared_credentials = None;
    }
    Ok(())
}

/// Whether the command line has an argument, at any level.
pub(super) fn is_written(matches: &ArgMatches, id: &str) -> bool {
    let is_here = matches.try_contains_id(id).unwrap_or(false)
        && matches.value_source(id) == Some(ValueSource::CommandLine);
    is_here || matches.subcommand().is_some_and(|(_, matches)| is_written(matches, id))
}
