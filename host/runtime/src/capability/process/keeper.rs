//! The life of one program, from start to its last trace.
//!
//! Each has a thread of its own, the keeper, which waits for it: no thread of the async runtime does. All that the
//! program starts is in one process group and cannot leave it (the seccomp filter), and the group is killed at the
//! end.
//!
//! A group needs a first member, and its number is only reserved as long as there is one. So each begins with a
//! process that is dead before it does anything: the program itself, started under a filter that lets it do nothing,
//! and killed at once. It stays a zombie until everything else is over. The number of the group is thus known before
//! the program starts, so that the filter can name it, and stays ours until the last signal was sent.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions};
use tokio::sync::oneshot;
use toolbay_policy::capability::program::Sandbox;

use super::cage::{self, Cage, Confinement};
use super::guard;
use super::pipes::{self, Ends, Pipes};
use super::process_limit;
use super::request::path_of;
use crate::engine::bindings::host::process::Completed;

/// What is to be started.
pub(super) struct Plan {
    /// `None`: the operator wants none.
    pub(super) cage: Option<Cage>,
    pub(super) file: PathBuf,
    /// What the program is told as its own name.
    pub(super) name: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) cwd: OwnedFd,
    pub(super) sandbox: Sandbox,
    pub(super) memory_bytes: Option<u64>,
    pub(super) file_bytes: u64,
    /// Most processes at once, and the key of the policy that says so.
    pub(super) processes: (u64, String),
    /// The program that ends the group when this process is gone; see [`super::guard`].
    pub(super) guard: Option<PathBuf>,
}

/// Why nothing was started.
#[derive(Debug)]
pub(super) enum StartError {
    Io(io::Error),
    /// The system has no sandbox, and the policy asks for one.
    Unconfined(String),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A running program. Dropping it kills it with all it started.
#[derive(Debug)]
pub(super) struct Running {
    group: Arc<Group>,
    confinement: Confinement,
    pipes: Option<Pipes>,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
}

/// The process group of a program, as far as it can be killed.
#[derive(Debug, Default)]
struct Group(Mutex<Stage>);

#[derive(Debug, Default)]
enum Stage {
    #[default]
    NotYet,
    /// Its number is reserved for as long as this stands here.
    Alive(Pid),
    /// To be killed as soon as it is there, or gone.
    Over,
}

impl Group {
    /// Sends a signal to a group that is there.
    fn signal(&self, signal: Signal) {
        if let Stage::Alive(group) = *self.0.lock() {
            // Nobody left is nobody to tell.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    fn kill(&self) {
        let mut stage = self.0.lock();
        match *stage {
            Stage::Alive(group) => kill(group),
            Stage::NotYet => *stage = Stage::Over,
            Stage::Over => {}
        }
    }
}

/// Kills a group. The kernel does it in one step: a process that is being forked is killed with its parent.
fn kill(group: Pid) {
    // Nobody left is what was wanted.
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
}

impl Drop for Running {
    fn drop(&mut self) {
        self.group.kill();
    }
}

/// Kills the group of a start whose call ended before the start was over.
struct Starting(Option<Arc<Group>>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            group.kill();
        }
    }
}

impl Running {
    /// Starts a program. `place` is held until the last of its processes is gone.
    pub(super) async fn start(plan: Plan, place: impl Send + 'static) -> Result<Self, StartError> {
        let group = Arc::new(Group::default());
        let mut starting = Starting(Some(Arc::clone(&group)));
        let (started, start) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let kept = Arc::clone(&group);
        // Waits for the program. Ends with it; the end of the call kills the program.
        std::thread::Builder::new().name("toolbay-program".to_owned()).spawn(move || {
            keep(&plan, &kept, started, end);
            drop(place);
        })?;
        let lost = || StartError::Io(io::Error::other("its keeper is gone"));
        let (confinement, ends) = start.await.map_err(|_| lost())??;
        let pipes = Some(Pipes::new(ends)?);
        starting.0 = None;
        Ok(Self { group, confinement, pipes, ended })
    }

    /// What holds it, for the audit.
    pub(super) fn confinement(&self) -> &'static str {
        self.confinement.shown()
    }

    /// Its streams, for whoever speaks with it; once.
    pub(super) fn pipes(&mut self) -> Option<Pipes> {
        self.pipes.take()
    }

    /// Waits for the end of its first process.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let lost = |_| io::Error::other("its keeper is gone");
        (&mut self.ended).await.map_err(lost).flatten()
    }

    /// Feeds it `stdin`, keeps at most `most` bytes of each of its streams, and waits for its end.
    pub(super) async fn finish(mut self, stdin: Vec<u8>, most: u64) -> io::Result<Completed> {
        let Some(pipes) = self.pipes.take() else { return Err(io::Error::other("it has no pipes")) };
        let (status, output) = tokio::join!(self.ended(), pipes.drive(stdin, most));
        let (status, output) = (status?, output?);
        Ok(Completed {
            exit_code: if status.signal().is_some() { None } else { status.code() },
            stdout: output.stdout,
            stderr: output.stderr,
            truncated: output.truncated,
        })
    }
}

type Started = oneshot::Sender<Result<(Confinement, Ends), StartError>>;

/// The keeper: starts the program, waits for it, ends what it left behind.
fn keep(plan: &Plan, group: &Group, started: Started, ended: oneshot::Sender<io::Result<ExitStatus>>) {
    // The guard lives for as long as its pipe is held here.
    let (child, id, guard) = match launch(plan, group) {
        Ok((child, id, guard, confinement, ends)) => {
            // If nobody listens any more, the call is over.
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
    let status = counted(plan, group, id, || wait(child));
    let mut stage = group.0.lock();
    kill(id);
    *stage = Stage::Over;
    drop(stage);
    drop(guard);
    reap(id);
    // Nobody to hear it is no loss: the call is over.
    drop(ended.send(status));
}

/// Runs `wait` while the processes of the group are counted; an error, if they were too many.
fn counted(
    plan: &Plan,
    group: &Group,
    id: Pid,
    wait: impl FnOnce() -> io::Result<ExitStatus>,
) -> io::Result<ExitStatus> {
    let (most, key) = (plan.processes.0, &plan.processes.1);
    std::thread::scope(|scope| {
        let (over, ended) = std::sync::mpsc::channel();
        // Counts the processes of the program. Ends with it.
        let thread = std::thread::Builder::new().name("toolbay-processes".to_owned());
        let watching = thread.spawn_scoped(scope, move || {
            process_limit::watch(id, most, &ended, |signal| group.signal(signal))
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
                "it had more than {most} processes at once and was ended with all of them; the operator can allow \
                 more: {key}"
            ))),
        }
    })
}

/// Waits for the program's first process and leaves its trace.
fn wait(child: Pid) -> io::Result<ExitStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = loop {
        match rustix::process::waitid(WaitId::Pid(child), options) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(status) => break status,
        }
    };
    let Some(status) = status else { return Err(io::Error::other("no exit status")) };
    // As `wait(2)` packs them.
    Ok(ExitStatus::from_raw(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (code & 0xff) << 8,
        (None, signal) => signal.unwrap_or(9) & 0x7f,
    }))
}

/// Takes away what is left of a killed group: the program, the first member, and what became a child of this process
/// because its own parent is gone and this is the first process of its container.
fn reap(group: Pid) {
    loop {
        match rustix::process::waitpgid(group, WaitOptions::empty()) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

type Launched = (Pid, Pid, Option<OwnedFd>, Confinement, Ends);

fn launch(plan: &Plan, group: &Group) -> Result<Launched, StartError> {
    cage::keep_files();
    let (ours, theirs) = pipes::open()?;
    let first = first_member(plan)?;
    if let Some(first) = first {
        let mut stage = group.0.lock();
        if matches!(*stage, Stage::NotYet) {
            *stage = Stage::Alive(first);
        }
    }
    let (child, confinement) = match in_a_thread(|| start(plan, first, &theirs)) {
        Ok(done) => done,
        Err(error) => {
            if let Some(first) = first {
                *group.0.lock() = Stage::Over;
                kill(first);
                reap(first);
            }
            return Err(error);
        }
    };
    let id = first.unwrap_or(child);
    bound(plan, child);
    process_limit::bound(child, plan.processes.0);
    let guard = plan.guard.as_deref().and_then(|program| guard::start(program, id));
    let mut stage = group.0.lock();
    if matches!(*stage, Stage::Over) {
        kill(id);
    }
    *stage = Stage::Alive(id);
    drop(stage);
    Ok((child, id, guard, confinement, ours))
}

/// Starts the first member of a group; `None` where the kernel cannot freeze it: the program is then its own group.
fn first_member(plan: &Plan) -> Result<Option<Pid>, StartError> {
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let first = in_a_thread(|| {
        let mut command = Command::new(&plan.file);
        command.env_clear().process_group(0);
        command.stdin(nothing.try_clone()?).stdout(nothing.try_clone()?).stderr(nothing.try_clone()?);
        if !cage::freeze()? {
            return Ok(None);
        }
        Ok(Some(id_of(&command.spawn()?)?))
    })?;
    if let Some(first) = first {
        rustix::process::kill_process(first, Signal::KILL).map_err(io::Error::from)?;
    }
    Ok(first)
}

/// Starts the program from a thread that is confined as the program is to be.
fn start(plan: &Plan, first: Option<Pid>, pipes: &[OwnedFd; 3]) -> Result<(Pid, Confinement), StartError> {
    let [stdin, stdout, stderr] = pipes;
    let mut command = Command::new(&plan.file);
    command
        .arg0(&plan.name)
        .args(&plan.args)
        .env_clear()
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .current_dir(Path::new(&path_of(&plan.cwd)))
        .process_group(first.map_or(0, |first| first.as_raw_nonzero().get()))
        .stdin(Stdio::from(stdin.try_clone()?))
        .stdout(Stdio::from(stdout.try_clone()?))
        .stderr(Stdio::from(stderr.try_clone()?));
    let confinement = match &plan.cage {
        Some(cage) => cage.enter(first)?,
        None => Confinement::default(),
    };
    if plan.cage.is_some()
        && plan.sandbox == Sandbox::Required
        && let Some(lack) = confinement.lack()
    {
        return Err(StartError::Unconfined(lack));
    }
    Ok((id_of(&command.spawn()?)?, confinement))
}

/// Runs `work` in a thread of its own, since what confines a thread is never taken from it again.
fn in_a_thread<T: Send>(work: impl FnOnce() -> Result<T, StartError> + Send) -> Result<T, StartError> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("toolbay-confined".to_owned()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| Err(StartError::Io(io::Error::other("the start failed"))))
    })
}

fn id_of(child: &std::process::Child) -> io::Result<Pid> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| io::Error::other("the system gave no process id"))
}

/// Bounds what one process may take. It has begun already; what it started before this is a matter of microseconds.
#[cfg(target_os = "linux")]
fn bound(plan: &Plan, child: Pid) {
    let most = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    let bounds = [
        (Resource::Core, Some(0)),
        (Resource::Fsize, Some(plan.file_bytes)),
        (Resource::As, plan.memory_bytes),
    ];
    for (resource, value) in bounds {
        if let Some(value) = value {
            // A process that is gone needs no bound.
            let _ = rustix::process::prlimit(Some(child), resource, most(value));
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn bound(_: &Plan, _: Pid) {}
