//! The arguments of `toolbay policy`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

/// What to do with a policy.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Find all mistakes of a policy: what cannot be read, and names of plugins, tools and files that do not exist.
    Check {
        /// The policy. Default: the one that the other commands use.
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
        /// Print the findings as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of policies, with which an editor completes and checks them.
    Schema,
}
