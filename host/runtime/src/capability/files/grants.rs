//! Which folders a tool may reach, as handles opened at load.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt};
use toolbay_core::name::{PluginId, ToolName};
use toolbay_core::policy::{FsKey, Grants, Policy};
use toolbay_core::reach::{self, Reach};

use super::operations::Operation;
use super::reads::{ReadLog, Reader};
use crate::bindings::host::files::FileError;

/// What an operation does to the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    const fn key(self) -> FsKey {
        match self {
            Self::Read => FsKey::Read,
            Self::Write => FsKey::Write,
        }
    }
}

/// One opened folder. Writers below it take turns, so that the stale-write check and the replacement are one step.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    pub(crate) dir: Dir,
    pub(crate) writing: Mutex<()>,
}

/// The folders that a host has opened: each once, however many tools were granted it.
#[derive(Debug, Default)]
pub(crate) struct Folders(Mutex<HashMap<PathBuf, Arc<Root>>>);

impl Folders {
    fn open(&self, reach: &Reach, workspace: &Path) -> std::io::Result<Arc<Root>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A folder of the workspace is found from the workspace, so that no link in it leads out: what is in the
        // workspace others may have written.
        let dir = match reach.path().strip_prefix(workspace) {
            Ok(inside) if !inside.as_os_str().is_empty() => {
                Dir::open_ambient_dir(workspace, ambient_authority())?.open_dir(inside)?
            }
            _ => Dir::open_ambient_dir(reach.path(), ambient_authority())?,
        };
        // The same folder keeps its handle and its turns of writers; one that was made anew gets others.
        if let Some(root) = open.get(reach.path()) {
            let (old, new) = (root.dir.dir_metadata()?, dir.dir_metadata()?);
            if (old.dev(), old.ino()) == (new.dev(), new.ino()) {
                return Ok(Arc::clone(root));
            }
        }
        let root = Arc::new(Root { path: reach.path().to_path_buf(), dir, writing: Mutex::new(()) });
        open.insert(reach.path().to_path_buf(), Arc::clone(&root));
        Ok(root)
    }
}

/// What one tool was granted.
#[derive(Debug, Clone)]
pub(crate) struct FileGrants {
    policy: Arc<Policy>,
    tool: ToolName,
    read: Arc<[Arc<Root>]>,
    write: Arc<[Arc<Root>]>,
    reader: Reader,
}

impl FileGrants {
    /// Opens what was granted. A folder that can not be opened is left out and told to `problem`.
    pub(crate) fn open(
        grants: &Grants,
        policy: &Arc<Policy>,
        tool: &ToolName,
        folders: &Folders,
        mut problem: impl FnMut(String),
    ) -> Option<Self> {
        let mut open = |reaches: &[Reach]| -> Arc<[Arc<Root>]> {
            let mut roots = Vec::new();
            for reach in reaches {
                match folders.open(reach, policy.workspace()) {
                    Ok(root) => roots.push(root),
                    Err(error) => problem(format!("granted folder `{}`: {error}", reach.path().display())),
                }
            }
            roots.into()
        };
        let (read, write) = (open(&grants.fs_read), open(&grants.fs_write));
        if read.is_empty() && write.is_empty() {
            return None;
        }
        Some(Self { policy: Arc::clone(policy), tool: tool.clone(), read, write, reader: Reader::default() })
    }

    /// The same grants on behalf of a session, whose reads the stale-write guard remembers.
    pub(crate) fn for_session(&self, log: &Arc<ReadLog>, session: Option<&str>) -> Self {
        Self { reader: Reader::of(log, session), ..self.clone() }
    }

    pub(crate) fn workspace(&self) -> &Path {
        self.policy.workspace()
    }

    /// The folders with what may be done below each, for plain WASI files: a folder that may be read, and written
    /// if a write grant covers it; and each narrower folder inside one that may also be written.
    pub(crate) fn preopens(&self) -> impl Iterator<Item = (&Arc<Root>, Access)> {
        let covered = |path: &Path, by: &[Arc<Root>]| by.iter().any(|root| path.starts_with(&root.path));
        let readable = self.read.iter().map(move |root| {
            (root, if covered(&root.path, &self.write) { Access::Write } else { Access::Read })
        });
        let inner = self.write.iter().filter(move |root| {
            covered(&root.path, &self.read) && !self.read.iter().any(|read| read.path == root.path)
        });
        readable.chain(inner.map(|root| (root, Access::Write)))
    }

    /// Where a guest sees a folder: inside the workspace relative to it, elsewhere at its own path.
    pub(crate) fn guest_path(&self, root: &Root) -> String {
        match root.path.strip_prefix(self.workspace()) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
            Ok(rest) => rest.display().to_string(),
            Err(_) => root.path.display().to_string(),
        }
    }

    /// Finds the granted folder above a path, or says which policy line would open it.
    pub(super) fn resolve(
        &self,
        plugin: &PluginId,
        path: &str,
        access: Access,
    ) -> Result<Operation, FileError> {
        let shown = reach::shown(path);
        if path.is_empty() || path.contains('\0') {
            return Err(FileError::Other(format!("`{shown}` is not a path")));
        }
        let Some(full) = reach::normalise(&self.workspace().join(path)) else {
            return Err(FileError::Denied(format!("`{shown}` leads above the root")));
        };
        let roots = match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        };
        // The deepest folder that covers the path: its handle is the narrowest.
        let root = roots
            .iter()
            .filter(|root| full.starts_with(&root.path))
            .max_by_key(|root| root.path.as_os_str().len());
        let Some(root) = root else {
            let folder = full.parent().unwrap_or(&full);
            let what = match access {
                Access::Read => "read",
                Access::Write => "write",
            };
            let lines = self.policy.fs_lines(plugin, &self.tool, access.key(), folder).replace('\n', " ");
            return Err(FileError::Denied(format!(
                "`{shown}` is outside of what this tool may {what}; to allow it, write in the policy: {lines}"
            )));
        };
        Ok(Operation::new(Arc::clone(root), full, shown, self.reader.clone()))
    }
}
