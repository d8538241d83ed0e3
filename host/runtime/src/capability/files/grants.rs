//! Which parts of the file system a tool may reach, each with the handle that was opened at load.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use toolbay_policy::capability::floor::{Floor, Keep};
use toolbay_policy::capability::reach::{self, Reach};
use toolbay_policy::capability::secret::SecretSource;
use toolbay_policy::limits::Limits;
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::Refusal;
use toolbay_policy::rule::Rule;
use toolbay_policy::{Grants, Key, Policy};

use super::beneath;
use super::operations::Operation;
use super::quota::Meter;
use super::reads::{ReadLog, Reader};
use crate::engine::bindings::host::files::FileError;

/// Longest path of a guest, in bytes: what Linux takes.
const MAX_PATH: usize = 4096;

/// What an operation does to the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    pub(super) const fn key(self) -> Key {
        match self {
            Self::Read => Key::FsRead,
            Self::Write => Key::FsWrite,
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// How much of a path has to be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The path itself.
    Path,
    /// The path, or something below it: enough to look at a folder and to list it.
    Below,
}

/// One opened folder.
#[derive(Debug)]
pub(crate) struct Root {
    /// The folder as the policy names it.
    pub(crate) path: PathBuf,
    /// Where it is, behind all links.
    pub(super) real: PathBuf,
    pub(crate) dir: Dir,
    /// With which flags to read what is in memory, without waiting; `None`: that cannot be done here.
    pub(super) now: Option<ReadWriteFlags>,
    turns: Arc<AllTurns>,
}

impl Root {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Whether something is there under a name inside of it.
    pub(super) fn has(&self, path: &Path) -> bool {
        path.strip_prefix(&self.path).is_ok_and(|name| self.dir.symlink_metadata(name).is_ok())
    }

    /// Whether it is another folder or below it, by its name and where it really is: a handle leads behind links, which
    /// the other's name says nothing about.
    fn lies_in(&self, other: &Self) -> bool {
        self.path.starts_with(&other.path) && self.real.starts_with(&other.real)
    }

    /// Writers of one file take turns, whichever folders they reach it by: the stale-write check and the
    /// replacement are one step. These are the turns of the file system on which `folder` lies, and no lock is held while
    /// it is asked which one that is.
    pub(super) fn turns(&self, folder: BorrowedFd<'_>) -> rustix::io::Result<Arc<Turns>> {
        let device = rustix::fs::fstat(folder)?.st_dev;
        let mut all = self.turns.lock();
        Ok(Arc::clone(all.entry(device).or_default()))
    }
}

/// The turns of each file system, as many as are mounted: one that hangs stops no writer of another.
type AllTurns = Mutex<HashMap<rustix::fs::Dev, Arc<Turns>>>;

/// Locks for files, far fewer than files: two that share one wait for each other now and then.
#[derive(Debug, Default)]
pub(super) struct Turns {
    hash: RandomState,
    locks: [Mutex<()>; 32],
}

impl Turns {
    pub(super) fn of(&self, file: &Path) -> MutexGuard<'_, ()> {
        let (first, rest) = (&self.locks[0], &self.locks);
        let at = usize::try_from(self.hash.hash_one(file) % rest.len() as u64).unwrap_or(0);
        rest.get(at).unwrap_or(first).lock()
    }
}

/// The folders that a host has opened, each once, however many tools were granted it; and the places it opens for
/// nobody.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    open: Mutex<HashMap<PathBuf, Arc<Root>>>,
    turns: Arc<AllTurns>,
    floor: Kept,
}

/// What the host keeps from plugins, wherever it is asked about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept(Arc<RwLock<Floor>>);

impl Kept {
    fn read(&self) -> RwLockReadGuard<'_, Floor> {
        self.0.read()
    }

    /// The place that a folder or file is, lies in or holds, by its name or behind links. What is below and not there is
    /// only kept from writers, who could make it.
    pub(crate) fn touches(&self, path: &Path, writing: bool) -> Option<PathBuf> {
        let floor = self.read();
        let there = |place: &&Path| writing || place.symlink_metadata().is_ok();
        std::iter::once(path.to_path_buf()).chain(real(path)).find_map(|path| {
            let below = || floor.below(&path, writing).find(there).map(Path::to_path_buf);
            floor.over(&path, writing).map(Path::to_path_buf).or_else(below)
        })
    }
}

impl Folders {
    pub(crate) fn new(floor: Floor) -> Self {
        Self { floor: Kept(Arc::new(RwLock::new(floor.also(real)))), ..Self::default() }
    }

    /// What is kept from plugins, now and later.
    pub(crate) fn kept(&self) -> Kept {
        self.floor.clone()
    }

    /// Keeps a place from whoever is granted files from now on.
    pub(crate) fn keep(&self, place: &Path, from: Keep) {
        let mut floor = self.floor.0.write();
        for name in std::path::absolute(place).ok().into_iter().chain(real(place)) {
            floor.keep(name, from);
        }
    }

    /// Closes the folders that no plugin was granted any more.
    pub(crate) fn release_unused(&self) {
        let mut open = self.open.lock();
        open.retain(|_, root| Arc::strong_count(root) > 1);
    }

    /// Keeps the files that a policy's secrets come from: whoever reads one has the value in the clear, and whoever writes
    /// it chooses what is sent as a credential.
    pub(crate) fn keep_secrets(&self, policy: &Policy) {
        for (_, secret) in policy.secrets() {
            if let SecretSource::File(path) = &secret.from {
                self.keep(path, Keep::FromAll);
            }
        }
    }

    /// Opens the folder of a reach; where that is a file, or is to be written and not there yet, the folder it lies in.
    /// Only the reach itself is granted then, as before: a new file can be granted by its own name.
    fn open(&self, reach: &Reach, access: Access, workspace: &Path) -> std::io::Result<Arc<Root>> {
        use std::io::ErrorKind;
        match self.open_folder(reach.folder(), workspace) {
            Err(error)
                if error.kind() == ErrorKind::NotADirectory
                    || (error.kind() == ErrorKind::NotFound && access == Access::Write) =>
            {
                let parent = reach.folder().parent();
                let opened = parent.and_then(|parent| self.open_folder(parent, workspace).ok());
                opened.ok_or(error)
            }
            done => done,
        }
    }

    fn open_folder(&self, folder: &Path, workspace: &Path) -> std::io::Result<Arc<Root>> {
        let mut open = self.open.lock();
        // A folder of the workspace is found from the workspace, and by no link: what is in the workspace others may
        // have written, and a link could lead out of it, or to what the same list excludes under its own name.
        let dir = match folder.strip_prefix(workspace) {
            Ok(inside) if !inside.as_os_str().is_empty() => {
                let workspace = Dir::open_ambient_dir(workspace, ambient_authority())?;
                let opened = beneath::open(workspace.as_fd(), inside, OFlags::RDONLY | OFlags::DIRECTORY);
                let opened = opened.map_err(|error| match error {
                    Errno::LOOP => std::io::Error::other("is a link, or behind one: grant what it leads to"),
                    error => error.into(),
                });
                Dir::from_std_file(opened?.into())
            }
            _ => Dir::open_ambient_dir(folder, ambient_authority())?,
        };
        // The same folder keeps its handle; one that was made anew gets another.
        if let Some(root) = open.get(folder) {
            let (old, new) = (root.dir.dir_metadata()?, dir.dir_metadata()?);
            if (old.dev(), old.ino()) == (new.dev(), new.ino()) {
                return Ok(Arc::clone(root));
            }
        }
        let root = Arc::new(Root {
            path: folder.to_path_buf(),
            real: place_of(&dir, folder)?,
            now: how_to_read_now(&dir),
            dir,
            turns: Arc::clone(&self.turns),
        });
        open.insert(folder.to_path_buf(), Arc::clone(&root));
        Ok(root)
    }

    /// Cuts the floor out of what is reached; says why nothing is to be reached at all.
    fn cut(&self, reach: &Reach, root: &Root, access: Access) -> Result<Reach, Refusal> {
        let floor = self.floor.read();
        let writing = access == Access::Write;
        let inside = reach.folder().strip_prefix(&root.path).unwrap_or(Path::new(""));
        let behind = root.real.join(inside);
        let refused = |place: &Path| {
            let folder = text(reach.folder());
            let (key, place) = (access.key().name(), text(place));
            let hint = format!(
                "`{folder}` is granted by `{key}`, and lies in `{place}`, which the host keeps from plugins; only `--allow-protected-path {folder}` on the command line opens it"
            );
            Refusal::new("a folder that it was granted is one that the host keeps from plugins", hint)
        };
        if let Some(place) = floor.over(reach.folder(), writing).or_else(|| floor.over(&behind, writing)) {
            return Err(refused(place));
        }
        let mut cut = reach.clone();
        for place in floor.below(&root.path, writing) {
            cut = cut.excluding(place).ok_or_else(|| refused(place))?;
        }
        for place in floor.below(&root.real, writing) {
            let named = root.path.join(place.strip_prefix(&root.real).unwrap_or(place));
            cut = cut.excluding(&named).ok_or_else(|| refused(place))?;
        }
        Ok(cut)
    }
}

/// Where a path is, behind all links; what of it is not there yet, is where its names say.
fn real(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        let above = above.canonicalize().ok()?;
        Some(if rest.as_os_str().is_empty() { above } else { above.join(rest) })
    })
}

/// Where an opened folder is, behind all links.
fn place_of(dir: &Dir, folder: &Path) -> std::io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        use std::os::fd::AsRawFd;
        // The handle's own place, not the one that its name leads to by now.
        return std::fs::read_link(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()))
            .or_else(|_| folder.canonicalize());
    }
    folder.canonicalize()
}

/// Opening a file waits for nobody on these file systems, which a server or another process may hold up on others, and
/// they know how to read without waiting, or have everything in memory anyway.
fn how_to_read_now(dir: &Dir) -> Option<ReadWriteFlags> {
    #[cfg(target_os = "linux")]
    {
        // From `linux/magic.h`: ext2 to ext4, XFS, Btrfs, F2FS; then tmpfs.
        match rustix::fs::fstatfs(dir).ok()?.f_type {
            0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 => Some(ReadWriteFlags::NOWAIT),
            0x0102_1994 => Some(ReadWriteFlags::empty()),
            _ => None,
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = dir;
        None
    }
}

fn text(path: &Path) -> String {
    reach::shown(&path.to_string_lossy())
}

/// One reach of a tool with the folder it lies in.
#[derive(Debug)]
pub(super) struct Area {
    /// As the policy grants it.
    granted: Reach,
    /// Without what the host keeps.
    reach: Reach,
    pub(super) root: Arc<Root>,
    /// Its folder was not there when the plugin was loaded, and the one above it was opened.
    absent: bool,
}

impl Area {
    fn holds(&self, path: &Path, need: Need) -> bool {
        self.reach.allows(path) || (need == Need::Below && self.reach.enters(path))
    }

    /// Whether it is a whole folder, as plain WASI files need it.
    fn is_folder(&self) -> bool {
        self.reach.is_whole() && self.reach.folder() == self.root.path
    }
}

/// What one tool was granted.
#[derive(Debug)]
pub(super) struct Areas {
    policy: Arc<Policy>,
    plugin: PluginId,
    read: Vec<Area>,
    write: Vec<Area>,
    /// What was granted and could not be opened.
    lost: Vec<(Access, Reach)>,
}

/// Why a path leads to nothing that was granted.
#[derive(Debug)]
pub(crate) enum Unresolved {
    /// What the guest is answered.
    Answer(FileError),
    /// It is refused for a reason of its own.
    Refused(Refusal),
    /// No grant holds it: the text, and the path in full.
    Outside(String, PathBuf),
}

impl Areas {
    fn of(&self, access: Access) -> &[Area] {
        match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        }
    }

    fn weight(&self, access: Access) -> usize {
        self.of(access).iter().map(|area| area.reach.weight()).sum()
    }

    /// Whether a path, which is behind all links, is granted.
    pub(super) fn hold(&self, path: &Path, access: Access, need: Need) -> bool {
        self.of(access).iter().any(|area| area.holds(path, need))
    }

    /// Why a path is not granted.
    fn refusal(&self, path: PathBuf, shown: &str, access: Access) -> Unresolved {
        let (areas, workspace, key) = (self.of(access), self.policy.workspace(), access.key().name());
        let named = areas.iter().find_map(|area| area.granted.excluded_by(&path, workspace));
        if let Some(line) = named {
            let text = format!("`{shown}` is excluded by the policy");
            let hint = format!("`{}` in `{key}` of the policy excludes it.", reach::shown(&line));
            return Unresolved::Refused(Refusal::new(text, hint));
        }
        if areas.iter().any(|area| area.reach.excluded_by(&path, workspace).is_some()) {
            return Unresolved::Refused(kept(shown, &path));
        }
        if let Some((_, reach)) = self.lost.iter().find(|(of, reach)| *of == access && reach.allows(&path)) {
            return Unresolved::Refused(absent(shown, reach.folder(), access));
        }
        let text = format!("`{shown}` is outside of what this tool may {}", access.verb());
        Unresolved::Outside(text, path)
    }
}

/// The refusal of a path in a place that no policy opens.
pub(super) fn kept(shown: &str, place: &Path) -> Refusal {
    let hint = format!(
        "No line of the policy opens it; only `--allow-protected-path {}` on the command line does.",
        text(place)
    );
    Refusal::new(format!("`{shown}` is kept from plugins by the host"), hint)
}

/// The refusal of a path in a granted folder that is not there.
pub(super) fn absent(shown: &str, folder: &Path, access: Access) -> Refusal {
    let (folder, key) = (text(folder), access.key().name());
    let hint = format!("Create the folder `{folder}`: `{key}` grants it, and it does not exist.");
    Refusal::new(format!("`{shown}`: the folder that is granted there does not exist"), hint)
}

/// What one tool was granted, on behalf of one call.
#[derive(Debug, Clone)]
pub(crate) struct FileGrants {
    areas: Arc<Areas>,
    reader: Reader,
    pub(crate) meter: Arc<Meter>,
}

impl FileGrants {
    /// Opens what was granted. A folder that cannot be opened is left out and told to `problem`.
    ///
    /// # Errors
    /// When something was granted that the host keeps from plugins.
    pub(crate) fn open(
        grants: &Grants,
        policy: &Arc<Policy>,
        plugin: &PluginId,
        folders: &Folders,
        mut problem: impl FnMut(String),
    ) -> Result<Option<Self>, Refusal> {
        let mut lost = Vec::new();
        let mut open = |reaches: &[Reach], access: Access| -> Result<Vec<Area>, Refusal> {
            let mut areas = Vec::new();
            for granted in reaches {
                match folders.open(granted, access, policy.workspace()) {
                    Ok(root) => {
                        let reach = folders.cut(granted, &root, access)?;
                        let absent = root.path != reach.folder() && !root.has(reach.folder());
                        if absent {
                            let folder = granted.folder().display();
                            problem(format!("granted folder `{folder}`: it does not exist"));
                        }
                        areas.push(Area { granted: granted.clone(), reach, root, absent });
                    }
                    Err(error) => {
                        problem(format!("granted folder `{}`: {error}", granted.folder().display()));
                        lost.push((access, granted.clone()));
                    }
                }
            }
            Ok(areas)
        };
        let (read, write) = (open(&grants.fs_read, Access::Read)?, open(&grants.fs_write, Access::Write)?);
        if read.is_empty() && write.is_empty() {
            return Ok(None);
        }
        let areas = Areas { policy: Arc::clone(policy), plugin: plugin.clone(), read, write, lost };
        Ok(Some(Self {
            areas: Arc::new(areas),
            reader: Reader::new(&Arc::default(), None),
            meter: Arc::new(Meter::new(plugin, &Arc::default())),
        }))
    }

    /// The same grants on behalf of one call, with its session, whose reads the stale-write guard remembers, and its
    /// limits.
    pub(crate) fn for_call(&self, log: &Arc<ReadLog>, session: Option<&str>, limits: &Arc<Limits>) -> Self {
        Self {
            areas: Arc::clone(&self.areas),
            reader: Reader::new(log, session),
            meter: Arc::new(Meter::new(&self.areas.plugin, limits)),
        }
    }

    /// How much there is to compare a path with.
    pub(super) fn weight(&self, access: Access) -> usize {
        self.areas.weight(access)
    }

    pub(crate) fn workspace(&self) -> &Path {
        self.areas.policy.workspace()
    }

    /// The whole folders with what may be done below each, for plain WASI files: a folder that may be read, and
    /// written if a write grant covers it by its name and behind all links; and each narrower folder inside one that may also be written. What is
    /// granted by patterns or with exclusions is not among them: there, only whole folders can be granted.
    pub(crate) fn preopens(&self) -> impl Iterator<Item = (&Root, Access)> {
        fn whole(areas: &[Area]) -> impl Iterator<Item = &Root> {
            areas.iter().filter(|area| area.is_folder()).map(|area| &*area.root)
        }
        let (read, write) = (&self.areas.read, &self.areas.write);
        let covered = |root: &Root, by| whole(by).any(|other| root.lies_in(other));
        let readable = whole(read)
            .map(move |root| (root, if covered(root, write) { Access::Write } else { Access::Read }));
        let inner = whole(write)
            .filter(move |root| covered(root, read) && !whole(read).any(|known| known.path == root.path));
        readable.chain(inner.map(|root| (root, Access::Write)))
    }

    /// Tells what is granted and cannot be had as plain WASI files.
    pub(crate) fn without_preopen(&self) -> Option<String> {
        let workspace = self.areas.policy.workspace();
        let all = [(Access::Read, &self.areas.read), (Access::Write, &self.areas.write)];
        let lines: Vec<String> = all
            .iter()
            .flat_map(|(access, areas)| areas.iter().map(move |area| (access, area)))
            .filter(|(_, area)| !area.is_folder())
            .map(|(access, area)| format!("`{}` of `{}`", access.key().name(), area.granted.show(workspace)))
            .collect();
        (!lines.is_empty()).then(|| {
            format!(
                "{} can be had through the interface `files` only: plain WASI files know whole folders, without patterns, exclusions and what the host keeps",
                lines.join(", ")
            )
        })
    }

    /// The folders that were opened for one kind of access, for what is confined by the kernel: programs. Whole ones
    /// only, since the kernel knows neither patterns nor exclusions.
    pub(crate) fn opened(&self, access: Access) -> impl Iterator<Item = (&Path, &Dir)> {
        let whole = self.areas.of(access).iter().filter(|area| area.is_folder());
        whole.map(|area| (area.root.path.as_path(), &area.root.dir))
    }

    /// Where a guest sees a folder: inside the workspace relative to it, elsewhere at its own path.
    pub(crate) fn guest_path(&self, root: &Root) -> String {
        match root.path.strip_prefix(self.areas.policy.workspace()) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
            Ok(rest) => rest.display().to_string(),
            Err(_) => root.path.display().to_string(),
        }
    }

    /// Finds the granted folder above a path.
    pub(super) fn resolve(&self, path: &str, access: Access, need: Need) -> Result<Operation, Unresolved> {
        let shown = || reach::shown(path);
        let full = full_path(path, self.areas.policy.workspace()).map_err(Unresolved::Answer)?;
        // The deepest folder that covers the path: its handle is the narrowest.
        let areas = self.areas.of(access).iter().filter(|area| area.holds(&full, need));
        let Some(area) = areas.max_by_key(|area| area.root.path.as_os_str().len()) else {
            return Err(self.areas.refusal(full, &shown(), access));
        };
        Ok(Operation {
            absent: area.absent.then(|| area.granted.folder().to_path_buf()),
            root: Arc::clone(&area.root),
            areas: Arc::clone(&self.areas),
            access,
            need,
            folder: path.ends_with('/') || path.ends_with("/."),
            relative: match full.strip_prefix(&area.root.path) {
                Ok(rest) if !rest.as_os_str().is_empty() => rest.to_path_buf(),
                _ => PathBuf::from("."),
            },
            written: path.to_owned(),
            reader: self.reader.clone(),
            meter: Arc::clone(&self.meter),
        })
    }
}

/// The absolute path that a guest means.
pub(super) fn full_path(path: &str, workspace: &Path) -> Result<PathBuf, FileError> {
    let shown = || reach::shown(path);
    if path.is_empty() || path.contains('\0') {
        return Err(FileError::Other(format!("`{}` is not a path", shown())));
    }
    if path.len() > MAX_PATH {
        return Err(FileError::Other(format!("`{}` has more than {MAX_PATH} bytes", shown())));
    }
    reach::normalise(&workspace.join(path))
        .ok_or_else(|| FileError::Denied(format!("`{}` leads above the root", shown())))
}
