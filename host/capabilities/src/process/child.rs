//! The life cycle of one program, from its start to the removal of its last process.
//!
//! Each program has a supervisor thread that waits for it, so no thread of the async runtime blocks. All processes of
//! the program are in one process group, which the seccomp filter keeps them from leaving, and which is killed at the
//! end.
//!
//! A group needs a first member, and its id stays reserved only while the group has one. The launcher therefore first
//! starts a placeholder process: the program itself, under a filter that refuses everything, and kills it at once. It
//! remains a zombie until the end. The group id is thus known before the program starts, so that the filter can
//! contain it, and it stays reserved until the last signal was sent.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use tokio::sync::oneshot;
use toolbay_policy::capability::program::SandboxMode;
use toolbay_sandbox::process_sandbox::{self as sandbox, Confinement, ProcessSandbox};

use super::guard::{GuardedGroup, ProgramGuard};
use super::pipes::{self, PipeEnds, Pipes};
use super::process_limit;
use super::system;
use crate::bindings::host::process::Completed;

/// A program to start.
pub(super) struct LaunchPlan {
    pub(super) sandbox: ProcessSandbox,
    pub(super) file: PathBuf,
    /// The program's `argv[0]`.
    pub(super) name: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) cwd: OwnedFd,
    pub(super) sandbox_mode: SandboxMode,
    pub(super) memory_bytes: Option<u64>,
    pub(super) file_bytes: u64,
    /// Maximum number of concurrent processes, and the policy key that sets it.
    pub(super) processes: (u64, String),
    /// Ends the group when this process is killed; see [`super::guard`].
    pub(super) guard: Arc<ProgramGuard>,
}

/// The reason why a program was not started.
#[derive(Debug)]
pub(super) enum StartError {
    Io(io::Error),
    /// The system lacks the sandbox that the policy requires, and the mode in which it would run the program.
    Unconfined {
        problem: String,
        weaker: SandboxMode,
    },
    /// The policy sets a limit, by this key, that the system does not enforce.
    Unlimited(&'static str),
}

/// The keys that the policy refuses in a section with `sandbox = "none"`, where they have no effect. `lists` are the names
/// of its lists of folders.
pub(super) fn keys_of_sandbox([read, write, execute]: [&str; 3]) -> String {
    format!("`{read}`, `{write}`, `{execute}`, `network = false` and `chmod = false`")
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A running program. Dropping it kills all its processes.
#[derive(Debug)]
pub(super) struct RunningProgram {
    group: Arc<ProcessGroup>,
    confinement: Confinement,
    pipes: Option<Pipes>,
    exit_status: oneshot::Receiver<io::Result<ExitStatus>>,
}

/// The process group of a program, for killing it.
#[derive(Debug, Default)]
struct ProcessGroup(Mutex<GroupState>);

#[derive(Debug, Default)]
enum GroupState {
    #[default]
    Pending,
    /// The group exists; its id stays reserved in this state.
    Alive(Pid),
    /// The group is gone, or has to be killed as soon as it exists.
    Ended,
}

impl ProcessGroup {
    /// Sends a signal to the group if it exists.
    fn signal(&self, signal: Signal) {
        if let GroupState::Alive(group) = *self.0.lock() {
            // An empty group needs no signal.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    fn kill(&self) {
        let mut state = self.0.lock();
        match *state {
            GroupState::Alive(group) => kill_group(group),
            GroupState::Pending => *state = GroupState::Ended,
            GroupState::Ended => {}
        }
    }
}

/// Kills a group. The kernel signals it atomically: a process that is being forked is killed with its parent.
fn kill_group(group: Pid) {
    // An empty group is already ended.
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.group.kill();
    }
}

/// Kills the group when the call ends during the start.
struct StartGuard(Option<Arc<ProcessGroup>>);

impl Drop for StartGuard {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            group.kill();
        }
    }
}

impl RunningProgram {
    /// Starts a program. `permit` is held until its last process is gone.
    pub(super) async fn start(plan: LaunchPlan, permit: impl Send + 'static) -> Result<Self, StartError> {
        let group = Arc::new(ProcessGroup::default());
        let mut starting = StartGuard(Some(Arc::clone(&group)));
        let (started, start) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let supervised = Arc::clone(&group);
        // The supervisor thread ends with the program; the end of the call kills the program.
        std::thread::Builder::new().name("toolbay-program".to_owned()).spawn(move || {
            supervise(&plan, &supervised, started, end);
            drop(permit);
        })?;
        let lost = || StartError::Io(io::Error::other("the supervisor thread ended unexpectedly"));
        let (confinement, ends) = start.await.map_err(|_| lost())??;
        let pipes = Some(Pipes::new(ends)?);
        starting.0 = None;
        Ok(Self { group, confinement, pipes, exit_status: ended })
    }

    /// Its confinement, for the audit.
    pub(super) fn confinement(&self) -> &'static str {
        self.confinement.as_str()
    }

    /// Takes the pipes of its standard streams; `None` the second time.
    pub(super) fn pipes(&mut self) -> Option<Pipes> {
        self.pipes.take()
    }

    /// Waits for its first process to end.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let lost = |_| io::Error::other("the supervisor thread ended unexpectedly");
        (&mut self.exit_status).await.map_err(lost).flatten()
    }

    /// Writes `stdin`, keeps at most `max` bytes of each output stream, and waits for the end.
    pub(super) async fn run_to_end(mut self, stdin: Vec<u8>, max: u64) -> io::Result<Completed> {
        let Some(pipes) = self.pipes.take() else {
            return Err(io::Error::other("the pipes of the program are already in use"));
        };
        let (status, output) = tokio::join!(self.wait(), pipes.drive(stdin, max));
        let (status, output) = (status?, output?);
        Ok(Completed {
            exit_code: if status.signal().is_some() { None } else { status.code() },
            stdout: output.stdout,
            stderr: output.stderr,
            truncated: output.truncated,
        })
    }
}

type StartSender = oneshot::Sender<Result<(Confinement, PipeEnds), StartError>>;

/// The supervisor: starts the program, waits for it, and kills and reaps the remaining processes.
fn supervise(
    plan: &LaunchPlan,
    group: &ProcessGroup,
    started: StartSender,
    ended: oneshot::Sender<io::Result<ExitStatus>>,
) {
    // The group is under guard until it has ended.
    let (child, id, guard) = match launch(plan, group) {
        Ok((child, id, guard, confinement, ends)) => {
            // A closed channel means that the call has ended.
            if started.send(Ok((confinement, ends))).is_err() {
                group.kill();
            }
            (child, id, guard)
        }
        Err(error) => {
            drop(started.send(Err(error)));
            return;
        }
    };
    let status = wait_with_process_limit(plan, group, id, || wait_for_exit(child));
    let mut state = group.0.lock();
    kill_group(id);
    *state = GroupState::Ended;
    drop(state);
    // Before the id is free again.
    drop(guard);
    reap(id);
    // A closed channel means that the call has ended; the status is not needed.
    drop(ended.send(status));
}

/// Runs `wait` while a thread counts the processes of the group; an error if there were too many.
fn wait_with_process_limit(
    plan: &LaunchPlan,
    group: &ProcessGroup,
    id: Pid,
    wait: impl FnOnce() -> io::Result<ExitStatus>,
) -> io::Result<ExitStatus> {
    let (max, key) = (plan.processes.0, &plan.processes.1);
    std::thread::scope(|scope| {
        let (over, ended) = std::sync::mpsc::channel();
        // The counting thread ends with the program.
        let thread = std::thread::Builder::new().name("toolbay-processes".to_owned());
        let watching = thread.spawn_scoped(scope, move || {
            process_limit::watch(id, max, &ended, |signal| group.signal(signal))
        });
        let watching = match watching {
            Ok(watching) => watching,
            Err(error) => {
                group.kill();
                return wait().and(Err(error));
            }
        };
        let status = wait();
        drop(over);
        match watching.join() {
            Ok(false) => status,
            Ok(true) | Err(_) => Err(io::Error::other(format!(
                "the program had more than {max} processes at once and was killed; the operator can raise the \
                 limit: {key}"
            ))),
        }
    })
}

/// Waits for the first process to end, and leaves it as a zombie.
fn wait_for_exit(child: Pid) -> io::Result<ExitStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = loop {
        match rustix::process::waitid(WaitId::Pid(child), options) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(status) => break status,
        }
    };
    let Some(status) = status else { return Err(io::Error::other("the system returned no exit status")) };
    // Encoded as by `wait(2)`.
    Ok(ExitStatus::from_raw(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (code & 0xff) << 8,
        (None, signal) => signal.unwrap_or(9) & 0x7f,
    }))
}

/// Reaps a killed group: the program, the placeholder process, and orphans that became children of this process
/// because it is the init process of its container.
fn reap(group: Pid) {
    loop {
        match rustix::process::waitpgid(group, WaitOptions::empty()) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

type LaunchedProgram = (Pid, Pid, GuardedGroup, Confinement, PipeEnds);

fn launch(plan: &LaunchPlan, group: &ProcessGroup) -> Result<LaunchedProgram, StartError> {
    sandbox::close_files_on_exec();
    if let Some(key) = system::unenforced_limit(plan) {
        return Err(StartError::Unlimited(key));
    }
    let (host_ends, program_ends) = pipes::open_pipes()?;
    let first = start_first_member(plan)?;
    if let Some(first) = first {
        let mut state = group.0.lock();
        if matches!(*state, GroupState::Pending) {
            *state = GroupState::Alive(first);
        }
    }
    // Before the program starts: this process may be killed at any time.
    let guarded = first.map(|first| plan.guard.watch(first));
    let (child, confinement) = match run_in_thread(|| spawn_confined(plan, first, &program_ends)) {
        Ok(done) => done,
        Err(error) => {
            if let Some(first) = first {
                *group.0.lock() = GroupState::Ended;
                kill_group(first);
                drop(guarded);
                reap(first);
            }
            return Err(error);
        }
    };
    let id = first.unwrap_or(child);
    system::set_resource_limits(plan, child);
    system::set_nproc_limit(child, plan.processes.0);
    let guard = guarded.unwrap_or_else(|| plan.guard.watch(id));
    let mut state = group.0.lock();
    if matches!(*state, GroupState::Ended) {
        kill_group(id);
    }
    *state = GroupState::Alive(id);
    drop(state);
    Ok((child, id, guard, confinement, host_ends))
}

/// Starts the placeholder process of a group; `None` where the kernel cannot freeze it: the program then leads its
/// own group.
fn start_first_member(plan: &LaunchPlan) -> Result<Option<Pid>, StartError> {
    let dev_null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let first = run_in_thread(|| {
        let mut command = Command::new(&plan.file);
        command.env_clear().process_group(0);
        command.stdin(dev_null.try_clone()?).stdout(dev_null.try_clone()?).stderr(dev_null.try_clone()?);
        if !sandbox::freeze()? {
            return Ok(None);
        }
        Ok(Some(pid_of(&command.spawn()?)?))
    })?;
    if let Some(first) = first {
        rustix::process::kill_process(first, Signal::KILL).map_err(io::Error::from)?;
    }
    Ok(first)
}

/// Starts the program from the current thread, which is confined first.
fn spawn_confined(
    plan: &LaunchPlan,
    first: Option<Pid>,
    pipes: &[OwnedFd; 3],
) -> Result<(Pid, Confinement), StartError> {
    let [stdin, stdout, stderr] = pipes;
    let mut command = Command::new(&plan.file);
    command
        .arg0(&plan.name)
        .args(&plan.args)
        .env_clear()
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .current_dir(sandbox::folder_path(&plan.cwd)?)
        .process_group(first.map_or(0, |first| first.as_raw_nonzero().get()))
        .stdin(Stdio::from(stdin.try_clone()?))
        .stdout(Stdio::from(stdout.try_clone()?))
        .stderr(Stdio::from(stderr.try_clone()?));
    let confinement = match plan.sandbox_mode {
        SandboxMode::Required | SandboxMode::BestEffort => plan.sandbox.restrict_thread(first)?,
        SandboxMode::None => Confinement::default(),
    };
    if let Some(problem) = confinement.unmet_requirement(plan.sandbox_mode) {
        let weaker = confinement.weaker_mode().unwrap_or(SandboxMode::None);
        return Err(StartError::Unconfined { problem, weaker });
    }
    Ok((pid_of(&command.spawn()?)?, confinement))
}

/// Runs `work` in a new thread, since the confinement of a thread cannot be undone.
fn run_in_thread<T: Send>(work: impl FnOnce() -> Result<T, StartError> + Send) -> Result<T, StartError> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("toolbay-confined".to_owned()).spawn_scoped(scope, work)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(StartError::Io(io::Error::other("the start of the program panicked"))))
    })
}

fn pid_of(child: &std::process::Child) -> io::Result<Pid> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| io::Error::other("the system returned no process id"))
}
