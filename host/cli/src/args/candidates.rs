//! Candidates of completions: the names of plugins and tools that the last load of the plugin directory left in the cache
//! ([`names`]). Nothing is loaded or compiled for them.

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _};
use clap_complete::CompletionCandidate;

use super::Args;
use crate::setup::{self, SetupArgs, names};

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
    parse(words.collect()).or_else(|| parse(vec!["toolbay".into(), "list".into()]))
}
