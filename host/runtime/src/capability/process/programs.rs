//! The operator's programs as files. What a name means is settled when the policy is read; before each run it is looked
//! at again, so that nothing was put in its place, least of all by a plugin.
//!
//! Whoever may write where a program lies may choose what runs: plugins, programs and other MCP servers, each with the
//! folders that the policy lets it write. For a server, which runs with what the host hands it, that holds of the whole
//! line: of a script that an interpreter is given, of whatever else in the line can be run, of the folders in which its
//! loader looks ([`Programs::check_line`]).

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_policy::Policy;
use toolbay_policy::capability::program::Program;
use toolbay_policy::capability::reach::Reach;
use toolbay_policy::mcp_server::Place;
use toolbay_policy::name::PluginId;

use super::line::{self, Runs};

/// All programs of a policy.
#[derive(Debug)]
pub(super) struct Programs {
    by_name: BTreeMap<String, Arc<Listed>>,
    /// Folders that plugins, programs or servers may write, with who may.
    written: Vec<(String, Reach)>,
}

/// One program.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) program: Program,
    /// The file behind the links of its path, as it was when the host started; `None`: there was none.
    resolved: Option<PathBuf>,
}

/// Why a listed program is not run.
#[derive(Debug)]
pub(super) enum Unfit {
    /// It is not there.
    Absent,
    /// It is there, and something is wrong with it.
    Refused(String),
}

impl Listed {
    /// A program as it is found now. Blocking.
    pub(super) fn now(program: &Program) -> Self {
        Self { program: program.clone(), resolved: std::fs::canonicalize(&program.path).ok() }
    }
}

impl Programs {
    pub(super) fn find(policy: &Policy) -> Self {
        let by_plugins = policy.written().map(|(id, reach): (&PluginId, &Reach)| {
            (format!("[plugins.{id}.grant] fs_write"), reach.clone())
        });
        let by_programs = policy.programs().flat_map(|(name, program)| {
            program.write.iter().map(move |reach| (format!("[programs.{name}] write"), reach.clone()))
        });
        let by_servers = policy.mcp_servers().flat_map(|server| {
            let child = match &server.place {
                Place::Child(child) => Some(child),
                Place::Http(_) => None,
            };
            let written = child.into_iter().flat_map(|child| &child.program.write);
            written.map(move |reach| (format!("[mcp.{}] fs_write", server.name), reach.clone()))
        });
        Self {
            written: by_plugins.chain(by_programs).chain(by_servers).collect(),
            by_name: policy
                .programs()
                .map(|(name, one)| (name.to_owned(), Arc::new(Listed::now(one))))
                .collect(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Listed>> {
        self.by_name.get(name)
    }

    /// The file to run, if it still is what the operator listed. Blocking.
    pub(super) fn check(&self, listed: &Listed) -> Result<PathBuf, Unfit> {
        let path = &listed.program.path;
        let Some(resolved) = &listed.resolved else { return Err(Unfit::Absent) };
        let refuse = |problem: &str| Err(Unfit::Refused(format!("`{}` {problem}", path.display())));
        let Ok(now) = std::fs::canonicalize(path) else { return Err(Unfit::Absent) };
        if now != *resolved {
            return refuse("leads to another file than when the host started: start the host again");
        }
        if let Some(problem) = self.writer(path).or_else(|| self.writer(resolved)) {
            return refuse(&problem);
        }
        let Ok(meta) = std::fs::metadata(resolved) else { return Err(Unfit::Absent) };
        if !meta.is_file() {
            return refuse("is not a file");
        }
        if meta.permissions().mode() & 0o111 == 0 {
            return refuse("is not executable");
        }
        match owned(&meta) {
            Some(problem) => refuse(problem),
            None => Ok(now),
        }
    }

    /// Whether others may write what a server's line makes run beside the program itself. Blocking.
    ///
    /// # Errors
    /// What they may write, and who.
    pub(super) fn check_line(&self, program: &Program, args: &[String]) -> Result<(), String> {
        for Runs { place, what, remedy } in line::runs(program, args) {
            let behind = std::fs::canonicalize(&place).ok();
            let problem = self.writer(&place).or_else(|| self.writer(behind.as_ref()?));
            // A folder in which others may put things is looked at by its contents, each by itself.
            let meta =
                behind.and_then(|path| std::fs::metadata(path).ok()).filter(std::fs::Metadata::is_file);
            let problem = problem.or_else(|| owned(&meta?).map(str::to_owned));
            if let Some(problem) = problem {
                return Err(format!("{what} `{}` {problem}{remedy}", place.display()));
            }
        }
        Ok(())
    }

    /// Who may write at a place, said of it.
    fn writer(&self, place: &Path) -> Option<String> {
        let (who, _) = self.written.iter().find(|(_, reach)| within(place, reach))?;
        Some(format!("lies in a folder that can be written under the policy: see `{who}`"))
    }
}

/// Why a file is somebody else's to change.
fn owned(meta: &std::fs::Metadata) -> Option<&'static str> {
    if meta.permissions().mode() & 0o002 != 0 {
        return Some("can be written by every user of the system");
    }
    let owner = meta.uid();
    let ours = owner == 0 || owner == rustix::process::geteuid().as_raw();
    (!ours).then_some("belongs neither to root nor to the user of this host")
}

/// Whether a file lies in a folder, by the folder's name or by what the name leads to.
fn within(file: &Path, folder: &Reach) -> bool {
    folder.allows(file) || std::fs::canonicalize(folder.folder()).is_ok_and(|folder| file.starts_with(folder))
}
