//! Opens paths below a folder's handle without following a link unchecked.
//!
//! A path is opened as written, and the open fails when a component is a link. Only then does [`Beneath::resolve`] read
//! the links, as text. The caller checks the resulting path and opens it in the same way. The opened path is therefore
//! always a checked one, even when another process swaps folders for links.
//!
//! | | [`PathResolution::Kernel`] | [`PathResolution::Portable`] |
//! |---|---|---|
//! | a path without links | `openat2` with `RESOLVE_NO_SYMLINKS` | `O_NOFOLLOW` for each component |
//! | a folder on the way | needs permission to enter it | needs permission to list it, too |
//! | the type of a path | of a handle without access (`O_PATH`) | by its name in its folder: a FIFO or device is never opened |
//! | a path over a mount | compared with the protected paths | every path is compared with them |
//! | a name that a file system finds in another spelling | is opened | is refused ([`is_listed`]) |

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::system;

/// Maximum number of links in one path, as in Linux.
const MAX_LINKS: usize = 40;
/// How the portable resolution opens a folder. The last two matter if it is none.
const FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// Readings of a folder that changes meanwhile.
const MAX_READINGS: usize = 8;

/// Who resolves the paths below a folder. Only the program that embeds the host chooses: no policy, guest or environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PathResolution {
    /// The kernel where it can, otherwise this process.
    #[default]
    Kernel,
    /// This process, with what every Unix has. Tests on Linux use it to check what macOS does.
    Portable,
}

impl PathResolution {
    /// What this system has: the chosen one, or the portable one where the kernel resolves nothing.
    #[must_use]
    pub const fn available(self) -> Self {
        if cfg!(target_os = "linux") { self } else { Self::Portable }
    }
}

/// The target of a path after its links are followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkTarget {
    /// A path below the folder, which need not exist, and whether a link was followed.
    Inside(PathBuf, bool),
    /// A path outside the folder.
    Outside,
}

/// A folder by its handle, and who resolves the paths below it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beneath<'a> {
    root: BorrowedFd<'a>,
    resolution: PathResolution,
}

impl<'a> Beneath<'a> {
    pub(crate) fn new(root: BorrowedFd<'a>, resolution: PathResolution) -> Self {
        Self { root, resolution: resolution.available() }
    }

    /// What the kernel answers; `None` if this process has to resolve the path.
    fn ask_kernel<T>(&self, ask: impl FnOnce() -> Option<T>) -> Option<T> {
        match self.resolution {
            PathResolution::Kernel => ask(),
            PathResolution::Portable => None,
        }
    }

    /// How a parent folder is opened.
    pub(super) fn parent_flags(&self) -> OFlags {
        self.ask_kernel(|| Some(system::PARENT_FLAGS)).unwrap_or(FOLDER_FLAGS)
    }

    /// Opens a path; `ELOOP` when a component is a link.
    pub(super) fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.ask_kernel(|| system::open(self.root, path, flags))
            .unwrap_or_else(|| open_by_component(self.root, path, flags, Mode::empty()))
    }

    /// [`Self::open`] for a path that crosses no mount: `EXDEV` if it does, or if that cannot be found out.
    pub(super) fn open_on_mount(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.ask_kernel(|| Some(system::open_on_mount(self.root, path, flags))).unwrap_or(Err(Errno::XDEV))
    }

    /// Opens a regular file only if that needs no link, no disk access and no other file system.
    pub(super) fn open_cached(&self, path: &Path, is_wanted: impl Fn(&Stat) -> bool) -> Option<OwnedFd> {
        self.ask_kernel(|| system::open_cached(self.root, path, is_wanted))
    }

    /// Opens a path and follows its links, which must not lead out (`EXDEV`). A final link is followed if `follow` is
    /// set. For plain WASI files, where whole folders are granted.
    pub(crate) fn open_inside(&self, path: &Path, flags: OFlags, follow: bool) -> Result<OwnedFd, Errno> {
        let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
        let opened = self.ask_kernel(|| system::open_inside(self.root, path, flags, mode));
        opened.unwrap_or_else(|| {
            let flags = if ends_as_folder(path) { flags | OFlags::DIRECTORY } else { flags };
            self.open_no_kernel_file(&self.resolve_inside(path, follow)?, flags, mode)
        })
    }

    /// Opens a path without links; `EXDEV` if it is a file of the kernel, which is not opened where the system has handles
    /// without access.
    fn open_no_kernel_file(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let must_be_plain =
            |file: BorrowedFd<'_>| if system::is_kernel_file(file) { Err(Errno::XDEV) } else { Ok(()) };
        let parent;
        let (folder, name) = if path == Path::new(".") {
            (self.root, path.as_os_str())
        } else {
            let (opened, name) = self.open_parent(path)?;
            parent = opened;
            (parent.as_fd(), name)
        };
        // A new file, too, would belong to the kernel.
        must_be_plain(folder)?;
        if let Some(handle) = system::HANDLE_FLAGS {
            // The open returns the error of a path that has no handle.
            open_by_component(folder, Path::new(name), handle, Mode::empty())
                .map_or(Ok(()), |handle| must_be_plain(handle.as_fd()))?;
        }
        let opened = open_by_component(folder, Path::new(name), flags, mode)?;
        must_be_plain(opened.as_fd())?;
        Ok(opened)
    }

    /// The status of a path as [`Self::open_inside`] finds it. Nothing is opened but folders.
    pub(crate) fn stat_inside(&self, path: &Path, follow: bool) -> Result<Stat, Errno> {
        let flags = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let opened = self.ask_kernel(|| system::open_to_stat(self.root, path, flags));
        match opened {
            Some(opened) => rustix::fs::fstat(&opened?),
            None => self.stat_no_follow(&self.resolve_inside(path, follow)?),
        }
    }

    /// The path that a path of plain WASI files leads to, as text.
    fn resolve_inside(&self, path: &Path, follow: bool) -> Result<PathBuf, Errno> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT);
        }
        if path.is_absolute() {
            return Err(Errno::XDEV);
        }
        let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
        // A slash at the end follows a link, as in the kernel.
        match self.resolve(&plain, follow || ends_as_folder(path))? {
            LinkTarget::Inside(target, _) => Ok(target),
            LinkTarget::Outside => Err(Errno::XDEV),
        }
    }

    /// The status of a path; a final link is not followed.
    pub(super) fn stat_no_follow(&self, path: &Path) -> Result<Stat, Errno> {
        if path == Path::new(".") {
            return rustix::fs::fstat(self.root);
        }
        let (folder, name) = self.open_parent(path)?;
        rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens the parent folder of a path that is not the root itself.
    fn open_parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let (folder, name) = split_parent(path)?;
        Ok((self.open(folder, self.parent_flags())?, name))
    }

    /// Reads a link; `None` if the path is not a link. The earlier components must not be links.
    fn read_link(&self, path: &Path) -> Result<Option<PathBuf>, Errno> {
        let (folder, name) = self.open_parent(path)?;
        match rustix::fs::readlinkat(&folder, name, Vec::new()) {
            Ok(target) => Ok(Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))),
            Err(Errno::INVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether an opened path has the names that its folders list. Only the portable resolution looks: a file system that
    /// ignores case finds a file under names that no rule matches.
    pub(super) fn is_spelled_as_listed(&self, path: &Path, opened: BorrowedFd<'_>) -> Result<bool, Errno> {
        if self.resolution == PathResolution::Kernel || path == Path::new(".") {
            return Ok(true);
        }
        let real = |file| system::real_path(file).map_err(|error| errno(&error));
        if is_folder(&rustix::fs::fstat(opened)?) {
            return Ok(real(opened)? == real(self.root)?.join(path));
        }
        let (folder, name) = self.open_parent(path)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let in_parent =
            parent.as_os_str().is_empty() || real(folder.as_fd())? == real(self.root)?.join(parent);
        Ok(in_parent && is_listed(folder.as_fd(), name)?)
    }

    /// Whether the folder of an existing file lists it under this name. Only the portable resolution looks.
    pub(super) fn is_listed(&self, folder: BorrowedFd<'_>, name: &OsStr) -> Result<bool, Errno> {
        match self.resolution {
            PathResolution::Kernel => Ok(true),
            PathResolution::Portable => is_listed(folder, name),
        }
    }
}

/// Whether a folder lists a name as it is written. A reading can miss a file that is being replaced, so a folder that
/// changed is read again.
fn is_listed(folder: BorrowedFd<'_>, name: &OsStr) -> Result<bool, Errno> {
    let version = || rustix::fs::fstat(folder).map(|stat| (stat.st_ctime, stat.st_ctime_nsec));
    for _ in 0..MAX_READINGS {
        let before = version()?;
        for entry in rustix::fs::Dir::read_from(folder)? {
            if entry?.file_name().to_bytes() == name.as_bytes() {
                return Ok(true);
            }
        }
        if version()? == before {
            return Ok(false);
        }
    }
    Err(Errno::BUSY)
}

fn ends_as_folder(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The parent folder of a path, and its name there.
pub(super) fn split_parent(path: &Path) -> Result<(&Path, &OsStr), Errno> {
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((folder, name))
}

impl Beneath<'_> {
    /// Resolves the links of a path as text. A final link is followed if `last` is set.
    pub(super) fn resolve(&self, path: &Path, last: bool) -> Result<LinkTarget, Errno> {
        let mut done = PathBuf::new();
        let mut todo: VecDeque<OsString> = path.iter().map(ToOwned::to_owned).collect();
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                if !done.pop() {
                    return Ok(LinkTarget::Outside);
                }
                continue;
            }
            let here = done.join(&name);
            if todo.is_empty() && !last {
                return Ok(LinkTarget::Inside(here, links > 0));
            }
            match self.read_link(&here) {
                Ok(None) => done = here,
                Ok(Some(target)) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP);
                    }
                    for part in target.components().rev() {
                        match part {
                            Component::Normal(name) => todo.push_front(name.to_owned()),
                            Component::ParentDir => todo.push_front("..".into()),
                            Component::CurDir => {}
                            // An absolute link leaves the folder, whatever its target.
                            Component::RootDir | Component::Prefix(_) => return Ok(LinkTarget::Outside),
                        }
                    }
                }
                // The path does not exist from here on, so the remaining components are taken literally.
                Err(Errno::NOENT) if todo.iter().all(|name| name != "..") => {
                    return Ok(LinkTarget::Inside(here.join(todo.iter().collect::<PathBuf>()), links > 0));
                }
                Err(error) => return Err(error),
            }
        }
        if done.as_os_str().is_empty() {
            done.push(".");
        }
        Ok(LinkTarget::Inside(done, links > 0))
    }
}

/// Opens component by component. `mode` is that of a created file.
fn open_by_component(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut folder: Option<OwnedFd> = None;
    let mut names = path.iter().peekable();
    while let Some(name) = names.next() {
        if name == ".." || name == "/" {
            return Err(Errno::XDEV);
        }
        let at = folder.as_ref().map_or(root, AsFd::as_fd);
        let wanted = if names.peek().is_some() { FOLDER_FLAGS } else { flags };
        let opened = rustix::fs::openat(at, name, wanted | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode);
        let opened =
            opened.map_err(|error| match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if is_link(&stat) => Errno::LOOP,
                _ => error,
            })?;
        // With `O_PATH` the open succeeds on a link.
        if rustix::fs::fstat(&opened).is_ok_and(|stat| is_link(&stat)) {
            return Err(Errno::LOOP);
        }
        folder = Some(opened);
    }
    folder.ok_or(Errno::INVAL)
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const BOTH: [PathResolution; 2] = [PathResolution::Kernel, PathResolution::Portable];

    fn tree() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        fs::create_dir_all(at.join("in/deep")).unwrap();
        fs::write(at.join("in/deep/a"), "inside").unwrap();
        fs::write(at.join("secret"), "canary").unwrap();
        for (target, name) in [
            ("deep/a", "file"),
            ("deep", "folder"),
            ("folder/../deep/./a", "around"),
            ("file", "twice"),
            ("../secret", "out"),
            ("deep/../../secret", "out-later"),
            ("/etc/passwd", "absolute"),
            ("loop", "loop"),
            ("nothing", "dangling"),
            ("nothing/../deep/a", "through-nothing"),
            ("..", "up"),
        ] {
            symlink(target, at.join("in").join(name)).unwrap();
        }
        let root = fs::File::open(at.join("in")).unwrap();
        (dir, root.into())
    }

    #[test]
    fn a_path_with_a_link_is_not_opened() {
        let (_dir, root) = tree();
        for resolution in BOTH {
            let open =
                |path: &str| Beneath::new(root.as_fd(), resolution).open(Path::new(path), OFlags::RDONLY);
            for path in ["file", "folder/a", "twice", "out", "absolute", "loop", "up/secret", "dangling"] {
                let opened = open(path);
                assert_eq!(opened.map(drop), Err(Errno::LOOP), "{path}");
            }
            assert!(open("deep/a").is_ok());
            assert!(open("../secret").is_err());
            assert!(open("/etc/passwd").is_err());
            assert_eq!(open("none").map(drop), Err(Errno::NOENT));
        }
    }

    #[test]
    fn links_are_resolved_inside_the_folder() {
        let (_dir, root) = tree();
        let inside = |path: &str| Ok(LinkTarget::Inside(path.into(), true));
        for (path, target) in [
            ("file", inside("deep/a")),
            ("folder/a", inside("deep/a")),
            ("around", inside("deep/a")),
            ("twice", inside("deep/a")),
            ("folder", inside("deep")),
            ("folder/new/er", inside("deep/new/er")),
            ("dangling", inside("nothing")),
            ("deep/a", Ok(LinkTarget::Inside("deep/a".into(), false))),
            ("out", Ok(LinkTarget::Outside)),
            ("out-later", Ok(LinkTarget::Outside)),
            ("absolute", Ok(LinkTarget::Outside)),
            ("up", Ok(LinkTarget::Outside)),
            ("up/in/deep/a", Ok(LinkTarget::Outside)),
            ("loop", Err(Errno::LOOP)),
            ("through-nothing", Err(Errno::NOENT)),
        ] {
            for resolution in BOTH {
                let found = Beneath::new(root.as_fd(), resolution).resolve(Path::new(path), true);
                assert_eq!(found, target, "{path}");
            }
        }
        let resolve =
            |path: &str| Beneath::new(root.as_fd(), PathResolution::Kernel).resolve(Path::new(path), false);
        assert_eq!(resolve("folder/file"), inside("deep/file"));
        assert_eq!(resolve("out"), Ok(LinkTarget::Inside("out".into(), false)));
    }

    #[test]
    fn the_type_of_a_path_is_known_without_opening_it() {
        let (dir, root) = tree();
        let fifo = dir.path().join("in/fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        symlink("fifo", dir.path().join("in/to-fifo")).unwrap();
        for resolution in BOTH {
            let below = Beneath::new(root.as_fd(), resolution);
            let kind = |path: &str, follow| {
                let stat = below.stat_inside(Path::new(path), follow);
                stat.map(|stat| FileType::from_raw_mode(stat.st_mode))
            };
            for (path, follow, expected) in [
                ("fifo", true, Ok(FileType::Fifo)),
                ("to-fifo", true, Ok(FileType::Fifo)),
                ("to-fifo", false, Ok(FileType::Symlink)),
                ("folder/a", false, Ok(FileType::RegularFile)),
                ("folder/", false, Ok(FileType::Directory)),
                (".", true, Ok(FileType::Directory)),
                ("./deep//a", true, Ok(FileType::RegularFile)),
                ("dangling", true, Err(Errno::NOENT)),
                ("out", true, Err(Errno::XDEV)),
                ("absolute", true, Err(Errno::XDEV)),
                ("../secret", true, Err(Errno::XDEV)),
                ("/etc/passwd", true, Err(Errno::XDEV)),
                ("", true, Err(Errno::NOENT)),
                ("loop", true, Err(Errno::LOOP)),
            ] {
                assert_eq!(kind(path, follow), expected, "{resolution:?} {path} {follow}");
            }
        }
        let write = OFlags::WRONLY | OFlags::NONBLOCK;
        let opened = rustix::fs::open(&fifo, write, Mode::empty());
        assert_eq!(opened.map(drop), Err(Errno::NXIO), "somebody has it open");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_of_the_kernel_is_refused_before_it_is_opened() {
        let root = fs::File::open("/").unwrap();
        let below = Beneath::new(root.as_fd(), PathResolution::Portable);
        for path in ["proc", "proc/version", "proc/none"] {
            // The flag fails in an open of a file.
            let opened = below.open_inside(Path::new(path), OFlags::RDONLY | OFlags::DIRECTORY, true);
            assert_eq!(opened.map(drop), Err(Errno::XDEV), "{path}");
        }
    }

    #[test]
    fn a_file_is_found_by_the_name_that_its_folder_lists() {
        let (_dir, root) = tree();
        let below = Beneath::new(root.as_fd(), PathResolution::Portable);
        let file = below.open(Path::new("deep/a"), OFlags::RDONLY).unwrap();
        let folder = below.open(Path::new("deep"), OFlags::RDONLY).unwrap();
        let spelled = |path: &str, opened: &OwnedFd| {
            below.is_spelled_as_listed(Path::new(path), opened.as_fd()).unwrap_or(false)
        };
        assert!(spelled("deep/a", &file) && spelled("deep", &folder) && spelled(".", &root));
        // What a file system that ignores case would have opened by these names.
        assert!(!spelled("deep/A", &file) && !spelled("Deep/a", &file) && !spelled("DEEP", &folder));
        assert!(is_listed(root.as_fd(), OsStr::new("deep")).unwrap());
        assert!(!is_listed(root.as_fd(), OsStr::new("DEEP")).unwrap());
    }
}
