//! The path grants of a tool, each with the folder handle that was opened at load.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use toolbay_policy::capability::path_rule::{self, PathRule};
use toolbay_policy::capability::protected_paths::{ProtectedPaths, Protection};
use toolbay_policy::capability::secret::SecretSource;
use toolbay_policy::hint::Hint;
use toolbay_policy::limits::CallLimits;
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::rule::GrantRule;
use toolbay_policy::{GrantKey, Grants, Policy};

use super::beneath::{Beneath, PathResolution};
use super::locks::FileLocksByDevice;
use super::opened_folder::OpenedFolder;
use super::operations::FileOperation;
use super::protected::SharedProtectedPaths;
use super::quota::FileUsage;
use super::reads::{ReadLog, ReadTracker};
use crate::bindings::host::files::FileError;

/// Maximum length of a guest's path, in bytes: `PATH_MAX` of Linux.
const MAX_PATH: usize = 4096;

/// The access of a file operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

impl FileAccess {
    /// The key of the policy that grants it.
    #[must_use]
    pub const fn key(self) -> GrantKey {
        match self {
            Self::Read => GrantKey::FsRead,
            Self::Write => GrantKey::FsWrite,
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The part of a path's tree that must be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathScope {
    /// The path itself.
    Path,
    /// The path or a path below it, which suffices to examine and list a folder.
    Below,
}

/// The folders that a host has opened, and the protected paths. A folder is opened once, however many tools were
/// granted it.
#[derive(Debug, Default)]
pub struct FolderHandles {
    by_path: Mutex<HashMap<PathBuf, Arc<OpenedFolder>>>,
    locks: Arc<FileLocksByDevice>,
    protected: SharedProtectedPaths,
    resolution: PathResolution,
}

impl FolderHandles {
    /// No folder is open yet. These paths are protected.
    #[must_use]
    pub fn new(protected: ProtectedPaths) -> Self {
        Self { protected: SharedProtectedPaths::new(protected), ..Self::default() }
    }

    /// The same, with paths resolved in this way.
    #[must_use]
    pub fn with_resolution(self, resolution: PathResolution) -> Self {
        Self { resolution, ..self }
    }

    /// Handles for the check of another policy, with these protected paths and the files of its secrets.
    pub fn for_check(protected: &SharedProtectedPaths, policy: &Policy) -> Self {
        let folders = Self::new(protected.read().clone());
        folders.protect_secret_files(policy);
        folders
    }

    /// Why a run would not open the folder of a rule. A folder that does not exist is no refusal.
    pub fn refusal(&self, rule: &PathRule, access: FileAccess, workspace: &Path) -> Option<String> {
        let root = match self.open_rule(rule, access, workspace) {
            Ok(root) => root,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => {
                return Some(format!("the granted folder `{}`: {error}", shown_path(rule.folder())));
            }
        };
        let refused = self.exclude_protected(rule, &root, access).err()?;
        Some(refused.hint.map_or(refused.text, |hint| hint.to_string()))
    }

    /// The protected paths, including those added later.
    pub fn protected(&self) -> SharedProtectedPaths {
        self.protected.clone()
    }

    /// Protects a path from all later grants.
    pub fn protect(&self, path: &Path, from: Protection) {
        self.protected.protect(path, from);
    }

    /// Closes the folders that no plugin uses.
    pub fn release_unused(&self) {
        let mut open = self.by_path.lock();
        open.retain(|_, root| Arc::strong_count(root) > 1);
    }

    /// Protects the files that hold a policy's secrets: a reader would get the value, and a writer could choose the
    /// credential that is sent.
    pub fn protect_secret_files(&self, policy: &Policy) {
        for (_, secret) in policy.secrets() {
            if let SecretSource::File(path) = &secret.from {
                self.protect(path, Protection::ReadAndWrite);
            }
        }
    }

    /// Opens the folder of a rule; for a file, or a path that a write grant can create, its parent folder. Only the
    /// rule itself is granted, so a new file can be granted by its own name.
    fn open_rule(
        &self,
        rule: &PathRule,
        access: FileAccess,
        workspace: &Path,
    ) -> std::io::Result<Arc<OpenedFolder>> {
        use std::io::ErrorKind;
        match self.open_folder(rule.folder(), workspace) {
            Err(error)
                if error.kind() == ErrorKind::NotADirectory
                    || (error.kind() == ErrorKind::NotFound && access == FileAccess::Write) =>
            {
                let parent = rule.folder().parent();
                let opened = parent.and_then(|parent| self.open_folder(parent, workspace).ok());
                opened.ok_or(error)
            }
            done => done,
        }
    }

    fn open_folder(&self, folder: &Path, workspace: &Path) -> std::io::Result<Arc<OpenedFolder>> {
        let mut open = self.by_path.lock();
        // A folder in the workspace is opened from the workspace without following links: others may have written the
        // workspace, and a link could lead out of it, or to a path that the same list excludes.
        let dir = match folder.strip_prefix(workspace) {
            Ok(inside) if !inside.as_os_str().is_empty() => {
                let workspace = Dir::open_ambient_dir(workspace, ambient_authority())?;
                let below = Beneath::new(workspace.as_fd(), self.resolution);
                let opened = below.open(inside, OFlags::RDONLY | OFlags::DIRECTORY);
                let opened = opened.map_err(|error| match error {
                    Errno::LOOP => std::io::Error::other(
                        "is a symbolic link or lies behind one: grant the target of the link",
                    ),
                    error => error.into(),
                });
                Dir::from_std_file(opened?.into())
            }
            _ => Dir::open_ambient_dir(folder, ambient_authority())?,
        };
        // The same folder keeps its handle; a recreated one gets a new handle.
        if let Some(root) = open.get(folder) {
            let (old, new) = (root.dir.dir_metadata()?, dir.dir_metadata()?);
            if (old.dev(), old.ino()) == (new.dev(), new.ino()) {
                return Ok(Arc::clone(root));
            }
        }
        let (locks, protected) = (Arc::clone(&self.locks), self.protected.clone());
        let root = Arc::new(OpenedFolder::new(folder, (dir, self.resolution), locks, protected)?);
        open.insert(folder.to_path_buf(), Arc::clone(&root));
        Ok(root)
    }

    /// Excludes the protected paths from a rule; refuses a rule that lies in one.
    fn exclude_protected(
        &self,
        rule: &PathRule,
        root: &OpenedFolder,
        access: FileAccess,
    ) -> Result<PathRule, PolicyRefusal> {
        let writing = access == FileAccess::Write;
        let mut other_names = self.protected.other_names(&root.real, writing);
        let protected = self.protected.read();
        let inside = rule.folder().strip_prefix(&root.path).unwrap_or(Path::new(""));
        let behind = root.real.join(inside);
        // A part of a protected folder that the operator allowed.
        if protected.is_exempt(&behind) {
            other_names.retain(|name| !behind.starts_with(name));
        }
        let refused = |protected: &Path| {
            let folder = shown_path(rule.folder());
            let (key, protected) = (access.key().name(), shown_path(protected));
            let hint = format!(
                "`{key}` grants `{folder}`, which lies in the protected path `{protected}`; only \
                 `--allow-protected-path {folder}` on the command line allows it"
            );
            PolicyRefusal::new("a granted folder is a protected path of the host", hint)
        };
        if let Some(path) = protected
            .protected_ancestor(rule.folder(), writing)
            .or_else(|| protected.protected_ancestor(&behind, writing))
        {
            return Err(refused(path));
        }
        let mut cut = rule.clone();
        for path in protected.protected_below(&root.path, writing) {
            cut = cut.without_path(path).ok_or_else(|| refused(path))?;
        }
        if let Some(path) = other_names.iter().find(|name| behind.starts_with(name)) {
            return Err(refused(path));
        }
        let below = protected.protected_below(&root.real, writing);
        for path in below.chain(other_names.iter().map(PathBuf::as_path)) {
            let named = root.path.join(path.strip_prefix(&root.real).unwrap_or(path));
            cut = cut.without_path(&named).ok_or_else(|| refused(path))?;
        }
        Ok(cut)
    }
}

fn shown_path(path: &Path) -> String {
    path_rule::printable_path(&path.to_string_lossy())
}

/// One path rule of a tool with the folder it lies in.
#[derive(Debug)]
pub(super) struct PathGrant {
    /// The rule as the policy grants it.
    rule: PathRule,
    /// The rule without the protected paths.
    effective_rule: PathRule,
    pub(super) root: Arc<OpenedFolder>,
    /// Whether its folder did not exist at load, so that the parent was opened.
    folder_missing: bool,
}

impl PathGrant {
    fn covers(&self, path: &Path, scope: PathScope) -> bool {
        self.effective_rule.allows(path)
            || (scope == PathScope::Below && self.effective_rule.allows_at_or_below(path))
    }

    /// Whether the grant is a whole folder, as plain WASI files scope.
    fn is_whole_folder(&self) -> bool {
        self.effective_rule.is_whole() && self.effective_rule.folder() == self.root.path
    }
}

/// The path grants of one tool.
#[derive(Debug)]
pub(super) struct PathGrants {
    policy: Arc<Policy>,
    plugin: PluginId,
    read: Vec<PathGrant>,
    write: Vec<PathGrant>,
    /// Grants whose folder could not be opened.
    unopened: Vec<(FileAccess, PathRule)>,
}

/// The error of a path that no grant covers.
#[derive(Debug)]
pub(crate) enum ResolveError {
    /// The path is invalid; the error for the guest.
    Invalid(FileError),
    /// The path is refused for a specific reason.
    Refused(PolicyRefusal),
    /// A line of the policy excludes the path: the text, and that line.
    Excluded(String, String),
    /// No grant covers the path: the text, and the absolute path.
    NotGranted(String, PathBuf),
}

impl PathGrants {
    fn for_access(&self, access: FileAccess) -> &[PathGrant] {
        match access {
            FileAccess::Read => &self.read,
            FileAccess::Write => &self.write,
        }
    }

    /// Whether a path with resolved links is granted.
    pub(super) fn cover(&self, path: &Path, access: FileAccess, scope: PathScope) -> bool {
        self.for_access(access).iter().any(|grant| grant.covers(path, scope))
    }

    /// Whether a path with resolved links is granted and not excluded in another case.
    pub(super) fn cover_in_any_case(&self, path: &Path, access: FileAccess, scope: PathScope) -> bool {
        let mut path_grants = self.for_access(access).iter();
        path_grants.any(|grant| grant.covers(path, scope) && !grant.effective_rule.excludes_in_any_case(path))
    }

    /// The error for a path that is not granted.
    fn refusal(&self, path: PathBuf, shown: &str, access: FileAccess) -> ResolveError {
        let (path_grants, workspace) = (self.for_access(access), self.policy.workspace());
        let named = path_grants.iter().find_map(|grant| grant.rule.excluded_by(&path, workspace));
        if let Some(line) = named {
            let text = format!("`{shown}` is excluded by the policy");
            return ResolveError::Excluded(text, line);
        }
        if path_grants.iter().any(|grant| grant.effective_rule.excluded_by(&path, workspace).is_some()) {
            return ResolveError::Refused(protected_refusal(shown, &path));
        }
        if let Some((_, rule)) = self.unopened.iter().find(|(of, rule)| *of == access && rule.allows(&path)) {
            return ResolveError::Refused(missing_folder_refusal(shown, rule.folder(), access));
        }
        let text = format!("`{shown}` is outside of what this tool may {}", access.verb());
        ResolveError::NotGranted(text, path)
    }
}

/// The refusal of a protected path.
pub(super) fn protected_refusal(shown: &str, path: &Path) -> PolicyRefusal {
    PolicyRefusal::new(format!("`{shown}` is a protected path of the host"), protected_hint(path))
}

/// What would allow a protected path.
pub(super) fn protected_hint(path: &Path) -> Hint {
    let path = shown_path(path);
    format!("The policy cannot allow it; only `--allow-protected-path {path}` on the command line can.")
        .into()
}

/// The refusal of a path in a granted folder that does not exist.
pub(super) fn missing_folder_refusal(shown: &str, folder: &Path, access: FileAccess) -> PolicyRefusal {
    let text = format!("`{shown}`: the granted folder does not exist");
    PolicyRefusal::new(text, missing_folder_hint(folder, access))
}

/// What would allow a path in a granted folder that does not exist.
pub(super) fn missing_folder_hint(folder: &Path, access: FileAccess) -> Hint {
    let (folder, key) = (shown_path(folder), access.key().name());
    format!("Create the folder `{folder}`: `{key}` grants it, and it does not exist.").into()
}

/// The path grants of one tool on behalf of one call.
#[derive(Debug, Clone)]
pub struct FileGrants {
    path_grants: Arc<PathGrants>,
    read_tracker: ReadTracker,
    /// What the call has used.
    pub(crate) usage: Arc<FileUsage>,
}

impl FileGrants {
    /// Opens the granted folders. Reports a folder that cannot be opened to `problem` and leaves it out.
    ///
    /// # Errors
    /// When a grant covers a protected path.
    pub fn open(
        grants: &Grants,
        policy: &Arc<Policy>,
        plugin: &PluginId,
        folders: &FolderHandles,
        mut problem: impl FnMut(String),
    ) -> Result<Option<Self>, PolicyRefusal> {
        let mut unopened = Vec::new();
        let mut open = |rules: &[PathRule], access: FileAccess| -> Result<Vec<PathGrant>, PolicyRefusal> {
            let mut path_grants = Vec::new();
            for granted in rules {
                match folders.open_rule(granted, access, policy.workspace()) {
                    Ok(root) => {
                        let rule = folders.exclude_protected(granted, &root, access)?;
                        let missing = root.path != rule.folder() && !root.contains(rule.folder());
                        if missing {
                            let folder = granted.folder().display();
                            problem(format!("granted folder `{folder}`: it does not exist"));
                        }
                        path_grants.push(PathGrant {
                            rule: granted.clone(),
                            effective_rule: rule,
                            root,
                            folder_missing: missing,
                        });
                    }
                    Err(error) => {
                        problem(format!("granted folder `{}`: {error}", granted.folder().display()));
                        unopened.push((access, granted.clone()));
                    }
                }
            }
            Ok(path_grants)
        };
        let (read, write) =
            (open(&grants.fs_read, FileAccess::Read)?, open(&grants.fs_write, FileAccess::Write)?);
        if read.is_empty() && write.is_empty() {
            return Ok(None);
        }
        let path_grants =
            PathGrants { policy: Arc::clone(policy), plugin: plugin.clone(), read, write, unopened };
        Ok(Some(Self {
            path_grants: Arc::new(path_grants),
            read_tracker: ReadTracker::new(&Arc::default(), None),
            usage: Arc::new(FileUsage::new(plugin, &Arc::default())),
        }))
    }

    /// The grants of a tool whose caller does not see what it reads.
    pub fn with_internal_reads(self, internal_reads: bool) -> Self {
        Self { read_tracker: self.read_tracker.with_internal_reads(internal_reads), ..self }
    }

    /// The same grants for one call, with its limits and its session, for the stale-write guard.
    pub fn for_call(&self, log: &Arc<ReadLog>, session: Option<&str>, limits: &Arc<CallLimits>) -> Self {
        Self {
            path_grants: Arc::clone(&self.path_grants),
            read_tracker: ReadTracker::new(log, session)
                .with_internal_reads(self.read_tracker.internal_reads),
            usage: Arc::new(FileUsage::new(&self.path_grants.plugin, limits)),
        }
    }

    /// The cost of comparing a path with the grants, in pattern parts.
    pub(super) fn comparison_cost(&self, access: FileAccess) -> usize {
        self.path_grants.for_access(access).iter().map(|grant| grant.effective_rule.weight()).sum()
    }

    /// Who resolves the paths.
    pub(super) fn resolution(&self) -> PathResolution {
        let (read, write) = (&self.path_grants.read, &self.path_grants.write);
        read.iter().chain(write).next().map_or_else(PathResolution::default, |grant| grant.root.resolution)
    }

    /// The workspace of the policy.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        self.path_grants.policy.workspace()
    }

    /// The whole folders with their access, for plain WASI files: each readable folder, writable if a write grant
    /// covers it by name and with links resolved, and each writable folder inside one of them. Grants with patterns
    /// or exclusions are left out, because WASI can only preopen whole folders.
    pub(crate) fn preopens(&self) -> impl Iterator<Item = (&OpenedFolder, FileAccess)> {
        fn whole(path_grants: &[PathGrant]) -> impl Iterator<Item = &OpenedFolder> {
            path_grants.iter().filter(|grant| grant.is_whole_folder()).map(|grant| &*grant.root)
        }
        let (read, write) = (&self.path_grants.read, &self.path_grants.write);
        let covered = |root: &OpenedFolder, by| whole(by).any(|other| root.is_inside(other));
        let readable = whole(read)
            .map(move |root| (root, if covered(root, write) { FileAccess::Write } else { FileAccess::Read }));
        let inner = whole(write)
            .filter(move |root| covered(root, read) && !whole(read).any(|known| known.path == root.path));
        readable.chain(inner.map(|root| (root, FileAccess::Write)))
    }

    /// Describes the grants that are not preopened.
    pub fn not_preopened(&self) -> Option<String> {
        let workspace = self.path_grants.policy.workspace();
        let all = [(FileAccess::Read, &self.path_grants.read), (FileAccess::Write, &self.path_grants.write)];
        let lines: Vec<String> = all
            .iter()
            .flat_map(|(access, path_grants)| path_grants.iter().map(move |grant| (access, grant)))
            .filter(|(_, grant)| !grant.is_whole_folder())
            .map(|(access, grant)| format!("`{}` of `{}`", access.key().name(), grant.rule.show(workspace)))
            .collect();
        (!lines.is_empty()).then(|| {
            format!(
                "{} can be used only through the interface `files`: plain WASI files support only whole folders, \
                 without patterns, exclusions and protected paths",
                lines.join(", ")
            )
        })
    }

    /// The whole folders with this access, for programs in the kernel's sandbox, which supports neither patterns nor
    /// exclusions.
    pub(crate) fn whole_folders(&self, access: FileAccess) -> impl Iterator<Item = (&Path, &Dir)> {
        let whole = self.path_grants.for_access(access).iter().filter(|grant| grant.is_whole_folder());
        whole.map(|grant| (grant.root.path.as_path(), &grant.root.dir))
    }

    /// The guest's path of a folder: relative inside the workspace, absolute elsewhere.
    pub(crate) fn guest_path(&self, root: &OpenedFolder) -> String {
        match root.path.strip_prefix(self.path_grants.policy.workspace()) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
            Ok(rest) => rest.display().to_string(),
            Err(_) => root.path.display().to_string(),
        }
    }

    /// Resolves a path to the operation below its granted folder.
    pub(crate) fn resolve(
        &self,
        path: &str,
        access: FileAccess,
        scope: PathScope,
    ) -> Result<FileOperation, ResolveError> {
        let shown = || path_rule::printable_path(path);
        let full = full_path(path, self.path_grants.policy.workspace()).map_err(ResolveError::Invalid)?;
        // The deepest folder that covers the path has the narrowest handle.
        let path_grants =
            self.path_grants.for_access(access).iter().filter(|grant| grant.covers(&full, scope));
        let Some(grant) = path_grants.max_by_key(|grant| grant.root.path.as_os_str().len()) else {
            return Err(self.path_grants.refusal(full, &shown(), access));
        };
        Ok(FileOperation {
            missing_folder: grant.folder_missing.then(|| grant.rule.folder().to_path_buf()),
            root: Arc::clone(&grant.root),
            path_grants: Arc::clone(&self.path_grants),
            access,
            scope,
            expects_folder: path.ends_with('/') || path.ends_with("/."),
            relative: match full.strip_prefix(&grant.root.path) {
                Ok(rest) if !rest.as_os_str().is_empty() => rest.to_path_buf(),
                _ => PathBuf::from("."),
            },
            guest_path: path.to_owned(),
            read_tracker: self.read_tracker.clone(),
            usage: Arc::clone(&self.usage),
        })
    }
}

/// The absolute path of a guest's path.
pub(super) fn full_path(path: &str, workspace: &Path) -> Result<PathBuf, FileError> {
    let shown = || path_rule::printable_path(path);
    if path.is_empty() || path.contains('\0') {
        return Err(FileError::Other(format!("`{}` is not a path", shown())));
    }
    if path.len() > MAX_PATH {
        return Err(FileError::Other(format!("`{}` has more than {MAX_PATH} bytes", shown())));
    }
    path_rule::normalize(&workspace.join(path))
        .ok_or_else(|| FileError::Denied(format!("`{}` leads above the root", shown())))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[path = "grants_tests.rs"]
mod tests;
