//! `toolbay policy check`, `toolbay policy schema`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;
use toolbay_policy::{Checked, Policy};

use crate::Verdict;
use crate::command::args::{PolicyCommand, SetupArgs};
use crate::command::setup::{self, PolicyFile, Purpose};
use crate::output;
use crate::output::findings::{self, FileFindings, read_policy};

pub(crate) async fn run(args: &SetupArgs, command: PolicyCommand) -> Result<Verdict> {
    match command {
        PolicyCommand::Check { file, json } => check(args, file, json).await,
        PolicyCommand::Schema => schema(),
    }
}

fn schema() -> Result<Verdict> {
    output::print_json(&Policy::json_schema())?;
    Ok(Verdict::Good)
}

async fn check(args: &SetupArgs, file: Option<PathBuf>, json: bool) -> Result<Verdict> {
    let file = match file {
        Some(file) => file,
        None => PolicyFile::place(args)?,
    };
    let (files, unknown) = match read_policy(&file) {
        Err(unreadable) => (vec![unreadable], None),
        Ok(text) => judge(args, file.clone(), text).await?,
    };
    let found: usize = files.iter().map(|one| one.findings.len()).sum();
    if json {
        let all: Vec<_> = files.iter().flat_map(FileFindings::json).collect();
        output::print_json(&json!({"file": file, "findings": all, "not_compared": unknown}))?;
    } else {
        let mut out = output::out();
        for one in &files {
            write!(out, "{}", one.render(output::stdout_is_terminal()))?;
        }
        writeln!(out, "{}", findings::summary(&files))?;
        if let Some(unknown) = unknown {
            output::note(&format!("names of plugins and tools were not compared: {unknown}"));
        }
    }
    Ok(if found == 0 { Verdict::Good } else { Verdict::Wrong })
}

/// All that is wrong with a policy and the files that belong to it, and why names were not compared.
async fn judge(args: &SetupArgs, file: PathBuf, text: String) -> Result<(Vec<FileFindings>, Option<String>)> {
    let place = PolicyFile::of_file(args, &file)?;
    let Checked { policy, errors } = place.check(&text);
    let mut own = FileFindings { file, text: Some(text), findings: errors };
    let Some(policy) = policy else {
        return Ok((vec![own], Some("mend the errors first".to_owned())));
    };
    let host = setup::host_for(args, policy.of_names(), Purpose::Look)?;
    let unknown = look(args, &host).await?;
    own.findings.extend(host.warnings_of(&policy));
    own.findings.sort_by_key(|finding| (finding.line, finding.column));
    let tokens = setup::token_findings(&policy);
    Ok((std::iter::once(own).chain(tokens).collect(), unknown))
}

/// Looks at the plugins; returns why it could not.
async fn look(args: &SetupArgs, host: &toolbay::Host) -> Result<Option<String>> {
    let dir = setup::plugin_place(args)?;
    match host.load_dir(&dir).await {
        Ok(_) => Ok(None),
        Err(error) => Ok(Some(format!("{error}; name the plugin directory with --plugins DIR"))),
    }
}
