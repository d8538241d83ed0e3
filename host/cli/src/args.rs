//! The command line.

mod author;
mod call;
pub(crate) mod candidates;
mod control;
mod decision;
#[cfg(test)]
mod documentation_tests;
mod examples;
mod groups;
mod kv;
mod log;
mod mcp;
mod openapi;
mod origin;
mod policy;
mod precedence;
mod registry;
mod shared;
mod suggestions;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use author::{BuildArgs, DevArgs, NewArgs, PackArgs, PluginLanguage, ProjectArgs, TestArgs};
pub(crate) use call::{AttachmentArgs, BatchArgs, BenchArgs, CallArgs, OutputArgs, read_text};
pub(crate) use control::{BackupArgs, CallNumber};
pub(crate) use decision::{DecisionArgs, PluginDecisionArgs};
pub(crate) use kv::{EntryArgs, KvCommand};
pub(crate) use log::{LogArgs, StatsGroup};
pub(crate) use mcp::{AddArgs, ClientArgs, McpCommand, ServerJsonArgs, SetupCommand};
pub(crate) use openapi::{DocumentArgs, OpenApiCommand};
pub(crate) use policy::PolicyCommand;
pub(crate) use registry::{AddPluginArgs, ExportArgs, ImportArgs, KeyCommand, PushArgs, UpdateArgs};
pub(crate) use shared::SharedCommand;

use crate::output::Printer;
use crate::setup::SetupArgs;
use crate::setup::args::absolute_path;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use clap_complete::ArgValueCandidates;
use origin::Origin;
use toolbay_vendor::Vendor;

/// A parser of two texts with a character between them: `NAME=VALUE`.
fn pair(between: char) -> impl Fn(&str) -> Result<(String, String), String> + Clone + Send + Sync + 'static {
    move |text| {
        let (name, value) = text.split_once(between).ok_or_else(|| format!("it has no `{between}`"))?;
        Ok((name.to_owned(), value.to_owned()))
    }
}

/// The commands that refuse `--json`, each with the reason.
const WITHOUT_JSON: [(&str, &str); 4] = [
    ("serve", "stdout carries the protocol"),
    ("dev", "it runs until it is interrupted"),
    ("completions", "stdout is a script for the shell"),
    ("man", "it writes files, and its messages are notes"),
];

/// Runs the tools of LLM agents from WebAssembly components, in a sandbox.
#[derive(Debug, Parser)]
#[command(name = "toolbay", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) setup: SetupArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Parses the words of this process.
    ///
    /// # Errors
    /// Wrong words; or a help page, which is printed.
    pub(crate) fn parse_command_line() -> Result<Self, clap::Error> {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        Self::parse_words(words)
    }

    /// Parses the words after the name of the program.
    fn parse_words(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Self, clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let mut command = groups::add_to(Self::command_with_examples());
        let all = std::iter::once(OsString::from("toolbay")).chain(words.iter().cloned());
        let parsed = command.try_get_matches_from_mut(all);
        let matches = parsed.map_err(|error| {
            suggestions::improve(error, &command, words.iter().filter_map(|word| word.to_str()))
        })?;
        let mut args = Self::from_arg_matches(&matches)?;
        precedence::apply(&mut args.setup, &matches, &mut command)?;
        if let Command::Serve { directory: directory @ Some(_), .. } = &mut args.command {
            args.setup.plugins = directory.take();
        }
        let without_json = WITHOUT_JSON.iter().find(|(name, _)| matches.subcommand_name() == Some(*name));
        if let Some((name, reason)) = without_json.filter(|_| precedence::is_written(&matches, "json")) {
            let text = format!("`toolbay {name}` has no '--json': {reason}");
            return Err(command.error(ErrorKind::ArgumentConflict, text));
        }
        let printer = Printer::new(args.setup.json, args.setup.log_format);
        let is_server = matches!(args.command, Command::Serve { .. });
        args.setup.printer = if is_server { printer.for_server() } else { printer };
        Ok(args)
    }

    /// The command line with an example on each help page. The pages of commands without JSON do not show `--json`.
    pub(crate) fn command_with_examples() -> clap::Command {
        let hidden = Arg::new("json").long("json").action(ArgAction::SetTrue).hide(true);
        let command = examples::add_to(Self::command()).long_version(versions());
        WITHOUT_JSON
            .iter()
            .fold(command, |command, (name, _)| command.mut_subcommand(name, |sub| sub.arg(&hidden)))
    }
}

/// The versions of the program and of what it speaks, for bug reports.
fn versions() -> String {
    let mcp = toolbay_mcp::protocol_revisions().collect::<Vec<_>>().join(", ");
    let origin = Origin::of_this_program().map(|origin| format!("\norigin    {}", origin.as_str()));
    format!(
        "{}\ncommit    {}{}\nwasmtime  {}\ncontract  {}\nmcp       {mcp}",
        env!("CARGO_PKG_VERSION"),
        option_env!("TOOLBAY_COMMIT").unwrap_or("unknown"),
        origin.unwrap_or_default(),
        toolbay::WASMTIME_VERSION,
        toolbay::CONTRACT,
    )
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the tools.
    List {
        /// List every tool with its status, grouped by plugin.
        #[arg(long, short)]
        all: bool,
    },
    /// List the prompts that plugins ship.
    Prompts,
    /// List the resources and resource templates that plugins ship.
    Resources,
    /// Call one tool and print its result.
    Call(CallArgs),
    /// Run many calls in parallel and print one JSON line for each, in order.
    Batch(BatchArgs),
    /// Measure how long calls of one tool take. Each call has its usual effects.
    Bench(BenchArgs),
    /// Print a saved result that was too long for its call, or a part of it.
    Output(OutputArgs),
    /// Describe a plugin: its file, its tools, the capabilities it asks for and those it is granted.
    Inspect {
        /// A plugin's id, or a `.wasm` file.
        #[arg(add = ArgValueCandidates::new(candidates::plugins))]
        plugin: String,
    },
    /// Show the state of the host: plugins, tools, policy, servers, audit and sandbox.
    Status {
        /// List each tool instead, with its state, source, version, digest, tags and flags.
        #[arg(long)]
        tools: bool,
    },
    /// List the calls in progress of the running servers.
    Ps,
    /// Cancel a call in progress.
    Cancel {
        /// The id of the call, as `ps` shows it.
        #[arg(value_name = "ID")]
        id: CallNumber,
    },
    /// Cancel all calls and refuse new ones, also after a restart, until `resume`.
    Stop {
        /// The reason that callers see.
        #[arg(long, value_name = "TEXT", default_value = "no reason was given")]
        reason: String,
    },
    /// Allow calls again after `stop`.
    Resume,
    /// Enable tools again.
    Enable {
        #[command(flatten)]
        selection: SwitchArgs,
    },
    /// Disable tools: they are not listed, and calls are refused with the reason. The state directory records it.
    Disable {
        #[command(flatten)]
        selection: SwitchArgs,
        /// The reason that callers see.
        #[arg(long, value_name = "TEXT", default_value = "switched off by the operator")]
        reason: String,
    },
    /// Show what a tool may do and why: what it declares, what the policy grants, and what becomes of a call.
    Explain {
        /// The tool's name, as `list --all` shows it.
        #[arg(add = ArgValueCandidates::new(candidates::tools))]
        tool: String,
        /// Show each limit with its value, where it is set and how to raise it.
        #[arg(long)]
        limits: bool,
    },
    /// Grant a plugin what it asks for: add the lines to the policy and record the consent.
    Grant {
        /// A plugin's id, or a `.wasm` file.
        #[arg(add = ArgValueCandidates::new(candidates::plugins))]
        plugin: String,
        #[command(flatten)]
        decision: PluginDecisionArgs,
        /// Grant only what this tool asks for.
        #[arg(long, value_name = "NAME")]
        tool: Option<String>,
    },
    /// Remove the grants of a plugin from the policy, and its consent.
    Revoke {
        /// The plugin's id.
        #[arg(add = ArgValueCandidates::new(candidates::plugins))]
        plugin: String,
        #[command(flatten)]
        decision: PluginDecisionArgs,
    },
    /// Show the audit.
    Log(LogArgs),
    /// Check that plugins load, and that MCP clients and model vendors accept their tools.
    Check {
        /// Plugin ids or `.wasm` files.
        #[arg(required = true, value_name = "PLUGIN", value_hint = ValueHint::AnyPath, add = ArgValueCandidates::new(candidates::plugins))]
        targets: Vec<String>,
        /// Treat warnings as failures.
        #[arg(long)]
        strict: bool,
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
        /// The maximum number of results.
        #[arg(long, value_name = "TOOLS", default_value_t = 10)]
        limit: usize,
    },
    /// Print the definitions of tools in the format of a model vendor.
    Schemas(SchemasArgs),
    /// Compare two versions of a plugin: what breaks callers, and which capabilities are new.
    Diff {
        /// The old version: a plugin's id, or a `.wasm` file.
        #[arg(add = ArgValueCandidates::new(candidates::plugins))]
        old: String,
        /// The new version.
        #[arg(add = ArgValueCandidates::new(candidates::plugins))]
        new: String,
    },
    /// Serve the tools over MCP, on stdin and stdout or over HTTP.
    Serve {
        /// Directory of plugins, as `--plugins` names it.
        #[arg(value_parser = absolute_path(), value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
        /// Serve over HTTP, at `/mcp` and `/mcp/<profile>`: an address such as `127.0.0.1:8080`, a port of this
        /// machine, or `systemd` for the sockets of a unit. Repeatable. `[serve]` of the policy decides who may
        /// connect.
        #[arg(long, value_name = "ADDR")]
        http: Vec<String>,
        /// List only the tools that find, describe and call others, and those with `always_include`.
        #[arg(long)]
        lazy: bool,
        /// The name of this server among those that share state. No two have the same. Default: the name of the machine.
        #[arg(
            long,
            value_name = "NAME",
            env = "TOOLBAY_REPLICA",
            hide_env_values = true,
            requires = "shared"
        )]
        replica: Option<String>,
    },
    /// Publish to identical servers, and show what they share.
    Shared {
        #[command(subcommand)]
        command: SharedCommand,
    },
    /// Add a plugin of a registry to the lock, without grants.
    Add(AddPluginArgs),
    /// Download the plugins that the lock names and this machine does not have.
    Fetch {
        /// Show what is missing, and download nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Check the plugins of the lock: their components, and their signatures by the rules of the policy.
    Verify {
        /// Use no network. Otherwise the registries are asked whether the tags still lead to the locked versions.
        #[arg(long)]
        offline: bool,
    },
    /// List newer versions of the plugins of the lock.
    Outdated,
    /// Replace plugins of the lock with their newest compatible versions, after showing what changes.
    Update(UpdateArgs),
    /// Write plugins of the lock into one file, for a machine without a network.
    Export(ExportArgs),
    /// Lock plugins from a file that `toolbay export` wrote, without a network.
    Import(ImportArgs),
    /// Remove downloaded blobs that no lock has needed for 30 days.
    Gc {
        /// Show what would be removed, and remove nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Add, list, check and remove other MCP servers whose tools Toolbay serves.
    Mcp {
        #[command(subcommand)]
        command: McpCommand,
    },
    /// Print or write the configuration with which an MCP client starts `toolbay serve`.
    Setup {
        #[command(subcommand)]
        command: SetupCommand,
    },
    /// Turn the operations of an OpenAPI document into tools.
    #[command(name = "openapi")]
    OpenApi {
        #[command(subcommand)]
        command: OpenApiCommand,
    },
    /// Show and remove what plugins store in the key-value storage.
    Kv {
        #[command(subcommand)]
        command: KvCommand,
    },
    /// Create the project of a new plugin.
    New(NewArgs),
    /// Build the plugin of a project and install it into the plugin directory.
    Build(BuildArgs),
    /// Run the tests of a project, then the examples of its tools on the built component.
    Test(TestArgs),
    /// Build a project whenever a source changes, and show what changed and who calls it.
    Dev(DevArgs),
    /// Build the release of a project with its metadata, licence, dependencies, README and icon inside.
    Pack(PackArgs),
    /// Upload a component to a registry. A tag is never moved to another component.
    Push(PushArgs),
    /// Make and show the keys that plugins are signed with.
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Write a Markdown page for each tool of a plugin.
    Docs {
        /// A plugin's id, or a `.wasm` file.
        #[arg(add = ArgValueCandidates::new(candidates::plugins))]
        plugin: String,
        /// The folder for the pages. Default: stdout.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        out: Option<PathBuf>,
    },
    /// Copy the state directory to a new directory, also while servers use it.
    Backup(BackupArgs),
    /// Replace the state directory with a backup. The old one stays beside it.
    Restore(BackupArgs),
    /// Write a man page for each command into a directory.
    Man {
        /// The directory, which is created.
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// The arguments of `toolbay schemas`.
#[derive(Debug, clap::Args)]
pub(crate) struct SchemasArgs {
    /// The tools. Default: all that a client is listed first.
    #[arg(value_name = "TOOL", add = ArgValueCandidates::new(candidates::tools))]
    pub(crate) tools: Vec<String>,
    /// Only tools with one of these tags. Repeatable.
    #[arg(long, value_name = "TAG", conflicts_with = "tools")]
    pub(crate) tag: Vec<String>,
    /// Only tools with all tags of `--tag`.
    #[arg(long, requires = "tag")]
    pub(crate) all_tags: bool,
    /// No tools with this tag. Repeatable.
    #[arg(long, value_name = "TAG", conflicts_with = "tools")]
    pub(crate) exclude_tag: Vec<String>,
    /// The format: `openai-chat`, `openai-responses`, `anthropic`, `gemini` or `mcp`.
    #[arg(long, value_name = "FORMAT", default_value = "mcp")]
    pub(crate) format: Vendor,
    /// Use strict mode for each tool whose schema it can express exactly.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print an object with the definitions, what the format cannot express, and the tools that are not strict.
    #[arg(long)]
    pub(crate) report: bool,
}

/// The tools to enable or disable.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct SwitchArgs {
    /// Names of tools, as `list --all` shows them.
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(candidates::tools))]
    pub(crate) tools: Vec<String>,
    /// All tools of a namespace, such as a plugin's id, including later ones. Repeatable.
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(candidates::plugins))]
    pub(crate) namespace: Vec<String>,
    /// The tools that have this tag now. Repeatable; one matching tag is enough.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// Require all tags.
    #[arg(long, requires = "tag")]
    pub(crate) all_tags: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_command_without_json_refuses_it_and_does_not_show_it() {
        let mut command = Args::command_with_examples();
        command.build();
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let name = sub.get_name();
            let is_shown = sub.get_arguments().any(|arg| arg.get_id() == "json" && !arg.is_hide_set());
            assert_eq!(is_shown, WITHOUT_JSON.iter().all(|(without, _)| *without != name), "{name}");
        }
        for (name, reason) in WITHOUT_JSON {
            let further = match name {
                "completions" => Some("bash"),
                "man" => Some("pages"),
                _ => None,
            };
            for words in [[name, "--json"], ["--json", name]] {
                let error = Args::parse_words(words.into_iter().chain(further)).unwrap_err().to_string();
                assert!(error.contains(reason), "{words:?}: {error}");
            }
        }
        for words in [["--json", "list"], ["list", "--json"]] {
            assert!(Args::parse_words(words).unwrap().setup.printer.is_json(), "{words:?}");
        }
    }
}
