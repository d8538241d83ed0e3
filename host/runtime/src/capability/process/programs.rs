//! The operator's programs as files. What a name means is settled when the policy is read; before each run it is looked
//! at again, so that nothing was put in its place, least of all by a plugin.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_core::name::PluginId;
use toolbay_core::policy::Policy;
use toolbay_core::program::Program;
use toolbay_core::reach::Reach;

/// All programs of a policy.
#[derive(Debug)]
pub(super) struct Programs {
    by_name: BTreeMap<String, Arc<Listed>>,
    /// Folders that plugins or programs may write, with who may.
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
        Self {
            written: by_plugins.chain(by_programs).collect(),
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
        for place in [path, resolved] {
            if let Some((who, _)) = self.written.iter().find(|(_, reach)| within(place, reach)) {
                return refuse(&format!(
                    "lies in a folder that can be written under the policy: see `{who}`"
                ));
            }
        }
        let Ok(meta) = std::fs::metadata(resolved) else { return Err(Unfit::Absent) };
        if !meta.is_file() {
            return refuse("is not a file");
        }
        let mode = meta.permissions().mode();
        if mode & 0o111 == 0 {
            return refuse("is not executable");
        }
        if mode & 0o002 != 0 {
            return refuse("can be written by every user of the system");
        }
        let owner = meta.uid();
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return refuse("belongs neither to root nor to the user of this host");
        }
        Ok(now)
    }
}

/// Whether a file lies in a folder, by the folder's name or by what the name leads to.
fn within(file: &Path, folder: &Reach) -> bool {
    folder.allows(file) || std::fs::canonicalize(folder.folder()).is_ok_and(|folder| file.starts_with(folder))
}
