//! `toolbay policy check`, `toolbay policy schema`.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use serde_json::json;
use toolbay_policy::{Policy, PolicyCheck, Severity};

use crate::args::PolicyCommand;
use crate::output::findings::{self, FileFindings, read_policy};
use crate::output::{self, CommandStatus};
use crate::setup::locked::{self, LockPaths};
use crate::setup::{self, HostPurpose, PolicyFile, SetupArgs};

pub(crate) async fn run(args: &SetupArgs, command: PolicyCommand) -> Result<CommandStatus> {
    match command {
        PolicyCommand::Check { file, strict } => check(args, file, strict).await,
        PolicyCommand::Schema => schema(),
    }
}

fn schema() -> Result<CommandStatus> {
    output::print_json(&Policy::json_schema())?;
    Ok(CommandStatus::Success)
}

/// What was found, and what could not be compared.
struct CheckResult {
    files: Vec<FileFindings>,
    not_compared: Vec<NotCompared>,
}

/// Names that were not compared with those that exist, and why.
struct NotCompared {
    names: String,
    reason: String,
}

impl NotCompared {
    /// The names of plugins and of their tools.
    fn all_names(reason: impl Into<String>) -> Self {
        Self { names: "names of plugins and tools".to_owned(), reason: reason.into() }
    }
}

impl CheckResult {
    /// The status: an error refuses the policy, and with `strict` a warning fails, too.
    fn status(&self, strict: bool) -> CommandStatus {
        let mut all = self.files.iter().flat_map(|one| &one.findings);
        match all.any(|finding| strict || finding.severity == Severity::Error) {
            true => CommandStatus::Invalid,
            false => CommandStatus::Success,
        }
    }
}

async fn check(args: &SetupArgs, file: Option<PathBuf>, strict: bool) -> Result<CommandStatus> {
    let file = match file {
        Some(file) => file,
        None => PolicyFile::locate(args)?,
    };
    let result = match read_policy(&file) {
        Err(unreadable) => CheckResult { files: vec![unreadable], not_compared: Vec::new() },
        Ok(text) => check_all(args, file.clone(), text).await?,
    };
    let CheckResult { files, not_compared } = &result;
    if args.printer.is_json() {
        let all: Vec<_> = files.iter().flat_map(FileFindings::json).collect();
        let unknown: Vec<String> =
            not_compared.iter().map(|NotCompared { names, reason }| format!("{names}: {reason}")).collect();
        let unknown = (!unknown.is_empty()).then(|| unknown.join("; "));
        output::print_json(&json!({"file": file, "findings": all, "not_compared": unknown}))?;
    } else {
        let mut out = output::stdout();
        for one in files {
            write!(out, "{}", one.render(output::stdout_is_terminal()))?;
        }
        writeln!(out, "{}", findings::summary(files))?;
        for NotCompared { names, reason } in not_compared {
            args.printer.note(&format!("{names} were not compared: {reason}"));
        }
    }
    Ok(result.status(strict))
}

/// Checks a policy and its other files. What cannot be read costs only the comparisons with it.
async fn check_all(args: &SetupArgs, file: PathBuf, text: String) -> Result<CheckResult> {
    let policy_file = PolicyFile::from_file(args, &file)?;
    let PolicyCheck { policy, errors } = policy_file.check(&text);
    let mut own = FileFindings { file, text: Some(text), findings: errors };
    let Some(policy) = policy else {
        let not_compared = vec![NotCompared::all_names("correct the errors first")];
        return Ok(CheckResult { files: vec![own], not_compared });
    };
    let host = setup::host_for(args, policy.names_only(), HostPurpose::Inspect)?;
    let mut not_compared = load_names(args, &host).await;
    let state = setup::state_dir(args).ok();
    let policy = Arc::new(policy);
    let report = host.check_policy(&policy, state.as_deref()).await;
    own.findings.extend(report.findings);
    own.findings.sort_by_key(|finding| (finding.line, finding.column));
    let unread = report.not_compared.into_iter();
    not_compared.extend(
        unread.map(|(source, reason)| NotCompared { names: format!("the tools of `{source}`"), reason }),
    );
    let others = setup::credential_findings(&policy);
    Ok(CheckResult { files: std::iter::once(own).chain(others).collect(), not_compared })
}

/// Loads the names of the plugins; returns what could not be loaded.
async fn load_names(args: &SetupArgs, host: &toolbay::Host) -> Vec<NotCompared> {
    let lock = LockPaths::find(args).ok().filter(|paths| paths.lock.exists());
    let loaded = match setup::plugin_folder(args) {
        // A lock alone is enough.
        Ok(dir) if lock.is_some() && args.plugins.is_none() && !dir.exists() => Ok(()),
        Ok(dir) => host.load_dir(&dir).await.map(drop).map_err(|error| error.to_string()),
        Err(error) => Err(format!("{error:#}")),
    };
    // Names that are not found may be in what was not read.
    if let Err(why) = loaded {
        return vec![NotCompared::all_names(format!("{why}; name the plugin directory with --plugins DIR"))];
    }
    let Some(lock) = lock else { return Vec::new() };
    match locked::load(&lock, host).await {
        Ok(_) => Vec::new(),
        Err(error) => {
            vec![NotCompared { names: "the plugins of the lock".to_owned(), reason: format!("{error:#}") }]
        }
    }
}
