//! `process`: programs from the operator's list, without a shell.
//!
//! Before a program starts, a rule of the tool's grant must match the whole command line, the name must map to a file
//! (`programs`) that no plugin can have written, and the tool must reach the working folder. The program runs in a
//! sandbox of the kernel ([`toolbay_sandbox::process_sandbox`]): it reaches the tool's files, the system's libraries and what the operator
//! added, but no network and no process outside its group. All its processes are killed (`child`) when the first
//! one ends, when the time is up, or when the call is dropped.

mod child;
mod command_line;
mod contract;
pub mod guard;
mod pipes;
mod process_limit;
mod programs;
mod request;
pub mod server;
#[cfg_attr(target_os = "linux", path = "system/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "system/macos.rs")]
mod system;
// Its tests read what `ps` prints everywhere.
#[cfg(all(test, target_os = "linux"))]
#[path = "system/macos.rs"]
#[allow(dead_code, reason = "only its tests run on Linux")]
mod macos;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use toolbay_policy::limits::CallLimits;
use toolbay_policy::name::PluginId;
use toolbay_policy::{GrantKey, Policy, ProgramRefusal, ProgramSection};
use toolbay_sandbox::admission::{FairPermit, FairSemaphore};
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use super::files::SharedProtectedPaths;
use crate::HasCapabilities;
use crate::bindings::host::{self, process::ProcessError};
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};
use guard::ProgramGuard;
use programs::{ListedProgram, ProgramError, Programs};
use request::find_protected_folder;

/// Programs of the host, in a sandbox of the kernel.
pub(crate) struct Process;

impl Capability for Process {
    const KEYS: &'static [GrantKey] = &[GrantKey::Process];

    type State = u32;

    fn begin(_: &CallLimits) -> u32 {
        0
    }

    fn link(linker: &mut Linker<GuestState>, _: AsyncSupport) -> wasmtime::Result<()> {
        host::process::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)
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
