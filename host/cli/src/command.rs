//! One module for each command, and what several commands share.

pub(crate) mod approval;
pub(crate) mod args;
pub(crate) mod completions;
pub(crate) mod control;
pub(crate) mod known_plugins;
pub(crate) mod load_report;
pub(crate) mod locked;
pub(crate) mod named_path;
pub(crate) mod policy_file;
pub(crate) mod servers;
pub(crate) mod setup;

mod add;
mod attachments;
mod backup;
mod batch;
mod bench;
mod call;
mod call_error;
mod check;
mod client_setup;
mod diff;
mod docs;
mod explain;
mod export;
mod fetch;
mod garbage;
mod grant;
mod import;
mod inspect;
mod install;
mod key;
mod kv;
mod large_sources;
mod list;
mod log;
mod long_names;
mod man;
mod mcp;
mod new_secrets;
mod openapi;
mod outdated;
mod output;
mod policy;
mod prompts_and_resources;
mod push;
mod readiness;
mod revoke;
mod schema_losses;
mod schemas;
mod search;
mod serve;
mod services;
mod shared;
mod status;
mod switch;
mod trust;
mod update;
mod verify;
mod version_diff;

pub(crate) use grant::policy_for_declared;
pub(crate) use log::LiveCalls;

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use tokio::signal::unix::Signal;
use toolbay::{Filter, Host, PluginId, Session, TurnContext, View};
use toolbay_core::registry::{AbsentSource, ToolEntry};
use toolbay_policy::GrantKey;
use toolbay_policy::similar;

use crate::command::args::{Args, Command, DecisionArgs, SetupArgs, TurnArgs};
use crate::command::setup::ReportLevel;
use crate::output::error::CommandError;
use crate::output::{print_note, stderr, style_for_stderr};
use crate::{CommandStatus, author};

/// Runs the command. A server takes `hangup`, the SIGHUPs since the process began.
pub(crate) async fn run(mut args: Args, hangup: Option<Signal>) -> Result<CommandStatus> {
    setup::start_log(&args.setup)?;
    // The published files are there as long as the command runs.
    let _pulled = shared::pull(&mut args.setup, &args.command).await?;
    run_command(args, hangup).await
}

async fn run_command(args: Args, hangup: Option<Signal>) -> Result<CommandStatus> {
    let setup = &args.setup;
    match args.command {
        Command::List { json, all } => list::run(setup, json, all).await,
        Command::Prompts { json } => prompts_and_resources::prompts(setup, json).await,
        Command::Resources { json } => prompts_and_resources::resources(setup, json).await,
        Command::Call(asked) => call::run(setup, asked).await,
        Command::Batch(asked) => batch::run(setup, &asked).await,
        Command::Bench(asked) => bench::run(setup, asked).await,
        Command::Output(which) => output::run(setup, &which).await,
        Command::Inspect { plugin, json } => inspect::run(setup, &plugin, json).await,
        Command::Status { tools, json } => status::run(setup, tools, json).await,
        Command::Ps { json } => control::list(setup, json).await,
        Command::Cancel(asked) => control::cancel(setup, &asked).await,
        Command::Stop(asked) => control::stop(setup, &asked).await,
        Command::Resume { json } => control::resume(setup, json).await,
        Command::Enable { which, json } => switch::enable(setup, &which, json).await,
        Command::Disable { which, reason, json } => switch::disable(setup, &which, &reason, json).await,
        Command::Explain { tool, limits, json } => explain::run(setup, &tool, limits, json).await,
        Command::Grant { plugin, decision, tool } => {
            grant::run(setup, &plugin, &decision, tool.as_deref()).await
        }
        Command::Revoke { plugin, decision } => revoke::run(setup, &plugin, &decision).await,
        Command::Log(which) => log::run(setup, &which),
        Command::Check { targets, strict, json } => check::run(setup, &targets, strict, json).await,
        Command::Policy { command } => policy::run(setup, command).await,
        Command::Search { query, limit, json } => search::run(setup, &query.join(" "), limit, json).await,
        Command::Schemas(asked) => schemas::run(setup, &asked).await,
        Command::Diff { old, new, json } => diff::run(setup, &old, &new, json).await,
        Command::Serve { lazy, http, replica } => {
            serve::run(args.setup, serve::ServeOptions { lazy, places: http, replica }, hangup).await
        }
        Command::Shared { command } => shared::run(setup, command).await,
        Command::Add(asked) => add::run(setup, &asked).await,
        Command::Fetch(asked) => fetch::run(setup, &asked).await,
        Command::Verify(asked) => verify::run(setup, &asked).await,
        Command::Outdated(asked) => outdated::run(setup, &asked).await,
        Command::Update(asked) => update::run(setup, &asked).await,
        Command::Export(asked) => export::run(setup, &asked).await,
        Command::Import(asked) => import::run(setup, &asked).await,
        Command::Gc(asked) => garbage::run(setup, &asked).await,
        Command::Mcp { command } => mcp::run(setup, command).await,
        Command::Setup { command } => client_setup::run(setup, &command).await,
        Command::OpenApi { command } => openapi::run(setup, command).await,
        Command::Kv { command, json } => kv::run(setup, command, json).await,
        Command::New(args) => author::new::run(&args),
        Command::Build(args) => author::build::run(setup, &args).await,
        Command::Test(args) => author::test::run(setup, &args).await,
        Command::Dev(args) => author::dev::run(setup, &args).await,
        Command::Pack(args) => author::pack::run(&args),
        Command::Push(asked) => push::run(setup, &asked).await,
        Command::Key(asked) => key::run(&asked.command),
        Command::Docs { plugin, out, json } => docs::run(setup, &plugin, out.as_deref(), json).await,
        Command::Backup(asked) => backup::run(setup, &asked).await,
        Command::Restore(asked) => backup::restore(setup, &asked).await,
        Command::Man { dir } => man::run(&dir),
        Command::Completions { shell } => completions::run(shell),
    }
}

impl TurnArgs {
    /// The context that the calls share. Without `--session`, they run in the session `unnamed`.
    fn context(&self, unnamed: Session) -> TurnContext {
        let Self { budget, dry_run, session: name, yes, deny } = self;
        let mut session = name.as_deref().map(Session::with_name).unwrap_or(unnamed);
        if let Some(approver) = approval::approver(*yes, *deny) {
            session = session.with_approver(approver);
        }
        let mut turn = TurnContext {
            budget_chars: *budget,
            dry_run: *dry_run,
            session: Arc::new(session),
            ..TurnContext::default()
        };
        turn.identity.platform = Some("cli".to_owned());
        turn
    }
}

fn arguments(json: Option<String>, file: Option<PathBuf>) -> Result<String> {
    match (json, file) {
        (Some(json), _) if json != "-" => Ok(json),
        (Some(_), _) => read_text(Path::new("-")),
        (None, Some(file)) => read_text(&file),
        (None, None) => Ok(String::new()),
    }
}

/// Reads a file, or stdin for `-`.
fn read_text(file: &Path) -> Result<String> {
    let read = || {
        if file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text)?;
            Ok(text)
        } else {
            std::fs::read_to_string(file)
        }
    };
    read().with_context(|| format!("`{}` cannot be read", file.display()))
}

/// The view of the profile on the command line.
fn view(args: &SetupArgs, host: &Host) -> Result<View> {
    Ok(host.view(Filter::for_profile(setup::profile(args, &host.policy())?)))
}

/// A host, and the same view of it with the tools of the policy's MCP servers.
async fn load_view_with_servers(args: &SetupArgs, tell: ReportLevel) -> Result<(Host, View)> {
    let (host, servers) = servers::load_host_and_connect(args, tell).await?;
    let view = view(args, &host);
    servers.close().await;
    Ok((host, view?))
}

/// The error for a name that no tool of a view has.
pub(crate) fn unknown_tool(view: &View, name: &str) -> CommandError {
    if let Some(reason) = view.left_out_reason(name) {
        let error = CommandError::new("unknown_tool", format!("there is no tool `{name}`: {}", reason.text));
        return match &reason.hint {
            Some(hint) => error.with_help(hint.to_string()),
            None => error,
        };
    }
    if let Some(AbsentSource { label, state }) = view.absent_source_of(name) {
        let text = format!("there is no tool `{name}`: its source `{label}` {}", state.describe());
        return CommandError::new("unknown_tool", text).with_help("`toolbay status` shows each source");
    }
    let suggestion = similar::did_you_mean(&view.similar(name));
    let help = suggestion.unwrap_or_else(|| "`toolbay list --all` shows all tools".to_owned());
    CommandError::new("unknown_tool", format!("there is no tool `{name}`")).with_help(help)
}

/// The tools of a plugin.
pub(crate) fn tools(host: &Host, plugin: &PluginId) -> Vec<Arc<ToolEntry>> {
    let catalog = host.registry().snapshot();
    catalog.tools().filter(|e| e.def.source.plugin() == Some(plugin)).cloned().collect()
}

/// The status of a command whose question is declined; `None`: the operator agrees.
fn decline(decision: &DecisionArgs, question: &str) -> Result<Option<CommandStatus>> {
    if !decision.dry_run && confirm(decision, question)? {
        return Ok(None);
    }
    Ok(Some(report_unchanged(decision)))
}

/// Reports that the operator changed nothing. Returns the status.
fn report_unchanged(decision: &DecisionArgs) -> CommandStatus {
    print_note("nothing was changed");
    if decision.dry_run { CommandStatus::Success } else { CommandStatus::Failed }
}

/// Asks on the terminal, unless `--yes` already answers.
fn confirm(decision: &DecisionArgs, question: &str) -> Result<bool> {
    if decision.yes {
        return Ok(true);
    }
    Ok(matches!(read_reply(&format!("{question} [y/N]"))?.as_str(), "y" | "yes"))
}

/// Asks on the terminal. Returns the reply in lower case; it is empty at the end of the input.
fn read_reply(question: &str) -> Result<String> {
    stderr::write_prompt(&style_for_stderr(&format!("{question} ")));
    let mut reply = String::new();
    std::io::stdin().read_line(&mut reply)?;
    Ok(reply.trim().to_ascii_lowercase())
}

/// Refuses to decide without a person: it takes a terminal, `--yes` or `--dry-run`.
fn check_decidable(decision: &DecisionArgs) -> Result<()> {
    if decision.yes
        || decision.dry_run
        || (std::io::stdin().is_terminal() && crate::output::stderr_is_terminal())
    {
        return Ok(());
    }
    Err(anyhow!("there is no terminal to ask on; preview with `--dry-run`, agree with `--yes`"))
}

/// Checks the names of `--only` against the lists of a grant.
fn check_lists(lists: &[String]) -> Result<()> {
    let known: Vec<&str> = GrantKey::ALL.iter().map(|key| key.name()).chain(["reduce"]).collect();
    match lists.iter().find(|list| !known.contains(&list.as_str())) {
        None => Ok(()),
        Some(list) => {
            let known = known.join("`, `");
            Err(anyhow!("--only `{list}`: the policy has `{known}`"))
        }
    }
}

/// The user who runs the command, for the audit.
fn operator() -> String {
    let name = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    let uid = rustix::process::getuid().as_raw();
    toolbay_policy::excerpt::one_line(format!("{name} (uid {uid})").trim(), 100)
}
