//! The files of the operator's programs. Names are resolved when the policy is read, and each file is checked again
//! before it runs, in case it was replaced.
//!
//! A process that can write a program's file chooses what runs: plugins, programs and MCP servers, each in the folders
//! that the policy lets it write. A server runs with the host's secrets, and a program without a sandbox with all rights of
//! the user, so their whole command line is checked: the script of an interpreter, every other executable argument, and the
//! folders that its loader searches ([`Programs::check_command_line`]).

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_policy::Policy;
use toolbay_policy::capability::path_rule::{self, PathRule};
use toolbay_policy::capability::program::Program;
use toolbay_policy::mcp_server::ServerTransport;
use toolbay_policy::name::PluginId;

use super::command_line::{self, CodeSource};

/// The programs of a policy.
#[derive(Debug)]
pub(super) struct Programs {
    by_name: BTreeMap<String, Arc<ListedProgram>>,
    /// Folders that plugins, programs or servers can write, each with the policy key.
    writable: Vec<(String, PathRule)>,
}

/// One program.
#[derive(Debug)]
pub(super) struct ListedProgram {
    pub(super) program: Program,
    /// The file with all links resolved when the policy was read; `None` if it did not exist.
    resolved: Option<PathBuf>,
}

/// The reason why a listed program is not run.
#[derive(Debug)]
pub(super) enum ProgramError {
    /// The file does not exist.
    NotFound,
    /// The file exists but is refused.
    Refused(String),
}

impl ListedProgram {
    /// Resolves the file of a program. Blocks.
    pub(super) fn resolve(program: &Program) -> Self {
        Self { program: program.clone(), resolved: std::fs::canonicalize(&program.path).ok() }
    }
}

impl Programs {
    pub(super) fn from_policy(policy: &Policy) -> Self {
        let by_plugins = policy.writable_paths().map(|(id, rule): (&PluginId, &PathRule)| {
            (format!("[plugins.{id}.grant] fs_write"), rule.clone())
        });
        let by_programs = policy.programs().flat_map(|(name, program)| {
            program.write.iter().map(move |rule| (format!("[programs.{name}] write"), rule.clone()))
        });
        let by_servers = policy.mcp_servers().flat_map(|server| {
            let child = match &server.transport {
                ServerTransport::Stdio(child) => Some(child),
                ServerTransport::Http(_) => None,
            };
            let written = child.into_iter().flat_map(|child| &child.program.write);
            written.map(move |rule| (format!("[mcp.{}] fs_write", server.name), rule.clone()))
        });
        Self {
            writable: by_plugins.chain(by_programs).chain(by_servers).collect(),
            by_name: policy
                .programs()
                .map(|(name, one)| (name.to_owned(), Arc::new(ListedProgram::resolve(one))))
                .collect(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<ListedProgram>> {
        self.by_name.get(name)
    }

    /// Returns the file to run if it is still the one that was resolved. Blocks.
    pub(super) fn check(&self, listed: &ListedProgram) -> Result<PathBuf, ProgramError> {
        let path = &listed.program.path;
        let Some(resolved) = &listed.resolved else { return Err(ProgramError::NotFound) };
        let refuse = |problem: &str| Err(ProgramError::Refused(format!("`{}` {problem}", path.display())));
        let Ok(now) = std::fs::canonicalize(path) else { return Err(ProgramError::NotFound) };
        if now != *resolved {
            return refuse("resolves to another file than at the start of the host: restart the host");
        }
        if let Some(problem) = self.find_writer(path).or_else(|| self.find_writer(resolved)) {
            return refuse(&problem);
        }
        let Ok(meta) = std::fs::metadata(resolved) else { return Err(ProgramError::NotFound) };
        if !meta.is_file() {
            return refuse("is not a file");
        }
        if meta.permissions().mode() & 0o111 == 0 {
            return refuse("is not executable");
        }
        match ownership_problem(&meta) {
            Some(problem) => refuse(problem),
            None => Ok(now),
        }
    }

    /// Checks the command line of a run without a sandbox. A plugin chooses the moment of the run, so a script that does not
    /// exist yet counts, too: the plugin could create it meanwhile. Blocks.
    ///
    /// # Errors
    /// As [`Self::check_command_line`].
    pub(super) fn check_run(&self, program: &Program, args: &[String]) -> Result<(), String> {
        self.check_command_line(program, args)?;
        let missing = command_line::missing_scripts(program, args);
        let refused = missing.into_iter().find_map(|path| {
            let problem = self.find_writer(&path)?;
            Some(format!("the script `{}` {problem}", path_rule::printable_path(&path.display().to_string())))
        });
        refused.map_or(Ok(()), Err)
    }

    /// Checks that others cannot write the code that a command line runs in addition to the program. Blocks.
    ///
    /// # Errors
    /// When others can write it; the text names the path and the policy key.
    pub(super) fn check_command_line(&self, program: &Program, args: &[String]) -> Result<(), String> {
        for CodeSource { path, role, remedy } in command_line::code_sources(program, args) {
            let behind = std::fs::canonicalize(&path).ok();
            let problem = self.find_writer(&path).or_else(|| self.find_writer(behind.as_ref()?));
            // The contents of a folder are checked one by one.
            let meta =
                behind.and_then(|path| std::fs::metadata(path).ok()).filter(std::fs::Metadata::is_file);
            let problem = problem.or_else(|| ownership_problem(&meta?).map(str::to_owned));
            if let Some(problem) = problem {
                return Err(format!("{role} `{}` {problem}{remedy}", path.display()));
            }
        }
        Ok(())
    }

    /// Describes who can write at a path under the policy.
    fn find_writer(&self, path: &Path) -> Option<String> {
        let (who, _) = self.writable.iter().find(|(_, rule)| lies_within(path, rule))?;
        Some(format!("lies in a folder that the policy makes writable: see `{who}`"))
    }
}

/// Describes which other users can change a file.
fn ownership_problem(meta: &std::fs::Metadata) -> Option<&'static str> {
    if meta.permissions().mode() & 0o002 != 0 {
        return Some("can be written by every user of the system");
    }
    let owner = meta.uid();
    let ours = owner == 0 || owner == rustix::process::geteuid().as_raw();
    (!ours).then_some("belongs neither to root nor to the user of this host")
}

/// Whether a file lies in a folder, by name or with links resolved.
fn lies_within(file: &Path, folder: &PathRule) -> bool {
    folder.allows(file) || std::fs::canonicalize(folder.folder()).is_ok_and(|folder| file.starts_with(folder))
}
