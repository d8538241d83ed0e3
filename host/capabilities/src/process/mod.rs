//! `process`: programs from the operator's list, without a shell.
//!
//! Before a program starts, a rule of the tool's grant must match the whole command line, the name must map to a file
//! (`programs`) that no plugin can have written, and the tool must reach the working folder. The program runs in a
//! sandbox of the kernel ([`toolbay_sandbox::process_sandbox`]): it reaches the tool's files, the system's libraries and what the operator
//! added, but no network and no process outside its group. All its processes are killed (`child`) when the first
//! one ends, when the time is up, or when the call is dropped.

mod child;
mod command_line;
pub mod guard;
mod pipes;
mod process_limit;
mod programs;
mod request;
pub mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use toolbay_policy::capability::path_rule;
use toolbay_policy::hint::{LineValue, PolicyLine, Remedy};
use toolbay_policy::limits::{CallLimits, Limit};
use toolbay_policy::name::PluginId;
use toolbay_policy::{GrantKey, Policy, ProgramRefusal, ProgramSection};
use toolbay_sandbox::admission::{FairPermit, FairSemaphore};
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use super::Capabilities;
use super::files::SharedProtectedPaths;
use crate::HasCapabilities;
use crate::bindings::host::process::{self as contract, Command, Completed, Host, ProcessError};
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};
use child::{RunningProgram, StartError};
use guard::ProgramGuard;
use programs::{ListedProgram, ProgramError, Programs};
use request::{MatchedCommand, PrepareError, PreparedCommand, find_protected_folder};

/// Programs of the host, in a sandbox of the kernel.
pub(crate) struct Process;

impl Capability for Process {
    const KEYS: &'static [GrantKey] = &[GrantKey::Process];

    type State = u32;

    fn begin(_: &CallLimits) -> u32 {
        0
    }

    fn link(linker: &mut Linker<GuestState>, _: AsyncSupport) -> wasmtime::Result<()> {
        contract::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)
    }
}

/// Starts the programs of all calls of a host.
#[derive(Debug)]
pub struct ProcessLauncher {
    programs: Programs,
    /// One permit for each concurrent program, shared fairly between plugins.
    permits: FairSemaphore,
    /// How long a start waits for a permit.
    queue_timeout: Duration,
    /// The protected paths, which a program's own lists cannot open.
    pub protected: SharedProtectedPaths,
    /// One permit for each concurrent MCP server.
    servers: Arc<Semaphore>,
    /// Ends programs and servers when this process is killed.
    pub guard: Arc<ProgramGuard>,
}

impl ProcessLauncher {
    /// Creates a launcher with the limits of the host. Resolves the programs now, so that the meaning of each name is
    /// fixed before any plugin runs.
    pub fn new(policy: &Policy) -> Self {
        let host = policy.host();
        Self {
            programs: Programs::from_policy(policy),
            permits: FairSemaphore::new(host.processes, host.queued_calls),
            queue_timeout: host.queue_timeout,
            protected: SharedProtectedPaths::default(),
            servers: Arc::new(Semaphore::new(server::MAX_RUNNING)),
            guard: Arc::default(),
        }
    }

    /// Why a program would not start, by the policy line that decides. A missing file is no refusal. Blocks.
    pub fn refusal<'a>(&self, section: ProgramSection<'a>) -> Option<ProgramRefusal<'a>> {
        let ProgramSection { table: [kind, name], keys, program, args } = section;
        if let Err(ProgramError::Refused(message)) = self.programs.check(&ListedProgram::resolve(program)) {
            return Some(ProgramRefusal { line: None, message });
        }
        if let Some(Err(message)) = args.map(|args| self.programs.check_command_line(program, args)) {
            return Some(ProgramRefusal { line: None, message });
        }
        let table = format!("[{kind}.{name}]");
        let (line, refused) = find_protected_folder(program, &self.protected, &table, keys)?;
        let message = refused.hint.map_or(refused.text, |hint| hint.to_string());
        Some(ProgramRefusal { line: Some(line), message })
    }

    /// Keeps the permits and takes the programs of another policy.
    pub fn with_policy(&self, policy: &Policy) -> Self {
        Self {
            programs: Programs::from_policy(policy),
            permits: self.permits.clone(),
            queue_timeout: self.queue_timeout,
            protected: self.protected.clone(),
            servers: Arc::clone(&self.servers),
            guard: Arc::clone(&self.guard),
        }
    }

    /// Waits for a permit, for at most half of the time left to the call, so that the guest still receives a refusal.
    async fn acquire_permit(&self, plugin: &PluginId, left: Duration) -> Result<FairPermit, ProcessError> {
        let permit = self.permits.acquire(plugin, u32::MAX);
        match tokio::time::timeout(self.queue_timeout.min(left / 2), permit).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(ProcessError::Other(
                "busy: the host's limit of concurrent programs (`processes`) is reached; try again later"
                    .to_owned(),
            )),
        }
    }
}

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
            Some(most) => tokio::time::timeout(most, work).await,
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
            StartError::Unconfined(problem) => {
                self.grantee.note(GrantKey::Process, &format!("{program} [no sandbox]"), false);
                let text =
                    format!("`{program}` is not run, because this system cannot sandbox it: {problem}");
                let sandbox = LineValue::Text("best-effort".to_owned());
                ProcessError::Denied(self.grantee.refuse_with(&text, || {
                    let line = PolicyLine::new(format!("[programs.{program}]"), "sandbox", sandbox);
                    let first = Some("It would run without a complete sandbox.".to_owned());
                    Remedy::Allow { first, lines: vec![line] }.into()
                }))
            }
        }
    }
}
