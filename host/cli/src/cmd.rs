//! One file for each command.

mod batch;
mod call;
mod check;
mod inspect;
mod list;
mod serve;

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::CommandFactory;
use toolbay::{Filter, Host, PluginId, TurnContext, View};

use crate::args::{Args, Command, SetupArgs, TurnArgs};
use crate::setup::{self, Tell};
use crate::{Stop, Verdict};

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<Verdict, Stop> {
    setup::start_log(&args.setup.log)?;
    let setup = &args.setup;
    match args.command {
        Command::List { json, all } => list::run(setup, json, all).await,
        Command::Call { tool, json_args, args_file, turn, json } => {
            let text = arguments(json_args, args_file)?;
            call::run(setup, &tool, text, &turn, json).await
        }
        Command::Batch { file, turn } => batch::run(setup, &file, &turn).await,
        Command::Inspect { plugin, json } => inspect::run(setup, &plugin, json).await,
        Command::Check { targets } => check::run(setup, &targets).await,
        Command::Serve => serve::run(setup).await,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "toolbay", &mut std::io::stdout());
            Ok(Verdict::Good)
        }
    }
}

fn arguments(json: Option<String>, file: Option<PathBuf>) -> Result<String, Stop> {
    match (json, file) {
        (Some(json), _) if json != "-" => Ok(json),
        (Some(_), _) => read_text(Path::new("-")),
        (None, Some(file)) => read_text(&file),
        (None, None) => Ok(String::new()),
    }
}

/// Reads a file, or stdin for `-`.
fn read_text(file: &Path) -> Result<String, Stop> {
    let read = || {
        if file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text)?;
            Ok(text)
        } else {
            std::fs::read_to_string(file)
        }
    };
    read().with_context(|| format!("`{}` can not be read", file.display())).map_err(Stop::Usage)
}

fn turn(args: &TurnArgs) -> TurnContext {
    let mut turn = TurnContext { budget_chars: args.budget, dry_run: args.dry_run, ..TurnContext::default() };
    turn.identity.platform = Some("cli".to_owned());
    turn
}

fn view(host: &Host) -> View {
    host.view(Filter::default())
}

/// A host with the one plugin that a person named: by a file, or by an id in the plugin directory.
async fn named(args: &SetupArgs, plugin: &str) -> Result<Result<(Host, PluginId), String>, Stop> {
    let file = Path::new(plugin);
    if !file.is_file() && !plugin.ends_with(".wasm") {
        let host = setup::loaded(args, Tell::Warnings).await?;
        return Ok(match host.plugin(plugin) {
            Some(info) => Ok((host, info.id)),
            None => Err("no plugin of this id is loaded, and there is no such file".to_owned()),
        });
    }
    let host = setup::host(args)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let id = match PluginId::new(&stem) {
        Ok(id) => id,
        Err(error) => return Ok(Err(error.to_string())),
    };
    Ok(match host.load_file(id.clone(), file).await {
        Ok(_) => Ok((host, id)),
        Err(error) => Err(error.to_string()),
    })
}
