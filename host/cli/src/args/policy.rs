//! The arguments of `toolbay policy`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

/// The commands below `toolbay policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Find all mistakes of a policy: syntax, keys, values, and names of plugins, tools and files that do not exist.
    Check {
        /// The policy. Default: the one that the other commands use.
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
        /// Treat warnings as failures.
        #[arg(long)]
        strict: bool,
    },
    /// Print the JSON Schema of policies, for completion and checks in an editor.
    Schema,
}
