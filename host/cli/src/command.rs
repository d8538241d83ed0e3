//! One module for each command.

pub(crate) mod completions;

mod add;
mod backup;
mod batch;
mod bench;
mod build;
mod call;
mod check;
mod client_setup;
mod control;
mod dev;
mod diff;
mod docs;
mod explain;
mod export;
mod fetch;
mod garbage;
mod grant;
mod import;
mod inspect;
mod key;
mod kv;
mod list;
mod log;
mod man;
mod mcp;
mod new;
mod openapi;
mod outdated;
mod output;
mod pack;
mod policy;
mod prompts_and_resources;
mod push;
mod revoke;
mod schemas;
mod search;
mod serve;
mod shared;
mod status;
mod switch;
mod test;
mod update;
mod verify;

use anyhow::Result;
use tokio::signal::unix::Signal;

use crate::args::{Args, Command};
use crate::output::CommandStatus;
use crate::setup;

/// Runs the command. A server takes `hangup`, the SIGHUPs since the process began.
pub(crate) async fn run(mut args: Args, hangup: Option<Signal>) -> Result<CommandStatus> {
    setup::start_log(&args.setup)?;
    // The published files are there as long as the command runs.
    let _pulled = setup::pulled::pull(&mut args.setup, shared::shared_use(&args.command)).await?;
    run_command(args, hangup).await
}

async fn run_command(args: Args, hangup: Option<Signal>) -> Result<CommandStatus> {
    let setup = &args.setup;
    match args.command {
        Command::List { all } => list::run(setup, all).await,
        Command::Prompts => prompts_and_resources::prompts(setup).await,
        Command::Resources => prompts_and_resources::resources(setup).await,
        Command::Call(options) => call::run(setup, options).await,
        Command::Batch(options) => batch::run(setup, &options).await,
        Command::Bench(options) => bench::run(setup, options).await,
        Command::Output(options) => output::run(setup, &options).await,
        Command::Inspect { plugin } => inspect::run(setup, &plugin).await,
        Command::Status { tools } => status::run(setup, tools).await,
        Command::Ps => control::list(setup).await,
        Command::Cancel { id } => control::cancel(setup, id).await,
        Command::Stop { reason } => control::stop(setup, &reason).await,
        Command::Resume => control::resume(setup).await,
        Command::Enable { selection } => switch::enable(setup, &selection).await,
        Command::Disable { selection, reason } => switch::disable(setup, &selection, &reason).await,
        Command::Explain { tool, limits } => explain::run(setup, &tool, limits).await,
        Command::Grant { plugin, decision, tool } => {
            grant::run(setup, &plugin, &decision, tool.as_deref()).await
        }
        Command::Revoke { plugin, decision } => revoke::run(setup, &plugin, &decision).await,
        Command::Log(options) => log::run(setup, &options),
        Command::Check { targets, strict } => check::run(setup, &targets, strict).await,
        Command::Policy { command } => policy::run(setup, command).await,
        Command::Search { query, limit } => search::run(setup, &query.join(" "), limit).await,
        Command::Schemas(options) => schemas::run(setup, &options).await,
        Command::Diff { old, new } => diff::run(setup, &old, &new).await,
        Command::Serve { lazy, http, replica, .. } => {
            serve::run(args.setup, serve::ServeOptions { lazy, addresses: http, replica }, hangup).await
        }
        Command::Shared { command } => shared::run(setup, command).await,
        Command::Add(options) => add::run(setup, &options).await,
        Command::Fetch { dry_run } => fetch::run(setup, dry_run).await,
        Command::Verify { offline } => verify::run(setup, offline).await,
        Command::Outdated => outdated::run(setup).await,
        Command::Update(options) => update::run(setup, &options).await,
        Command::Export(options) => export::run(setup, &options).await,
        Command::Import(options) => import::run(setup, &options).await,
        Command::Gc { dry_run } => garbage::run(setup, dry_run).await,
        Command::Mcp { command } => mcp::run(setup, command).await,
        Command::Setup { command } => client_setup::run(setup, &command).await,
        Command::OpenApi { command } => openapi::run(setup, command).await,
        Command::Kv { command } => kv::run(setup, command).await,
        Command::New(args) => new::run(setup, &args),
        Command::Build(args) => build::run(setup, &args).await,
        Command::Test(args) => test::run(setup, &args).await,
        Command::Dev(args) => dev::run(setup, &args).await,
        Command::Pack(args) => pack::run(setup, &args),
        Command::Push(options) => push::run(setup, &options).await,
        Command::Key { command } => key::run(setup, &command),
        Command::Docs { plugin, out } => docs::run(setup, &plugin, out.as_deref()).await,
        Command::Backup(options) => backup::run(setup, &options).await,
        Command::Restore(options) => backup::restore(setup, &options).await,
        Command::Man { dir } => man::run(setup, &dir),
        Command::Completions { shell } => completions::run(shell),
    }
}
