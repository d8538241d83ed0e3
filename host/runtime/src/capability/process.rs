//! `process`: programs from the operator's list. No shell is involved.
//!
//! What has to hold before a program is started: a line of the tool's grant matches the whole command line; the name
//! is mapped to a file ([`programs`]) that no plugin can have written; the folder it starts in is one that the tool
//! reaches. It then runs in a sandbox of the kernel's ([`cage`]): it reaches the tool's own files, the system's
//! libraries and what the operator added, no network, and no process outside of its group. Whatever it started is
//! ended with it ([`keeper`]): when its first process ends, when the time is up, when the call is dropped.

pub(crate) mod cage;
pub(crate) mod guard;
mod keeper;
mod line;
mod pipes;
mod process_limit;
mod programs;
mod request;
pub(crate) mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use toolbay_policy::capability::reach;
use toolbay_policy::limits::Limit;
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::Refusal;
use toolbay_policy::{Key, Policy};

use super::Capabilities;
use super::files::Kept;
use crate::engine::admission::{FairPermit, FairSemaphore};
use crate::engine::bindings::host::process::{Command, Completed, Host, ProcessError};
use keeper::{Running, StartError};
use programs::Programs;
use request::{NotRun, Request, Wish};

/// Starts programs for all calls of a host.
#[derive(Debug)]
pub(crate) struct Broker {
    programs: Programs,
    /// One for each program that may run at once, shared fairly between plugins.
    places: FairSemaphore,
    /// How long a start may wait for a place.
    patience: Duration,
    /// What no program's own lists open.
    pub(crate) kept: Kept,
    /// One for each server that may run at once.
    servers: Arc<Semaphore>,
    /// The program that ends what servers leave behind when this process is killed.
    pub(crate) guard: Option<std::path::PathBuf>,
}

impl Broker {
    /// A broker within the bounds of the host. Finds the programs: what a name means is settled before any plugin
    /// runs.
    pub(crate) fn new(policy: &Policy) -> Self {
        let host = policy.host();
        Self {
            programs: Programs::find(policy),
            places: FairSemaphore::new(host.processes, host.queued_calls),
            patience: host.queue_timeout,
            kept: Kept::default(),
            servers: Arc::new(Semaphore::new(server::MAX_RUNNING)),
            guard: None,
        }
    }

    /// The same places, and the programs of another policy.
    pub(crate) fn under(&self, policy: &Policy) -> Self {
        Self {
            programs: Programs::find(policy),
            places: self.places.clone(),
            patience: self.patience,
            kept: self.kept.clone(),
            servers: Arc::clone(&self.servers),
            guard: self.guard.clone(),
        }
    }

    /// Waits for a place, for half of what is left of the call at most: a refusal is to be heard.
    async fn place(&self, plugin: &PluginId, left: Duration) -> Result<FairPermit, ProcessError> {
        let place = self.places.acquire(plugin, u32::MAX);
        match tokio::time::timeout(self.patience.min(left / 2), place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(ProcessError::Other(
                "busy: as many programs run as the host allows (`processes`); try again later".to_owned(),
            )),
        }
    }
}

impl Host for Capabilities {
    async fn run(&mut self, command: Command) -> Result<Completed, ProcessError> {
        let wish = Wish::admit(self, command).await?;
        let (Some(granted), Some(times)) = (&self.who.granted, self.times) else {
            return Err(ProcessError::Denied(self.who.refuse(Key::Process, &wish.shown)));
        };
        let services = Arc::clone(&granted.services);
        if self.programs >= self.who.limits.processes {
            let what = format!("the call has started {} programs", self.who.limits.processes);
            return Err(ProcessError::Denied(self.who.over(&what, Limit::Processes)));
        }
        self.programs += 1;
        let left = times.deadline.saturating_duration_since(Instant::now());
        let place = services.process.place(&self.who.plugin, left).await?;
        let shown = wish.shown.clone();
        // A file system may hang, and the call's deadline must still fire.
        let prepared = services.file_threads.run(&self.who.plugin, move || wish.prepare()).await;
        let prepared = prepared.map_err(|undone| ProcessError::Other(undone.to_string()))?;
        let Request { plan, program, rule, stdin, timeout, output_bytes } =
            prepared.map_err(|why| self.not_run(why, &shown))?;
        let running = Running::start(plan, place).await.map_err(|error| self.not_started(error, &program))?;
        self.who.note(Key::Process, &format!("{rule} [{}]", running.confinement()), true);
        let work = running.finish(stdin, output_bytes);
        // Without a time-out of its own, that of the call ends it.
        let done = match timeout {
            Some(most) => tokio::time::timeout(most, work).await,
            None => Ok(work.await),
        };
        match done {
            Ok(done) => done.map_err(|error| ProcessError::Other(format!("`{program}`: {error}"))),
            // The program was ended when the future was dropped.
            Err(_elapsed) => Err(ProcessError::Timeout),
        }
    }
}

impl Capabilities {
    fn not_run(&self, why: NotRun, shown: &str) -> ProcessError {
        match why {
            NotRun::Answer(error) => error,
            NotRun::Denied(problem) => {
                self.who.note(Key::Process, &reach::shown(shown), false);
                let Refusal { text, hint } = problem;
                let text = format!("`{}` is not run: {text}", reach::shown(shown));
                ProcessError::Denied(self.who.tell(Refusal { text, hint }))
            }
            NotRun::Limit(what, limit) => ProcessError::Denied(self.who.over(&what, limit)),
            NotRun::Folder(folder) => ProcessError::Denied(format!(
                "the program cannot start there: {}",
                self.who.refuse(Key::FsRead, &folder)
            )),
        }
    }

    fn not_started(&self, error: StartError, program: &str) -> ProcessError {
        match error {
            StartError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
                ProcessError::NotFound(program.to_owned())
            }
            StartError::Io(error) => ProcessError::Other(format!("`{program}` cannot be started: {error}")),
            StartError::Unconfined(problem) => {
                self.who.note(Key::Process, &format!("{program} [no sandbox]"), false);
                let text = format!("`{program}` is not run, since this system cannot confine it: {problem}");
                let lines = format!("[programs.{program}]\nsandbox = \"best-effort\"");
                ProcessError::Denied(
                    self.who.refuse_with(&text, || {
                        format!("To run it all the same, write in the policy:\n{lines}")
                    }),
                )
            }
        }
    }
}
