//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};

/// Runs the tools of LLM agents from WebAssembly components, in a sandbox.
#[derive(Debug, Parser)]
#[command(name = "toolbay", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) setup: SetupArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where plugins, policy and cache are; the same for all commands.
#[derive(Debug, clap::Args)]
pub(crate) struct SetupArgs {
    /// Directory of plugins: every `.wasm` file in it is loaded. Default: `toolbay/plugins` in the user's data
    /// directory.
    #[arg(long, global = true, value_name = "DIR", env = "TOOLBAY_PLUGINS", value_hint = ValueHint::DirPath)]
    pub(crate) plugins: Option<PathBuf>,
    /// The policy, which says what plugins may reach. Default: `toolbay/toolbay.toml` in the user's configuration
    /// directory, if it is there; otherwise nothing is granted. Never looked for in the current directory.
    #[arg(long, global = true, value_name = "FILE", env = "TOOLBAY_CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// What `$workspace` means in the policy, instead of what the policy says. Without a policy: the current
    /// directory.
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Directory of compiled code, writable by this user only. Default: `toolbay` in the user's cache directory.
    #[arg(long, global = true, value_name = "DIR", env = "TOOLBAY_CACHE", value_hint = ValueHint::DirPath)]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Compile at every start and keep nothing on disk.
    #[arg(long, global = true, conflicts_with = "cache_dir")]
    pub(crate) no_cache: bool,
    /// Append one JSON line for each call to this file.
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) audit: Option<PathBuf>,
    /// What to log on stderr: `error`, `warn`, `info`, `debug`, or a filter such as `toolbay::guest=info`.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "TOOLBAY_LOG",
        default_value = "error,toolbay::guest=off"
    )]
    pub(crate) log: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the tools.
    List {
        /// Print the full definitions as JSON.
        #[arg(long)]
        json: bool,
        /// Also list tools that can not be called here, with the reason.
        #[arg(long, short)]
        all: bool,
    },
    /// Call one tool and print its result.
    Call {
        /// The tool's name, as `list` shows it.
        tool: String,
        /// The arguments, a JSON object; `-` reads them from stdin.
        #[arg(value_name = "JSON", conflicts_with = "args_file")]
        json_args: Option<String>,
        /// Read the arguments from a file; `-` is stdin.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        args_file: Option<PathBuf>,
        #[command(flatten)]
        turn: TurnArgs,
        /// Print the full result as JSON, with usage and the reason of a failure.
        #[arg(long)]
        json: bool,
    },
    /// Run many calls in parallel and print one JSON line for each, in their order.
    Batch {
        /// JSON lines, or one JSON array, of `{"id": "1", "tool": "text__word_count", "args": {…}}`; `-` is stdin.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        turn: TurnArgs,
    },
    /// Show what a plugin is, what it asks for and what it is granted.
    Inspect {
        /// A plugin's id, or a `.wasm` file.
        plugin: String,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check that plugins load and that clients and vendors will take their tools.
    Check {
        /// Plugin ids or `.wasm` files.
        #[arg(required = true, value_name = "PLUGIN", value_hint = ValueHint::AnyPath)]
        targets: Vec<String>,
    },
    /// Serve the tools over MCP on stdin and stdout.
    Serve,
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// How calls are run.
#[derive(Debug, clap::Args)]
pub(crate) struct TurnArgs {
    /// Characters that all results may have together.
    #[arg(long, value_name = "CHARS", default_value_t = toolbay_core::call::DEFAULT_BUDGET_CHARS)]
    pub(crate) budget: usize,
    /// Check everything, run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }
}
