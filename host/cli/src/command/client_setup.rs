//! `toolbay setup`: prints how an MCP client starts this program, or merges it into the client's file.

mod bundle;
mod client;
mod merge;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use toolbay_mcp::client::SavedTool;

use crate::args::{ClientArgs, SetupCommand};
use crate::output::{self, CommandStatus, host_failure};
use crate::policy_edit;
use crate::report::long_names;
use crate::setup::named_path::path_failure;
use crate::setup::{self, HostPurpose, SetupArgs};
use client::ClientKind;

pub(crate) async fn run(args: &SetupArgs, command: &SetupCommand) -> Result<CommandStatus> {
    match command {
        SetupCommand::ClaudeDesktop(client) => set_up(args, ClientKind::ClaudeDesktop, client).await,
        SetupCommand::ClaudeCode(client) => set_up(args, ClientKind::ClaudeCode, client).await,
        SetupCommand::Vscode(client) => set_up(args, ClientKind::Vscode, client).await,
        SetupCommand::Cursor(client) => set_up(args, ClientKind::Cursor, client).await,
        SetupCommand::Zed(client) => set_up(args, ClientKind::Zed, client).await,
        SetupCommand::Codex(client) => set_up(args, ClientKind::Codex, client).await,
        SetupCommand::ServerJson(options) => {
            print(&serde_json::to_string_pretty(&bundle::server_json(options)?).map_err(host_failure)?)
        }
        SetupCommand::Mcpb { out, name, author } => bundle::make(args, out, name, author).await,
    }
}

fn print(text: &str) -> Result<CommandStatus> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(CommandStatus::Success)
}

async fn set_up(args: &SetupArgs, client: ClientKind, options: &ClientArgs) -> Result<CommandStatus> {
    let start = ServerCommand::from_args(args)?;
    report_long_names(args).await?;
    let entry = client.entry(&start);
    let file = client_file(client, options)?;
    let merged = options.write.then(|| merge_entry(client, &options.name, &entry, &file)).transpose()?;
    if args.printer.is_json() {
        return Ok(output::print_json(&json!({
            "client": client.display_name(),
            "name": options.name,
            "file": file,
            "entry": entry,
            "written": merged.as_ref().is_some_and(|merged| merged.is_changed),
            "backup": merged.as_ref().and_then(|merged| merged.backup.as_ref()),
        }))?);
    }
    let Some(merged) = merged else {
        args.printer.note(&format!("add this to `{}`; `--write` does it for you", file.display()));
        return print(&client.merged("", &options.name, &entry)?);
    };
    if !merged.is_changed {
        args.printer.note(&format!("`{}` is up to date", file.display()));
        return Ok(CommandStatus::Success);
    }
    if let Some(backup) = merged.backup {
        args.printer.note(&format!("the previous file is saved as `{}`", backup.display()));
    }
    args.printer.note(&format!("written to `{}`; restart {}", file.display(), client.display_name()));
    Ok(CommandStatus::Success)
}

/// Reports the names of tools that the client may refuse: those of the plugins, and those that the servers had when they
/// were last listed. The server reports plugins that cannot be loaded when it starts.
async fn report_long_names(args: &SetupArgs) -> Result<()> {
    let host = setup::host(args, HostPurpose::Inspect)?;
    if let Ok(dir) = setup::plugin_folder(args)
        && dir.exists()
    {
        drop(host.load_dir(&dir).await);
    }
    let (policy, catalog) = (host.policy(), host.registry().snapshot());
    let saved = toolbay::saved_tools(&setup::state_dir(args)?, &policy);
    let loaded = catalog.tools().map(|entry| entry.def.named());
    long_names::report(
        args.printer,
        &policy,
        loaded.chain(saved.values().flat_map(|saved| &saved.imported).map(SavedTool::named)),
    );
    Ok(())
}

/// What became of a client's file.
struct MergedFile {
    /// Whether the file lacked the entry.
    is_changed: bool,
    /// The copy of the previous file, if there was one.
    backup: Option<PathBuf>,
}

/// Merges the entry into the client's file, after a backup beside it.
fn merge_entry(client: ClientKind, name: &str, entry: &Value, file: &Path) -> Result<MergedFile> {
    let before = match std::fs::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            bail!(anyhow!(error).context(format!("`{}` cannot be read; nothing was written", file.display())))
        }
    };
    let merged = client
        .merged(before.as_deref().unwrap_or_default(), name, entry)
        .with_context(|| format!("`{}`; nothing was written", file.display()))?;
    if before.as_ref() == Some(&merged) {
        return Ok(MergedFile { is_changed: false, backup: None });
    }
    let backup = before.as_deref().map(|text| back_up(file, text)).transpose();
    let by_hand = || match client.merged("", name, entry) {
        Ok(text) => {
            format!("nothing was written; put this into `{}` yourself:\n{}", file.display(), text.trim_end())
        }
        Err(_) => "nothing was written".to_owned(),
    };
    let backup = backup.with_context(|| format!("a copy of `{}`", file.display())).with_context(by_hand);
    let backup = backup.map_err(path_failure)?;
    let replaced = policy_edit::replace(file, before.as_deref(), &merged, client.display_name());
    replaced.with_context(by_hand).map_err(path_failure)?;
    Ok(MergedFile { is_changed: true, backup })
}

/// Copies a file to a new name beside it.
fn back_up(file: &Path, text: &str) -> Result<PathBuf> {
    /// Copies that are kept of one file.
    const MAX_BACKUPS: usize = 100;
    for n in 0..MAX_BACKUPS {
        let mut name = file.as_os_str().to_owned();
        name.push(if n == 0 { ".bak".to_owned() } else { format!(".bak.{n}") });
        let kept = PathBuf::from(name);
        let mut options = std::fs::OpenOptions::new();
        match options.write(true).create_new(true).open(&kept) {
            Ok(mut out) => {
                let permissions = std::fs::metadata(file)?.permissions();
                out.set_permissions(permissions)?;
                out.write_all(text.as_bytes())?;
                out.sync_all()?;
                return Ok(kept);
            }
            // An equal copy is kept once.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                if std::fs::read_to_string(&kept).is_ok_and(|known| known == text) {
                    return Ok(kept);
                }
            }
            Err(error) => return Err(anyhow!(error).context(format!("`{}`", kept.display()))),
        }
    }
    Err(anyhow!("`{}` already has {MAX_BACKUPS} backups; remove some", file.display()))
}

fn client_file(client: ClientKind, options: &ClientArgs) -> Result<PathBuf> {
    let working_dir = setup::current_dir()?;
    if let Some(file) = &options.file {
        return Ok(working_dir.join(file));
    }
    client.file(&working_dir)
}

/// The command line that starts this program.
#[derive(Debug)]
struct ServerCommand {
    command: String,
    args: Vec<String>,
}

impl ServerCommand {
    /// Uses the plugins, the policy and the profile of this command line, with absolute paths: clients start servers in
    /// another directory.
    fn from_args(args: &SetupArgs) -> Result<Self> {
        let working_dir = setup::current_dir()?;
        let text = |path: &Path| {
            let path = working_dir.join(path);
            let path = toolbay_policy::capability::path_rule::normalize(&path).unwrap_or(path);
            let text = path.to_str().map(ToOwned::to_owned);
            text.with_context(|| format!("`{}` is not UTF-8, and the client's file is", path.display()))
        };
        let program = std::env::current_exe().context("this program has no path").map_err(host_failure)?;
        let mut words = vec!["serve".to_owned()];
        let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
        add("--plugins", text(&setup::plugin_folder(args)?)?);
        // Checks the policy and the profile now, because a client does not show why a server fails to start.
        let policy = setup::PolicyFile::find(args)?;
        setup::profile(args, &policy.policy()?)?;
        if let Some(file) = policy.file {
            add("--config", text(&file)?);
        }
        if let Some(workspace) = &args.workspace {
            add("--workspace", text(workspace)?);
        }
        if let Some(profile) = &args.profile {
            add("--profile", profile.clone());
        }
        if let Some(state) = &args.state_dir {
            add("--state-dir", text(state)?);
        }
        Ok(Self { command: text(&program)?, args: words })
    }

    fn args(&self) -> Value {
        Value::from(self.args.clone())
    }
}
