//! Opens paths below a folder's handle without following a link unchecked.
//!
//! A path is opened as written, and the open fails when a component is a link (`openat2` with `RESOLVE_NO_SYMLINKS`;
//! elsewhere `O_NOFOLLOW` for each component). Only then does [`resolve`] read the links, as text. The caller checks
//! the resulting path and opens it in the same way. The opened path is therefore always a checked one, even when
//! another process swaps folders for links.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::mounts;

/// Maximum number of links in one path, as in Linux.
const MAX_LINKS: usize = 40;
/// Retries while other processes rename folders on the path.
#[cfg(target_os = "linux")]
const MAX_RACES: usize = 8;

/// The target of a path after its links are followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkTarget {
    /// A path below the folder, which need not exist, and whether a link was followed.
    Inside(PathBuf, bool),
    /// A path outside the folder.
    Outside,
}

/// Opens a path below `root`; `ELOOP` when a component is a link.
pub(super) fn open(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            // `openat2` needs Linux 5.6, and some sandboxes block it.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
            done => return done,
        }
    }
    open_by_component(root, path, flags)
}

/// [`open`] for a path that crosses no mount: `EXDEV` if it does, or if that cannot be found out.
pub(super) fn open_on_mount(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => Err(Errno::XDEV),
            done => done,
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (root, path, flags);
        Err(Errno::XDEV)
    }
}

/// Opens a path below `root` and follows its links, which must not lead out (`EXDEV`). A final link is followed if
/// `follow` is set. For plain WASI files, where whole folders are granted.
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
        let on_mount = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let mut how = on_mount;
        // `EAGAIN`: a component was renamed meanwhile.
        for _ in 0..MAX_RACES {
            match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, mode, how) {
                Err(Errno::AGAIN) => {}
                Err(Errno::XDEV) if how == on_mount => how = on_mount.difference(ResolveFlags::NO_XDEV),
                Err(Errno::NOSYS) => return open_inside_without_openat2(root, path, flags, mode, follow),
                Ok(opened) if how != on_mount && mounts::is_kernel_file(opened.as_fd()) => {
                    return Err(Errno::XDEV);
                }
                done => return done,
            }
        }
        Err(Errno::AGAIN)
    }
    #[cfg(not(target_os = "linux"))]
    open_inside_without_openat2(root, path, flags, mode, follow)
}

/// [`open_inside`] without `openat2`: resolves the links as text and opens the result without links.
fn open_inside_without_openat2(
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
        LinkTarget::Inside(target, _) => {
            let opened = open_by_component_with_mode(root, &target, flags, mode)?;
            if mounts::is_kernel_file(opened.as_fd()) { Err(Errno::XDEV) } else { Ok(opened) }
        }
        LinkTarget::Outside => Err(Errno::XDEV),
    }
}

/// Opens a path below `root` only if that needs no link, no disk access and no other file system.
#[cfg(target_os = "linux")]
pub(super) fn open_cached(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let how =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how).ok()
}

/// Opens the parent folder of a path that is not the root itself.
pub(super) fn open_parent<'a>(root: BorrowedFd<'_>, path: &'a Path) -> Result<(OwnedFd, &'a OsStr), Errno> {
    let (folder, name) = split_parent(path)?;
    Ok((open(root, folder, PARENT_FLAGS)?, name))
}

/// How a parent folder is opened. `O_PATH` needs no permission to list it; other systems lack it.
#[cfg(target_os = "linux")]
pub(super) const PARENT_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
#[cfg(not(target_os = "linux"))]
pub(super) const PARENT_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// The parent folder of a path, and its name there.
pub(super) fn split_parent(path: &Path) -> Result<(&Path, &OsStr), Errno> {
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((folder, name))
}

/// Returns the status of a path; a final link is not followed.
pub(super) fn stat_no_follow(root: BorrowedFd<'_>, path: &Path) -> Result<Stat, Errno> {
    if path == Path::new(".") {
        return rustix::fs::fstat(root);
    }
    let (folder, name) = open_parent(root, path)?;
    rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Resolves the links of a path as text. A final link is followed if `last` is set.
pub(super) fn resolve(root: BorrowedFd<'_>, path: &Path, last: bool) -> Result<LinkTarget, Errno> {
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
        match read_link(root, &here) {
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

/// Reads a link; `None` if the path is not a link. The earlier components must not be links.
fn read_link(root: BorrowedFd<'_>, path: &Path) -> Result<Option<PathBuf>, Errno> {
    let (folder, name) = open_parent(root, path)?;
    match rustix::fs::readlinkat(&folder, name, Vec::new()) {
        Ok(target) => Ok(Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))),
        Err(Errno::INVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens component by component.
fn open_by_component(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    open_by_component_with_mode(root, path, flags, Mode::empty())
}

/// [`open_by_component`] with the mode of a created file.
fn open_by_component_with_mode(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
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
        // With `O_PATH` the open succeeds on a link.
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
    fn a_path_with_a_link_is_not_opened() {
        let (_dir, root) = tree();
        for open in [open, open_by_component] {
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
            assert_eq!(resolve(root.as_fd(), Path::new(path), true), target, "{path}");
        }
        assert_eq!(resolve(root.as_fd(), Path::new("folder/file"), false), inside("deep/file"));
        assert_eq!(
            resolve(root.as_fd(), Path::new("out"), false),
            Ok(LinkTarget::Inside("out".into(), false))
        );
    }
}
