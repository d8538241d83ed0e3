//! Turns a guest's command into a launch plan, or into the reason for a refusal.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use toolbay_policy::GrantKey;
use toolbay_policy::capability::environment::EnvRule;
use toolbay_policy::capability::path_rule;
use toolbay_policy::capability::program::{Program, ProgramRule, SandboxMode};
use toolbay_policy::hint::{LineValue, PolicyLine, Remedy};
use toolbay_policy::limits::{CallLimits, Limit};
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::rule::GrantRule;
use toolbay_sandbox::process_sandbox::{FolderAccess, ProcessSandbox, SandboxFolder, open_path_handle};

use super::child::LaunchPlan;
use super::command_line;
use super::programs::{ListedProgram, ProgramError};
use crate::bindings::host::process::{Command, ProcessError};
use crate::files::{FileAccess, FileGrants, SharedProtectedPaths};
use crate::{Capabilities, ResolvedGrants};

/// Maximum number of bytes of all arguments and variables: far below the kernel's limit. It also bounds the
/// comparison with patterns, which is linear in them.
const MAX_COMMAND_LINE_BYTES: usize = 256 << 10;

/// A command that a rule of the grant matches.
pub(super) struct MatchedCommand {
    command: Command,
    /// The command line as a policy writes it.
    pub(super) shown: String,
    /// The rule of the grant that allows it.
    rule: String,
    listed: Arc<ListedProgram>,
    granted: Arc<ResolvedGrants>,
    files: Option<FileGrants>,
    limits: Arc<CallLimits>,
}

/// A command that is ready to start.
pub(super) struct PreparedCommand {
    pub(super) plan: LaunchPlan,
    pub(super) program: String,
    /// The rule of the grant that allowed it.
    pub(super) rule: String,
    pub(super) stdin: Vec<u8>,
    pub(super) timeout: Option<Duration>,
    /// Maximum number of bytes kept of each output stream.
    pub(super) output_bytes: u64,
}

/// The reason why a matched command is not started.
pub(super) enum PrepareError {
    /// The error for the guest.
    Guest(ProcessError),
    /// The program or the request is refused.
    Denied(PolicyRefusal),
    /// A limit was reached: the event and the limit.
    Limit(String, Limit),
    /// The tool is not granted the working folder.
    FolderNotGranted(String),
}

impl MatchedCommand {
    /// Checks a command line against the tool's grants, on a file thread: a guest chooses the command line, and its
    /// author some of the patterns.
    pub(super) async fn admit(of: &Capabilities, command: Command) -> Result<Self, ProcessError> {
        check_size(&command)?;
        let denied = |shown: &str| ProcessError::Denied(of.grantee.refuse(GrantKey::Process, shown));
        let granted = Arc::clone(of.grantee.granted.as_ref().ok_or_else(|| denied(&command.program))?);
        let (files, limits) = (of.files.clone(), Arc::clone(&of.grantee.limits));
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
        let compared = threads.run(&of.grantee.plugin, compare).await;
        let compared = compared.map_err(|undone| ProcessError::Other(undone.to_string()))?;
        compared.map_err(|shown| denied(&shown))
    }

    /// Checks the file, opens the folders and assembles the launch plan. Blocks.
    pub(super) fn prepare(self) -> Result<PreparedCommand, PrepareError> {
        let program = &self.listed.program;
        let file =
            self.granted.services.process.programs.check(&self.listed).map_err(|error| match error {
                ProgramError::NotFound => {
                    PrepareError::Guest(ProcessError::NotFound(self.command.program.clone()))
                }
                ProgramError::Refused(problem) => PrepareError::Denied(problem.into()),
            })?;
        if self.command.stdin.as_ref().is_some_and(|data| data.len() as u64 > self.limits.process_bytes) {
            let what =
                format!("`{}` is not run: its input is too large", path_rule::printable_path(&self.shown));
            return Err(PrepareError::Limit(what, Limit::ProcessBytes));
        }
        let env = program_environment(program, &self.command).map_err(PrepareError::Denied)?;
        let (cwd, folder) = self.open_cwd()?;
        if program.sandbox == SandboxMode::None {
            self.check_code(folder).map_err(|problem| PrepareError::Denied(problem.into()))?;
        }
        let own = self.program_folders()?;
        let sandbox =
            ProcessSandbox::new(program, &file, tool_folders(self.files.as_ref()).chain(own).collect());
        let asked = self.command.timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let max = self.command.max_output_bytes.map_or(u64::MAX, u64::from);
        Ok(PreparedCommand {
            timeout: asked.into_iter().chain(program.timeout).min(),
            output_bytes: max.min(self.limits.process_bytes),
            plan: LaunchPlan {
                sandbox,
                name: program.path.clone().into_os_string(),
                file,
                args: self.command.args.iter().map(OsString::from).collect(),
                env,
                cwd,
                sandbox_mode: program.sandbox,
                memory_bytes: program.memory_bytes,
                file_bytes: self.limits.file_bytes,
                processes: (program.processes, format!("[programs.{}] processes = …", self.command.program)),
                guard: Arc::clone(&self.granted.services.process.guard),
            },
            program: self.command.program,
            rule: self.rule,
            stdin: self.command.stdin.unwrap_or_default(),
        })
    }

    /// Checks that no plugin can write the code that the command runs in `folder`: without a sandbox, it would run with all
    /// rights of the user. Blocks.
    fn check_code(&self, folder: PathBuf) -> Result<(), String> {
        let (program, command) = (&self.listed.program, &self.command);
        let listed = program.env.iter().filter(|rule| command.env.iter().all(|(name, _)| *name != rule.name));
        let chosen = command.env.iter().map(|(name, value)| EnvRule {
            name: name.clone(),
            value: Some(command_line::absolute_parts(&folder, value)),
        });
        let env = listed.cloned().chain(chosen).collect();
        let run = Program { env, cwd: folder, ..program.clone() };
        self.granted.services.process.programs.check_run(&run, &command.args)
    }

    /// Opens the folders that the operator granted the program, and skips missing ones. The kernel supports no
    /// exclusions, so a folder that overlaps a protected path is refused.
    fn program_folders(&self) -> Result<Vec<SandboxFolder>, PrepareError> {
        let (program, protected) = (&self.listed.program, &self.granted.services.process.protected);
        let table = format!("[programs.{}]", self.command.program);
        open_program_folders(program, protected, &table, ["read", "write", "execute"])
            .map_err(PrepareError::Denied)
    }

    /// Opens the working folder, and returns its handle and path. A folder that the guest names must be reached by its
    /// tool, and is resolved below the granted folder's handle, so that no link leads out.
    fn open_cwd(&self) -> Result<(OwnedFd, PathBuf), PrepareError> {
        let failed = |path: &str, error: &std::io::Error| {
            let problem = format!("the folder `{}`: {error}", path_rule::printable_path(path));
            PrepareError::Guest(ProcessError::Other(problem))
        };
        let Some(asked) = self.command.cwd.as_deref() else {
            let path = &self.listed.program.cwd;
            let dir = Dir::open_ambient_dir(path, ambient_authority());
            return dir
                .map(|dir| (dir.into(), path.clone()))
                .map_err(|e| failed(&path.display().to_string(), &e));
        };
        let workspace = self.granted.services.policy.workspace();
        if asked.is_empty() || asked.contains('\0') {
            let problem = format!("`{}` is not a folder", path_rule::printable_path(asked));
            return Err(PrepareError::Guest(ProcessError::Other(problem)));
        }
        let Some(full) = path_rule::normalize(&workspace.join(asked)) else {
            return Err(PrepareError::FolderNotGranted(asked.to_owned()));
        };
        let denied = || PrepareError::FolderNotGranted(path_rule::show_folder(&full, workspace));
        let opened = self
            .files
            .iter()
            .flat_map(|f| f.whole_folders(FileAccess::Read).chain(f.whole_folders(FileAccess::Write)));
        let root =
            opened.filter(|(path, _)| full.starts_with(path)).max_by_key(|(path, _)| path.as_os_str().len());
        let (path, dir) = root.ok_or_else(denied)?;
        let inside = full.strip_prefix(path).ok().filter(|inside| !inside.as_os_str().is_empty());
        match dir.open_dir(inside.unwrap_or(Path::new("."))) {
            Ok(dir) => Ok((dir.into(), full)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(denied()),
            Err(error) => Err(failed(asked, &error)),
        }
    }
}

/// The folders of a program, each with its list, its position there and the access.
fn listed_folders<'a>(
    program: &'a Program,
    [read, write, execute]: [&'a str; 3],
) -> impl Iterator<Item = (&'a str, usize, &'a Path, FolderAccess)> {
    let lists = [
        (read, &program.read, FolderAccess::Read),
        (write, &program.write, FolderAccess::Write),
        (execute, &program.execute, FolderAccess::Execute),
    ];
    lists.into_iter().flat_map(|(list, rules, access)| {
        rules.iter().enumerate().map(move |(index, rule)| (list, index, rule.folder(), access))
    })
}

/// Returns the first folder in a program's own lists that overlaps a protected path: its list and its position there,
/// and the refusal. `keys` are the names of the lists in `table`.
pub(super) fn find_protected_folder<'a>(
    program: &'a Program,
    protected: &SharedProtectedPaths,
    table: &str,
    keys: [&'a str; 3],
) -> Option<((&'a str, usize), PolicyRefusal)> {
    listed_folders(program, keys).find_map(|(list, index, path, access)| {
        let overlap = protected.find_overlap(path, access == FolderAccess::Write)?;
        let (path, overlap) = (path.display(), overlap.display());
        let text = "one of its folders contains a protected path of the host";
        let hint = format!(
            "`{list}` of {table} lists `{path}`, which overlaps the protected path `{overlap}`: \
             list narrower folders. Only `--allow-protected-path {overlap}` on the command line allows it."
        );
        Some(((list, index), PolicyRefusal::new(text, hint)))
    })
}

/// Opens the folders in a program's own lists; `keys` are the names of the lists in `table`. Blocks.
pub(super) fn open_program_folders(
    program: &Program,
    protected: &SharedProtectedPaths,
    table: &str,
    keys: [&str; 3],
) -> Result<Vec<SandboxFolder>, PolicyRefusal> {
    if let Some((_, refusal)) = find_protected_folder(program, protected, table, keys) {
        return Err(refusal);
    }
    let open = |(_, _, path, access): (&str, usize, &Path, FolderAccess)| {
        open_path_handle(path).map(|at| SandboxFolder { handle: at, access })
    };
    Ok(listed_folders(program, keys).filter_map(open).collect())
}

fn check_size(command: &Command) -> Result<(), ProcessError> {
    let texts =
        command.args.iter().chain([&command.program]).chain(command.env.iter().flat_map(|(k, v)| [k, v]));
    let bytes = texts.clone().fold(0, |sum: usize, text| sum.saturating_add(text.len()).saturating_add(16));
    if bytes > MAX_COMMAND_LINE_BYTES {
        let problem =
            format!("the arguments have more than {MAX_COMMAND_LINE_BYTES} bytes: pass the data on stdin");
        return Err(ProcessError::Other(problem));
    }
    if texts.clone().any(|text| text.contains('\0')) {
        return Err(ProcessError::Other("an argument or variable contains a zero byte".to_owned()));
    }
    Ok(())
}

/// The environment of the program: the operator's variables, and the guest's where allowed.
fn program_environment(
    program: &Program,
    command: &Command,
) -> Result<Vec<(OsString, OsString)>, PolicyRefusal> {
    let mut env = Vec::new();
    for EnvRule { name, value } in &program.env {
        let value = value.clone().map(OsString::from).or_else(|| std::env::var_os(name));
        env.extend(value.map(|value| (OsString::from(name), value)));
    }
    for (name, value) in &command.env {
        if !program.guest_env.contains(name) {
            let text = format!(
                "the plugin is not allowed to set the variable `{}`",
                path_rule::printable_path(name)
            );
            // The whole list with the missing name added.
            let all = program.guest_env.iter().chain([name]).cloned().collect();
            let table = format!("[programs.{}]", command.program);
            let lines = vec![PolicyLine::new(table, "guest_env", LineValue::List(all))];
            return Err(PolicyRefusal::new(text, Remedy::Allow { first: None, lines }));
        }
        env.retain(|(known, _)| known.as_os_str() != name.as_str());
        env.push((OsString::from(name), OsString::from(value)));
    }
    Ok(env)
}

/// The folders of the tool, by the handles that were opened when the plugin was loaded.
fn tool_folders(files: Option<&FileGrants>) -> impl Iterator<Item = SandboxFolder> {
    let all = files.into_iter().flat_map(|files| {
        [(FileAccess::Read, FolderAccess::Read), (FileAccess::Write, FolderAccess::Write)]
            .into_iter()
            .flat_map(move |(kind, access)| files.whole_folders(kind).map(move |(_, dir)| (dir, access)))
    });
    all.filter_map(|(dir, access)| {
        Some(SandboxFolder { handle: dir.as_fd().try_clone_to_owned().ok()?, access })
    })
}
