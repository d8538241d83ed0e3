//! The command line.

mod mcp;
mod openapi;
mod policy;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use mcp::{AddArgs, ClientArgs, McpCommand, ServerJsonArgs, SetupCommand};
pub(crate) use openapi::{DocumentArgs, OpenApiCommand};
pub(crate) use policy::PolicyCommand;

use crate::author::args::{BuildArgs, DevArgs, NewArgs, PackArgs, TestArgs};
use clap::{Parser, Subcommand, ValueHint};
use toolbay_policy::quantity::duration as parse_duration;
use toolbay_vendor::Vendor;

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
#[derive(Debug, Clone, clap::Args)]
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
    /// Let the policy grant this path, which plugins never get otherwise: key files, histories, `/proc`, the host's own
    /// files. Can be given several times.
    #[arg(long, global = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) allow_protected_path: Vec<PathBuf>,
    /// Directory of what outlives a run: consents, the audit, the state of plugins. Default: `toolbay` in the user's
    /// state directory.
    #[arg(long, global = true, value_name = "DIR", env = "TOOLBAY_STATE", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// How long to wait for other processes that write to the state directory, for instance `5s`.
    #[arg(long, global = true, value_name = "DURATION", env = "TOOLBAY_STATE_WAIT", default_value = "30s", value_parser = parse_duration)]
    pub(crate) state_wait: Duration,
    /// Where the audit is: one JSON line for each call and each decision. Default: `audit.jsonl` in the state
    /// directory.
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) audit: Option<PathBuf>,
    /// Keep no audit.
    #[arg(long, global = true, conflicts_with = "audit")]
    pub(crate) no_audit: bool,
    /// The profile of the policy under which tools are listed, called and explained.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// What to log on stderr: `error`, `warn`, `info`, `debug`, or a filter such as `toolbay::guest=info`.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "TOOLBAY_LOG",
        default_value = "error,toolbay::audit=warn,toolbay::guest=off"
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
        /// Also list tools that cannot be called here, with the reason.
        #[arg(long, short)]
        all: bool,
    },
    /// List the prompts that plugins ship.
    Prompts {
        /// Print them as JSON, with their arguments.
        #[arg(long)]
        json: bool,
    },
    /// List the resources that plugins ship, and the templates of such.
    Resources {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Call one tool and print its result.
    Call(CallArgs),
    /// Run many calls in parallel and print one JSON line for each, in their order.
    Batch(BatchArgs),
    /// Measure how long calls of one tool take: it is called so many times, and does each time what it does.
    Bench(BenchArgs),
    /// Print a result that was too long and was cut, or a part of it.
    Output(OutputArgs),
    /// Show what a plugin is, what it asks for and what it is granted.
    Inspect {
        /// A plugin's id, or a `.wasm` file.
        plugin: String,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show all that is known of each tool: source, version, digest, tags, and whether it is on.
    Status {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Switch tools on again.
    Enable(SwitchArgs),
    /// Switch tools off: they are not listed, and calls are refused with the reason. Kept in the state directory.
    Disable {
        #[command(flatten)]
        which: SwitchArgs,
        /// Why; told to whoever calls one of them.
        #[arg(long, value_name = "TEXT", default_value = "switched off by the operator")]
        reason: String,
    },
    /// Show why a tool may do what it may: what is declared, granted and refused, and every limit.
    Explain {
        /// The tool's name, as `list --all` shows it.
        tool: String,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Agree to a plugin, and write the lines that it asks for into the policy.
    Grant {
        /// A plugin's id, or a `.wasm` file.
        plugin: String,
        #[command(flatten)]
        decision: PluginDecisionArgs,
        /// Write only what this tool asks for.
        #[arg(long, value_name = "NAME")]
        tool: Option<String>,
    },
    /// Take a plugin's lines out of the policy again, and forget that it was agreed to.
    Revoke {
        /// The plugin's id.
        plugin: String,
        #[command(flatten)]
        decision: PluginDecisionArgs,
    },
    /// Show the audit.
    Log(LogArgs),
    /// Check that plugins load and that clients and vendors will take their tools.
    Check {
        /// Plugin ids or `.wasm` files.
        #[arg(required = true, value_name = "PLUGIN", value_hint = ValueHint::AnyPath)]
        targets: Vec<String>,
    },
    /// Check the policy, or print its schema.
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Find tools by words, or by a name.
    Search {
        /// Words for what the tool should do, or its name.
        #[arg(required = true, num_args = 1..)]
        query: Vec<String>,
        /// Show at most so many.
        #[arg(long, value_name = "TOOLS", default_value_t = 10)]
        limit: usize,
        /// Print what was found as JSON, as `tool_search` gives it to models.
        #[arg(long)]
        json: bool,
    },
    /// Print the definitions of tools in the format of a model vendor.
    Schemas(SchemasArgs),
    /// Compare two versions of a plugin: what it means for who calls its tools, and what it newly asks for.
    Diff {
        /// A plugin's id, or a `.wasm` file.
        old: String,
        /// The same, of the new version.
        new: String,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Serve the tools over MCP, on stdin and stdout or over HTTP.
    Serve {
        /// Serve over HTTP, at `/mcp` and `/mcp/<profile>`: an address such as `127.0.0.1:8080`, a port of this machine,
        /// or `systemd` for the sockets of a unit. Can be given several times. Who may use it, `[serve]` of the policy says.
        #[arg(long, value_name = "ADDR")]
        http: Vec<String>,
        /// List only tools that find, describe and call others, and those that are always listed.
        #[arg(long)]
        lazy: bool,
    },
    /// Take tools of other MCP servers: write them into the policy, list and check them.
    Mcp {
        #[command(subcommand)]
        command: McpCommand,
    },
    /// Print, or write, how an MCP client starts `toolbay serve` with the plugins and the policy of this command line.
    Setup {
        #[command(subcommand)]
        command: SetupCommand,
    },
    /// Use a service that an OpenAPI document describes: its operations become tools.
    #[command(name = "openapi")]
    OpenApi {
        #[command(subcommand)]
        command: OpenApiCommand,
    },
    /// Look at what plugins keep, and remove it.
    Kv {
        #[command(subcommand)]
        command: KvCommand,
        /// Print it as JSON.
        #[arg(long, global = true)]
        json: bool,
    },
    /// Make a project of a new plugin.
    New(NewArgs),
    /// Build the plugin of a project, and put it into the plugin directory.
    Build(BuildArgs),
    /// Test the plugin of a project: its own tests, then the examples of its tools against the built component.
    Test(TestArgs),
    /// Build a project again whenever a source changes, and show what becomes of it and who calls it.
    Dev(DevArgs),
    /// Build the component of a project with what says what it is inside: metadata, licence, dependencies, README, icon.
    Pack(PackArgs),
    /// Write a Markdown page for each tool of a plugin.
    Docs {
        /// A plugin's id, or a `.wasm` file.
        plugin: String,
        /// The folder of the pages. Default: they are printed.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        out: Option<PathBuf>,
    },
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Which definitions, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct SchemasArgs {
    /// The tools; without any, all that are listed at first.
    #[arg(value_name = "TOOL")]
    pub(crate) tools: Vec<String>,
    /// The format: `openai-chat`, `openai-responses`, `anthropic`, `gemini` or `mcp`.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Vendor,
    /// Strict mode, for each tool whose schema it can say exactly.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print an object with the definitions, what the format could not hold, and which tools are not strict.
    #[arg(long)]
    pub(crate) report: bool,
}

/// What to do with the state of plugins.
#[derive(Debug, Subcommand)]
pub(crate) enum KvCommand {
    /// List a plugin's entries, of all scopes.
    List {
        /// The plugin's id.
        plugin: String,
        /// Show at most so many.
        #[arg(long, value_name = "ENTRIES", default_value_t = 1000)]
        limit: usize,
    },
    /// Print the value of one entry, as it is.
    Get(EntryArgs),
    /// Remove one entry.
    Remove(EntryArgs),
    /// Remove everything a plugin keeps.
    Clear {
        /// The plugin's id.
        plugin: String,
    },
    /// Show how much each plugin keeps.
    Usage,
    /// Write a consistent copy to a new file while the store is in use. The copy can replace `kv.redb`.
    Backup {
        /// The file, which must not exist.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// Which entry.
#[derive(Debug, clap::Args)]
pub(crate) struct EntryArgs {
    /// The plugin's id.
    pub(crate) plugin: String,
    /// The key.
    pub(crate) key: String,
    /// The scope: `tool`, `plugin`, `session` or `agent`.
    #[arg(long, default_value = "plugin")]
    pub(crate) scope: String,
    /// Whose entry it is, as `list` shows it: the tool, the session, `agent:ID` or `personality:ID`.
    #[arg(long, value_name = "ID", default_value = "")]
    pub(crate) owner: String,
}

/// Files for a call, and from it.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachmentArgs {
    /// Attach a file; tools that were granted its media type can read it. May be given several times.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) attach: Vec<PathBuf>,
    /// Write the attachments that the tool makes into this directory. Nothing is overwritten.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) save_attachments: Option<PathBuf>,
}

/// How a decision is taken.
#[derive(Debug, clap::Args)]
pub(crate) struct DecisionArgs {
    /// Do not ask; needed where there is no terminal.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Show what would be done, do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// How a decision about a plugin is taken.
#[derive(Debug, clap::Args)]
pub(crate) struct PluginDecisionArgs {
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
    /// Only these lists of the policy: `net,fs_read`.
    #[arg(long, value_name = "LISTS", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
}

/// What of the audit is shown.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct LogArgs {
    /// Go on with what is written from now on.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Calls of this tool.
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Calls of and decisions about this plugin.
    #[arg(long, value_name = "ID")]
    pub(crate) plugin: Option<String>,
    /// Calls of this session.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Calls that ended so: `ok`, an error code, a fault, or `host_failed`.
    #[arg(long, value_name = "OUTCOME", conflicts_with = "failed")]
    pub(crate) outcome: Option<String>,
    /// Calls that did not end well.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Calls that were refused something, and plugins that were.
    #[arg(long)]
    pub(crate) refused: bool,
    /// From this time on: `10m` ago (`s`, `m`, `h`, `d`), or `2026-02-03T04:05:06Z`.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// At most so many of the last ones.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Print the lines as they are in the file.
    #[arg(long)]
    pub(crate) json: bool,
    /// Count them by tool and outcome.
    #[arg(long, conflicts_with_all = ["follow", "json"])]
    pub(crate) stats: bool,
}

/// Which tools are switched.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct SwitchArgs {
    /// Names of tools, as `list --all` shows them.
    #[arg(value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// All tools of a namespace, also those that come later: a plugin's id, for instance. Can be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Vec<String>,
    /// The tools that have this tag now; of several, one is enough. Can be given several times.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// Of several tags, only the tools that have all of them.
    #[arg(long, requires = "tag")]
    pub(crate) all_tags: bool,
}

/// How calls are run, and who answers when one is to be approved. Without a flag the terminal is asked; without a terminal
/// the call is refused.
#[derive(Debug, clap::Args)]
pub(crate) struct TurnArgs {
    /// Characters that all results may have together.
    #[arg(long, value_name = "CHARS", default_value_t = toolbay_core::call::DEFAULT_BUDGET_CHARS)]
    pub(crate) budget: usize,
    /// Check everything, run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The session that the calls belong to. What is cut from results is kept for it: `toolbay output`.
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Approve every call that the policy wants asked about. What it denies stays denied.
    #[arg(long, short, conflicts_with = "deny")]
    pub(crate) yes: bool,
    /// Refuse every call that the policy wants asked about.
    #[arg(long)]
    pub(crate) deny: bool,
}

/// One call.
#[derive(Debug, clap::Args)]
pub(crate) struct CallArgs {
    /// The tool's name, as `list` shows it.
    pub(crate) tool: String,
    /// The arguments, a JSON object; `-` reads them from stdin.
    #[arg(value_name = "JSON", conflicts_with = "args_file")]
    pub(crate) json_args: Option<String>,
    /// Read the arguments from a file; `-` is stdin.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) args_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) attachments: AttachmentArgs,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
    /// Print the full result as JSON, with usage, cost and the reason of a failure.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Many calls.
#[derive(Debug, clap::Args)]
pub(crate) struct BatchArgs {
    /// JSON lines, or one JSON array, of `{"id": "1", "tool": "text__word_count", "args": {…}}`; `-` is stdin.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
    /// Print one JSON object: all results, and what they cost together.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// The tool's name, as `list` shows it.
    pub(crate) tool: String,
    /// The arguments of each call, a JSON object; `-` reads them from stdin.
    #[arg(value_name = "JSON", conflicts_with = "args_file")]
    pub(crate) json_args: Option<String>,
    /// Read the arguments from a file; `-` is stdin.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) args_file: Option<PathBuf>,
    /// How many calls are made one after the other, and again as one batch.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) calls: u32,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which kept result, and what of it.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// The id, as the cut result names it. Without one: list what is kept for the session.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The session of the call.
    #[arg(long, value_name = "NAME")]
    pub(crate) session: String,
    /// The first lines.
    #[arg(long, value_name = "N", group = "part", requires = "id")]
    pub(crate) head: Option<usize>,
    /// The last lines.
    #[arg(long, value_name = "N", group = "part", requires = "id")]
    pub(crate) tail: Option<usize>,
    /// Lines from one to another, counted from 1: `10:20`, `10:`, `:20`.
    #[arg(long, value_name = "A:B", group = "part", requires = "id")]
    pub(crate) range: Option<String>,
    /// Characters from one to another, counted from 1.
    #[arg(long, value_name = "A:B", group = "part", requires = "id")]
    pub(crate) chars: Option<String>,
    /// The lines that hold these words.
    #[arg(long, value_name = "TEXT", group = "part", requires = "id")]
    pub(crate) grep: Option<String>,
    /// `--grep` is a regular expression.
    #[arg(long, requires = "grep")]
    pub(crate) regex: bool,
    /// Capital letters do not count.
    #[arg(long, short, requires = "grep")]
    pub(crate) ignore_case: bool,
    /// Lines shown before and after each that `--grep` found.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "grep")]
    pub(crate) around: usize,
    /// How long it is.
    #[arg(long, group = "part", requires = "id")]
    pub(crate) size: bool,
    /// Print the list as JSON.
    #[arg(long, conflicts_with = "id")]
    pub(crate) json: bool,
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
