//! `toolbay policy check`, `toolbay policy schema`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;
use toolbay_policy::{Policy, PolicyCheck};

use crate::CommandStatus;
use crate::command::args::{PolicyCommand, SetupArgs};
use crate::command::locked::LockPaths;
use crate::command::setup::{self, HostPurpose, PolicyFile};
use crate::output;
use crate::output::findings::{self, FileFindings, read_policy};

pub(crate) async fn run(args: &SetupArgs, command: PolicyCommand) -> Result<CommandStatus> {
    match command {
        PolicyCommand::Check { file, json } => check(args, file, json).await,
        PolicyCommand::Schema { .. } => schema(),
    }
}

fn schema() -> Result<CommandStatus> {
    output::print_json(&Policy::json_schema())?;
    Ok(CommandStatus::Success)
}

async fn check(args: &SetupArgs, file: Option<PathBuf>, json: bool) -> Result<CommandStatus> {
    let file = match file {
        Some(file) => file,
        None => PolicyFile::locate(args)?,
    };
    let (files, unknown) = match read_policy(&file) {
        Err(unreadable) => (vec![unreadable], None),
        Ok(text) => check_all(args, file.clone(), text).await?,
    };
    let found: usize = files.iter().map(|one| one.findings.len()).sum();
    if json {
        let all: Vec<_> = files.iter().flat_map(FileFindings::json).collect();
        output::print_json(&json!({"file": file, "findings": all, "not_compared": unknown}))?;
    } else {
        let mut out = output::stdout();
        for one in &files {
            write!(out, "{}", one.render(output::stdout_is_terminal()))?;
        }
        writeln!(out, "{}", findings::summary(&files))?;
        if let Some(unknown) = unknown {
            output::print_note(&format!("names of plugins and tools were not compared: {unknown}"));
        }
    }
    Ok(if found == 0 { CommandStatus::Success } else { CommandStatus::InvalidFile })
}

/// Checks a policy and its other files. Also returns why names were not compared.
async fn check_all(
    args: &SetupArgs,
    file: PathBuf,
    text: String,
) -> Result<(Vec<FileFindings>, Option<String>)> {
    let place = PolicyFile::from_file(args, &file)?;
    let PolicyCheck { policy, errors } = place.check(&text);
    let mut own = FileFindings { file, text: Some(text), findings: errors };
    let Some(policy) = policy else {
        return Ok((vec![own], Some("correct the errors first".to_owned())));
    };
    let host = setup::host_for(args, policy.names_only(), HostPurpose::Inspect)?;
    let unknown = load_names(args, &host).await?;
    own.findings.extend(host.policy_warnings_for(&policy));
    own.findings.sort_by_key(|finding| (finding.line, finding.column));
    let tokens = setup::token_findings(&policy);
    Ok((std::iter::once(own).chain(tokens).collect(), unknown))
}

/// Loads the names of the plugins; returns why that failed.
async fn load_names(args: &SetupArgs, host: &toolbay::Host) -> Result<Option<String>> {
    let dir = setup::plugin_folder(args)?;
    match host.load_dir(&dir).await {
        Ok(_) => match LockPaths::find(args) {
            Ok(paths) => super::locked::load(&paths, host).await.map(|_| None),
            Err(_) => Ok(None),
        },
        Err(error) => Ok(Some(format!("{error}; name the plugin directory with --plugins DIR"))),
    }
}
