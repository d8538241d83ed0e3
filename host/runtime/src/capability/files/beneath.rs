//! Opening what lies below a folder's handle, without ever following a link unseen.
//!
//! Every path is opened as it is written, and the kernel refuses it when a name on the way is a link (`openat2` with
//! `RESOLVE_NO_SYMLINKS`; elsewhere each name by itself with `O_NOFOLLOW`). Only then are the links read, by
//! [`resolve`], as text; the caller decides about the path that comes out, and opens that one in the same way. So what
//! is opened is always what was decided about, however fast somebody swaps folders for links.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Links that are followed in one path, as many as Linux follows.
const MAX_LINKS: usize = 40;
/// How often a path is opened anew while others rename folders on it.
#[cfg(target_os = "linux")]
const MAX_RACES: usize = 8;

/// Where a path leads when its links are followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// There, below the folder; nothing need be there. Whether a link was followed.
    Inside(PathBuf, bool),
    /// Out of the folder.
    Outside,
}

/// Opens a path below `root`; `ELOOP` when a name of it is a link.
pub(super) fn open(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            // Before Linux 5.6, or where a sandbox does not know the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
            done => return done,
        }
    }
    walk(root, path, flags)
}

/// Opens a path below `root` behind its links, which may not lead out of it (`EXDEV`). A link at its end is followed if
/// `follow` says so. For plain WASI files, whose folders are granted whole.
pub(crate) fn open_inside(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        // `EAGAIN`: something was renamed meanwhile.
        for _ in 0..MAX_RACES {
            match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, mode, how) {
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS) => return open_by_hand(root, path, flags, mode, follow),
                done => return done,
            }
        }
        Err(Errno::AGAIN)
    }
    #[cfg(not(target_os = "linux"))]
    open_by_hand(root, path, flags, mode, follow)
}

/// [`open_inside`] without the kernel's help: the links are followed as text, and what comes out is opened without any.
fn open_by_hand(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT);
    }
    if path.is_absolute() {
        return Err(Errno::XDEV);
    }
    let flags = if path.as_os_str().as_bytes().ends_with(b"/") { flags | OFlags::DIRECTORY } else { flags };
    let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    match resolve(root, &plain, follow)? {
        Target::Inside(target, _) => walk_with(root, &target, flags, mode),
        Target::Outside => Err(Errno::XDEV),
    }
}

/// Opens a path below `root` if that takes neither a link, nor a look at the disk, nor another file system.
#[cfg(target_os = "linux")]
pub(super) fn open_cached(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let how =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how).ok()
}

/// Opens the folder that holds the last name of a path; the path is not the root's.
pub(super) fn parent<'a>(root: BorrowedFd<'_>, path: &'a Path) -> Result<(OwnedFd, &'a OsStr), Errno> {
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // `O_PATH` would do where it exists, and would not ask for the right to list.
    #[cfg(target_os = "linux")]
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    #[cfg(not(target_os = "linux"))]
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    Ok((open(root, folder, flags)?, name))
}

/// What a path is; a link at its end is not followed.
pub(super) fn look(root: BorrowedFd<'_>, path: &Path) -> Result<Stat, Errno> {
    if path == Path::new(".") {
        return rustix::fs::fstat(root);
    }
    let (folder, name) = parent(root, path)?;
    rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Follows the links of a path by hand. A link at its end is followed if `last` says so.
pub(super) fn resolve(root: BorrowedFd<'_>, path: &Path, last: bool) -> Result<Target, Errno> {
    let mut done = PathBuf::new();
    let mut todo: VecDeque<OsString> = path.iter().map(ToOwned::to_owned).collect();
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if name == ".." {
            if !done.pop() {
                return Ok(Target::Outside);
            }
            continue;
        }
        let here = done.join(&name);
        if todo.is_empty() && !last {
            return Ok(Target::Inside(here, links > 0));
        }
        match link(root, &here) {
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
                        // An absolute link is no path of this folder, wherever it leads.
                        Component::RootDir | Component::Prefix(_) => return Ok(Target::Outside),
                    }
                }
            }
            // Nothing is there: what would be behind it is where its names say.
            Err(Errno::NOENT) if todo.iter().all(|name| name != "..") => {
                return Ok(Target::Inside(here.join(todo.iter().collect::<PathBuf>()), links > 0));
            }
            Err(error) => return Err(error),
        }
    }
    if done.as_os_str().is_empty() {
        done.push(".");
    }
    Ok(Target::Inside(done, links > 0))
}

/// What a link says; `None` if the path is no link. The names before the last are no links.
fn link(root: BorrowedFd<'_>, path: &Path) -> Result<Option<PathBuf>, Errno> {
    let (folder, name) = parent(root, path)?;
    match rustix::fs::readlinkat(&folder, name, Vec::new()) {
        Ok(target) => Ok(Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))),
        Err(Errno::INVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens name by name.
fn walk(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    walk_with(root, path, flags, Mode::empty())
}

/// [`walk`], with the mode of a file that is made.
fn walk_with(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut folder: Option<OwnedFd> = None;
    let mut names = path.iter().peekable();
    while let Some(name) = names.next() {
        if name == ".." || name == "/" {
            return Err(Errno::XDEV);
        }
        let at = folder.as_ref().map_or(root, AsFd::as_fd);
        let wanted = if names.peek().is_some() { OFlags::RDONLY | OFlags::DIRECTORY } else { flags };
        let opened = rustix::fs::openat(at, name, wanted | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode);
        let opened =
            opened.map_err(|error| match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if is_link(&stat) => Errno::LOOP,
                _ => error,
            })?;
        // With `O_PATH` a link opens itself.
        if rustix::fs::fstat(&opened).is_ok_and(|stat| is_link(&stat)) {
            return Err(Errno::LOOP);
        }
        folder = Some(opened);
    }
    folder.ok_or(Errno::INVAL)
}

fn is_link(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Symlink
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

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
    fn links_are_never_followed_unseen() {
        let (_dir, root) = tree();
        for open in [open, walk] {
            for path in ["file", "folder/a", "twice", "out", "absolute", "loop", "up/secret", "dangling"] {
                let opened = open(root.as_fd(), Path::new(path), OFlags::RDONLY);
                assert_eq!(opened.map(drop), Err(Errno::LOOP), "{path}");
            }
            assert!(open(root.as_fd(), Path::new("deep/a"), OFlags::RDONLY).is_ok());
            assert!(open(root.as_fd(), Path::new("../secret"), OFlags::RDONLY).is_err());
            assert!(open(root.as_fd(), Path::new("/etc/passwd"), OFlags::RDONLY).is_err());
            assert_eq!(open(root.as_fd(), Path::new("none"), OFlags::RDONLY).map(drop), Err(Errno::NOENT));
        }
    }

    #[test]
    fn where_links_lead() {
        let (_dir, root) = tree();
        let inside = |path: &str| Ok(Target::Inside(path.into(), true));
        for (path, target) in [
            ("file", inside("deep/a")),
            ("folder/a", inside("deep/a")),
            ("around", inside("deep/a")),
            ("twice", inside("deep/a")),
            ("folder", inside("deep")),
            ("folder/new/er", inside("deep/new/er")),
            ("dangling", inside("nothing")),
            ("deep/a", Ok(Target::Inside("deep/a".into(), false))),
            ("out", Ok(Target::Outside)),
            ("out-later", Ok(Target::Outside)),
            ("absolute", Ok(Target::Outside)),
            ("up", Ok(Target::Outside)),
            ("up/in/deep/a", Ok(Target::Outside)),
            ("loop", Err(Errno::LOOP)),
            ("through-nothing", Err(Errno::NOENT)),
        ] {
            assert_eq!(resolve(root.as_fd(), Path::new(path), true), target, "{path}");
        }
        assert_eq!(resolve(root.as_fd(), Path::new("folder/file"), false), inside("deep/file"));
        assert_eq!(resolve(root.as_fd(), Path::new("out"), false), Ok(Target::Inside("out".into(), false)));
    }
}
