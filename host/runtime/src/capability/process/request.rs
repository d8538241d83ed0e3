//! From what a guest asks to what is started, or to the reason why not.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use toolbay_policy::Key;
use toolbay_policy::capability::environment::EnvRule;
use toolbay_policy::capability::program::{Program, ProgramRule};
use toolbay_policy::capability::reach;
use toolbay_policy::limits::{Limit, Limits};
use toolbay_policy::refusal::{Refusal, to_allow};
use toolbay_policy::rule::Rule;

use super::cage::Cage;
use super::keeper::Plan;
use super::programs::{Listed, Unfit};
use crate::capability::files::{Access, FileGrants, Kept};
use crate::capability::{Capabilities, Granted};
use crate::engine::bindings::host::process::{Command, ProcessError};

/// Most bytes of all arguments and variables together: far below the kernel's bound, and a bound for the work of
/// comparing them with patterns, which is linear in them.
const MAX_LINE_BYTES: usize = 256 << 10;

/// A command line that a line of the grant matches.
pub(super) struct Wish {
    command: Command,
    /// The command line as a policy would write it.
    pub(super) shown: String,
    /// The line of the grant that allows it.
    rule: String,
    listed: Arc<Listed>,
    granted: Arc<Granted>,
    files: Option<FileGrants>,
    limits: Arc<Limits>,
}

/// A program that may be started.
pub(super) struct Request {
    pub(super) plan: Plan,
    pub(super) program: String,
    /// The line of the grant that allowed it.
    pub(super) rule: String,
    pub(super) stdin: Vec<u8>,
    pub(super) timeout: Option<Duration>,
    /// Most bytes that are kept of each stream.
    pub(super) output_bytes: u64,
}

/// Why a program is not started that a line of the grant matches.
pub(super) enum NotRun {
    /// The answer of the guest, as it is.
    Answer(ProcessError),
    /// Something about the program or the request is not allowed.
    Denied(Refusal),
    /// A limit was reached: what happened, and which one.
    Limit(String, Limit),
    /// The tool does not reach the folder in which it wants to start it.
    Folder(String),
}

impl Wish {
    /// Checks a command line against what a tool was granted. Off the async threads: a guest writes the line, and its
    /// author some of the patterns.
    pub(super) async fn admit(of: &Capabilities, command: Command) -> Result<Self, ProcessError> {
        check_size(&command)?;
        let denied = |shown: &str| ProcessError::Denied(of.who.refuse(Key::Process, shown));
        let granted = Arc::clone(of.who.granted.as_ref().ok_or_else(|| denied(&command.program))?);
        let (files, limits) = (of.files.clone(), Arc::clone(&of.who.limits));
        let threads = granted.services.file_threads.clone();
        let compare = move || {
            let shown = ProgramRule::exact(&command.program, &command.args).show(Path::new("/"));
            let mut rules = granted.grants.process.iter();
            let rule = rules.find(|rule| rule.allows(&command.program, &command.args));
            let rule = rule.map(|rule| rule.show(granted.services.policy.workspace()));
            let listed = granted.services.process.programs.get(&command.program).map(Arc::clone);
            match (rule, listed) {
                (Some(rule), Some(listed)) => {
                    Ok(Self { command, shown, rule, listed, granted, files, limits })
                }
                (None, _) | (_, None) => Err(shown),
            }
        };
        let compared = threads.run(&of.who.plugin, compare).await;
        let compared = compared.map_err(|undone| ProcessError::Other(undone.to_string()))?;
        compared.map_err(|shown| denied(&shown))
    }

    /// Looks at the file, opens the folders, and puts together what is to be started. Blocking.
    pub(super) fn prepare(self) -> Result<Request, NotRun> {
        let program = &self.listed.program;
        let file =
            self.granted.services.process.programs.check(&self.listed).map_err(|unfit| match unfit {
                Unfit::Absent => NotRun::Answer(ProcessError::NotFound(self.command.program.clone())),
                Unfit::Refused(problem) => NotRun::Denied(problem.into()),
            })?;
        if self.command.stdin.as_ref().is_some_and(|data| data.len() as u64 > self.limits.process_bytes) {
            let what = format!("`{}` is not run: it has too much input", reach::shown(&self.shown));
            return Err(NotRun::Limit(what, Limit::ProcessBytes));
        }
        let env = environment(program, &self.command).map_err(NotRun::Denied)?;
        let cwd = self.folder()?;
        let own = self.own_folders()?;
        let cage = Cage::new(program, &file, of_tool(self.files.as_ref()).chain(own).collect());
        let asked = self.command.timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let most = self.command.max_output_bytes.map_or(u64::MAX, u64::from);
        Ok(Request {
            timeout: asked.into_iter().chain(program.timeout).min(),
            output_bytes: most.min(self.limits.process_bytes),
            plan: Plan {
                cage: Some(cage),
                name: program.path.clone().into_os_string(),
                file,
                args: self.command.args.iter().map(OsString::from).collect(),
                env,
                cwd,
                sandbox: program.sandbox,
                memory_bytes: program.memory_bytes,
                file_bytes: self.limits.file_bytes,
                processes: (program.processes, format!("[programs.{}] processes = …", self.command.program)),
                guard: None,
            },
            program: self.command.program,
            rule: self.rule,
            stdin: self.command.stdin.unwrap_or_default(),
        })
    }

    /// Opens what the operator gave the program; what is not there is left out. The kernel knows no exclusions: what is,
    /// lies in or holds a place that the host keeps is refused.
    fn own_folders(&self) -> Result<Vec<Folder>, NotRun> {
        let (program, kept) = (&self.listed.program, &self.granted.services.process.kept);
        let table = format!("[programs.{}]", self.command.program);
        own_folders(program, kept, &table, ["read", "write", "execute"]).map_err(NotRun::Denied)
    }

    /// Opens the folder in which the program starts. One that the guest names must be one that its tool reaches, and
    /// is resolved below the granted folder's handle: no link leads out.
    fn folder(&self) -> Result<OwnedFd, NotRun> {
        let failed = |path: &str, error: &std::io::Error| {
            let problem = format!("the folder `{}`: {error}", reach::shown(path));
            NotRun::Answer(ProcessError::Other(problem))
        };
        let Some(asked) = self.command.cwd.as_deref() else {
            let path = &self.listed.program.cwd;
            let dir = Dir::open_ambient_dir(path, ambient_authority());
            return dir.map(Into::into).map_err(|e| failed(&path.display().to_string(), &e));
        };
        let workspace = self.granted.services.policy.workspace();
        if asked.is_empty() || asked.contains('\0') {
            let problem = format!("`{}` is not a folder", reach::shown(asked));
            return Err(NotRun::Answer(ProcessError::Other(problem)));
        }
        let Some(full) = reach::normalise(&workspace.join(asked)) else {
            return Err(NotRun::Folder(asked.to_owned()));
        };
        let denied = || NotRun::Folder(reach::show(&full, workspace));
        let opened = self.files.iter().flat_map(|f| f.opened(Access::Read).chain(f.opened(Access::Write)));
        let root =
            opened.filter(|(path, _)| full.starts_with(path)).max_by_key(|(path, _)| path.as_os_str().len());
        let (path, dir) = root.ok_or_else(denied)?;
        let inside = full.strip_prefix(path).ok().filter(|inside| !inside.as_os_str().is_empty());
        match dir.open_dir(inside.unwrap_or(Path::new("."))) {
            Ok(dir) => Ok(dir.into()),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(denied()),
            Err(error) => Err(failed(asked, &error)),
        }
    }
}

/// Opens what a program's own lists give it; `keys` are their names in `table`. Blocking.
pub(super) fn own_folders(
    program: &Program,
    kept: &Kept,
    table: &str,
    keys: [&str; 3],
) -> Result<Vec<Folder>, Refusal> {
    let [read, write, execute] = keys;
    let lists = [
        (read, &program.read, FolderAccess::Read),
        (write, &program.write, FolderAccess::Write),
        (execute, &program.execute, FolderAccess::Execute),
    ];
    let mut folders = Vec::new();
    for (list, reach, access) in lists.iter().flat_map(|(l, reach, a)| reach.iter().map(move |r| (l, r, *a)))
    {
        let path = reach.folder();
        if let Some(place) = kept.touches(path, access == FolderAccess::Write) {
            let (path, place) = (path.display(), place.display());
            let text = "it was given a folder that the host keeps from plugins and their programs";
            let hint = format!(
                "`{list}` of {table} gives it `{path}`, and the host keeps `{place}` from plugins and their \
                 programs: write narrower folders there. Only `--allow-protected-path {place}` on the command line opens it."
            );
            return Err(Refusal::new(text, hint));
        }
        folders.extend(open(path).map(|at| Folder { at, access }));
    }
    Ok(folders)
}

/// A folder or file that a program reaches beside the system's, by the handle that was opened for it.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) at: OwnedFd,
    pub(super) access: FolderAccess,
}

/// What a program may do there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderAccess {
    Read,
    Write,
    Execute,
}

fn check_size(command: &Command) -> Result<(), ProcessError> {
    let texts =
        command.args.iter().chain([&command.program]).chain(command.env.iter().flat_map(|(k, v)| [k, v]));
    let bytes = texts.clone().fold(0, |sum: usize, text| sum.saturating_add(text.len()).saturating_add(16));
    if bytes > MAX_LINE_BYTES {
        let problem = format!("the arguments have more than {MAX_LINE_BYTES} bytes: use the program's input");
        return Err(ProcessError::Other(problem));
    }
    if texts.clone().any(|text| text.contains('\0')) {
        return Err(ProcessError::Other("no argument or variable can hold a zero byte".to_owned()));
    }
    Ok(())
}

/// The variables of the child: what the operator listed, and what the guest sets of what it may.
fn environment(program: &Program, command: &Command) -> Result<Vec<(OsString, OsString)>, Refusal> {
    let mut env = Vec::new();
    for EnvRule { name, value } in &program.env {
        let value = value.clone().map(OsString::from).or_else(|| std::env::var_os(name));
        env.extend(value.map(|value| (OsString::from(name), value)));
    }
    for (name, value) in &command.env {
        if !program.guest_env.contains(name) {
            let text = format!("a plugin may not set its variable `{}`", reach::shown(name));
            // The list as it would have to be, with what stands there.
            let all: Vec<&String> = program.guest_env.iter().chain([name]).collect();
            let lines = format!("[programs.{}]\nguest_env = {}", command.program, serde_json::json!(all));
            return Err(Refusal::new(text, to_allow(&lines)));
        }
        env.retain(|(known, _)| known.as_os_str() != name.as_str());
        env.push((OsString::from(name), OsString::from(value)));
    }
    Ok(env)
}

/// What the program reaches as its tool does, by the handles that were opened when the plugin was loaded.
fn of_tool(files: Option<&FileGrants>) -> impl Iterator<Item = Folder> {
    let all = files.into_iter().flat_map(|files| {
        [(Access::Read, FolderAccess::Read), (Access::Write, FolderAccess::Write)]
            .into_iter()
            .flat_map(move |(kind, access)| files.opened(kind).map(move |(_, dir)| (dir, access)))
    });
    all.filter_map(|(dir, access)| Some(Folder { at: dir.as_fd().try_clone_to_owned().ok()?, access }))
}

/// A handle that names a folder or file and can do nothing with it.
pub(super) fn open(path: &Path) -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The path under which a folder can be entered that is open already: it cannot be swapped for another.
pub(super) fn path_of(folder: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", folder.as_raw_fd())
}
