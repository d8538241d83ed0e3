//! `toolbay setup`: how an MCP client starts this program, printed, or merged into the client's own file.

mod bundle;
mod client;
mod merge;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::command::args::{ClientArgs, SetupArgs, SetupCommand};
use crate::command::policy_file;
use crate::command::setup;
use crate::output;
use crate::{Verdict, host_failed};
use client::Client;

pub(crate) async fn run(args: &SetupArgs, command: &SetupCommand) -> Result<Verdict> {
    match command {
        SetupCommand::ClaudeDesktop(client) => set_up(args, Client::ClaudeDesktop, client),
        SetupCommand::ClaudeCode(client) => set_up(args, Client::ClaudeCode, client),
        SetupCommand::Vscode(client) => set_up(args, Client::Vscode, client),
        SetupCommand::Cursor(client) => set_up(args, Client::Cursor, client),
        SetupCommand::Zed(client) => set_up(args, Client::Zed, client),
        SetupCommand::Codex(client) => set_up(args, Client::Codex, client),
        SetupCommand::ServerJson(asked) => {
            print(&serde_json::to_string_pretty(&bundle::server_json(asked)?).map_err(host_failed)?)
        }
        SetupCommand::Mcpb { out, name, author } => bundle::make(args, out, name, author).await,
    }
}

fn print(text: &str) -> Result<Verdict> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(Verdict::Good)
}

fn set_up(args: &SetupArgs, client: Client, asked: &ClientArgs) -> Result<Verdict> {
    let start = Start::of(args)?;
    let entry = client.entry(&start);
    if !asked.write {
        let alone = client.merged("", &asked.name, &entry)?;
        output::note(&format!("for `{}`; `--write` merges it in", place(client, asked)?.display()));
        return print(&alone);
    }
    let file = place(client, asked)?;
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            bail!(anyhow!(error).context(format!("`{}` cannot be read; nothing was written", file.display())))
        }
    };
    let merged = client
        .merged(before.as_deref().unwrap_or_default(), &asked.name, &entry)
        .with_context(|| format!("`{}`; nothing was written", file.display()))?;
    if before.as_ref() == Some(&merged) {
        output::note(&format!("`{}` has it already", file.display()));
        return Ok(Verdict::Good);
    }
    if let Some(text) = &before {
        let kept = keep(&file, text).with_context(|| format!("a copy of `{}`", file.display()))?;
        output::note(&format!("what was there is kept in `{}`", kept.display()));
    }
    policy_file::replace(&file, before.as_deref(), &merged, client.shown())?;
    output::note(&format!("written to `{}`; start {} anew", file.display(), client.shown()));
    Ok(Verdict::Good)
}

/// Keeps what a file holds beside it, under a name that nothing has.
fn keep(file: &Path, text: &str) -> Result<PathBuf> {
    /// Copies that are kept of one file.
    const MOST: usize = 100;
    for n in 0..MOST {
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
            // The same text is kept once.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                if std::fs::read_to_string(&kept).is_ok_and(|there| there == text) {
                    return Ok(kept);
                }
            }
            Err(error) => return Err(anyhow!(error).context(format!("`{}`", kept.display()))),
        }
    }
    Err(anyhow!("`{}` has {MOST} copies beside it already: take some away", file.display()))
}

fn place(client: Client, asked: &ClientArgs) -> Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory is gone").map_err(host_failed)?;
    if let Some(file) = &asked.file {
        return Ok(here.join(file));
    }
    client.file(&here)
}

/// How this program is started.
#[derive(Debug)]
struct Start {
    command: String,
    args: Vec<String>,
}

impl Start {
    /// With the plugins, the policy and the profile of this command line, as absolute paths: clients start servers from
    /// a directory of their own.
    fn of(args: &SetupArgs) -> Result<Self> {
        let here = std::env::current_dir().context("the current directory is gone").map_err(host_failed)?;
        let text = |path: &Path| {
            let path = here.join(path);
            let path = toolbay_policy::capability::reach::normalise(&path).unwrap_or(path);
            let text = path.to_str().map(ToOwned::to_owned);
            text.with_context(|| format!("`{}` is not UTF-8, and the client's file is", path.display()))
        };
        let program = std::env::current_exe().context("this program has no path").map_err(host_failed)?;
        let mut words = vec!["serve".to_owned()];
        let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
        add("--plugins", text(&setup::plugin_place(args)?)?);
        // The policy must be sound and have the profile: a client shows a server that does not start as nothing at all.
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
