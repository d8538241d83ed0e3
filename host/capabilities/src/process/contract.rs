//! The `process` interface of the contract.

use std::sync::Arc;
use std::time::Instant;

use toolbay_policy::GrantKey;
use toolbay_policy::capability::path_rule;
use toolbay_policy::capability::program::SandboxMode;
use toolbay_policy::hint::{LineValue, PolicyLine, Remedy};
use toolbay_policy::limits::Limit;

use super::child::{self, RunningProgram, StartError};
use super::request::{MatchedCommand, PrepareError, PreparedCommand};
use crate::Capabilities;
use crate::bindings::host::process::{Command, Completed, Host, ProcessError};

impl Host for Capabilities {
    async fn run(&mut self, command: Command) -> Result<Completed, ProcessError> {
        let command = MatchedCommand::admit(self, command).await?;
        let (Some(granted), Some(times)) = (&self.grantee.granted, self.times) else {
            return Err(ProcessError::Denied(self.grantee.refuse(GrantKey::Process, &command.shown)));
        };
        let services = Arc::clone(&granted.services);
        if self.programs_started >= self.grantee.limits.processes {
            let what = format!("the call has started {} programs", self.grantee.limits.processes);
            return Err(ProcessError::Denied(self.grantee.limit_error(&what, Limit::Processes)));
        }
        self.programs_started += 1;
        let left = times.deadline.saturating_duration_since(Instant::now());
        let permit = services.process.acquire_permit(&self.grantee.plugin, left).await?;
        let shown = command.shown.clone();
        // A file system can hang, and the call's deadline must still fire.
        let prepared = services.file_threads.run(&self.grantee.plugin, move || command.prepare()).await;
        let prepared = prepared.map_err(|undone| ProcessError::Other(undone.to_string()))?;
        let PreparedCommand { plan, program, rule, stdin, timeout, output_bytes } =
            prepared.map_err(|why| self.prepare_error(why, &shown))?;
        let running =
            RunningProgram::start(plan, permit).await.map_err(|error| self.start_error(error, &program))?;
        self.grantee.note(GrantKey::Process, &format!("{rule} [{}]", running.confinement()), true);
        let work = running.run_to_end(stdin, output_bytes);
        // Without a timeout, the call's deadline ends it.
        let done = match timeout {
            Some(max) => tokio::time::timeout(max, work).await,
            None => Ok(work.await),
        };
        match done {
            Ok(done) => done.map_err(|error| ProcessError::Other(format!("`{program}`: {error}"))),
            // Dropping the future killed the program.
            Err(_elapsed) => Err(ProcessError::Timeout),
        }
    }
}

impl Capabilities {
    fn prepare_error(&self, why: PrepareError, shown: &str) -> ProcessError {
        match why {
            PrepareError::Guest(error) => error,
            PrepareError::Denied(problem) => {
                self.grantee.note(GrantKey::Process, &path_rule::printable_path(shown), false);
                let problem = problem
                    .map_text(|text| format!("`{}` is not run: {text}", path_rule::printable_path(shown)));
                ProcessError::Denied(self.grantee.report_refusal(problem))
            }
            PrepareError::Limit(what, limit) => ProcessError::Denied(self.grantee.limit_error(&what, limit)),
            PrepareError::FolderNotGranted(folder) => ProcessError::Denied(format!(
                "the program cannot start in this folder: {}",
                self.grantee.refuse(GrantKey::FsRead, &folder)
            )),
        }
    }

    fn start_error(&self, error: StartError, program: &str) -> ProcessError {
        match error {
            StartError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
                ProcessError::NotFound(program.to_owned())
            }
            StartError::Io(error) => ProcessError::Other(format!("`{program}` cannot be started: {error}")),
            StartError::Unconfined { problem, weaker } => {
                self.grantee.note(GrantKey::Process, &format!("{program} [no sandbox]"), false);
                let text =
                    format!("`{program}` is not run, because this system cannot sandbox it: {problem}");
                let sandbox = LineValue::Text(weaker.name().to_owned());
                let first = if weaker == SandboxMode::None {
                    let keys = child::keys_of_sandbox(["read", "write", "execute"]);
                    format!(
                        "It would run without any sandbox. Remove {keys} from its section: they have no effect then."
                    )
                } else {
                    "It would run without a complete sandbox.".to_owned()
                };
                ProcessError::Denied(self.grantee.refuse_with(&text, || {
                    let line = PolicyLine::new(format!("[programs.{program}]"), "sandbox", sandbox);
                    Remedy::Allow { first: Some(first), lines: vec![line] }.into()
                }))
            }
            StartError::Unlimited(key) => {
                self.grantee.note(GrantKey::Process, program, false);
                let text = format!("`{program}` is not run, because this system does not enforce `{key}`");
                ProcessError::Denied(self.grantee.refuse_with(&text, || {
                    format!("Remove `{key}` from [programs.{program}] to run it without this limit.").into()
                }))
            }
        }
    }
}
