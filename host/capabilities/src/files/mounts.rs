//! The place of a path independent of its name: the file system, and the path inside of it.
//!
//! A mount gives a folder a second name: a bind mount of `.ssh` in a granted folder has no name that starts with `.ssh`,
//! and a second procfs is not called `/proc`. The table of mounts of the kernel (`/proc/self/mountinfo`, proc(5)) says
//! for each mount which part of which file system it shows. Two names lead to one file if their device and their place on
//! it are equal.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Maximum size of a table that is read, in bytes: about 100,000 mounts.
const MAX_TABLE: u64 = 16 << 20;
/// File systems whose files are interfaces of the kernel: a reader sees the memory of processes, a writer changes the
/// machine.
const KERNEL_TYPES: [&str; 20] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// The mounts that this process sees, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct MountTable(Vec<Mount>);

/// One mount.
#[derive(Debug)]
struct Mount {
    id: u64,
    /// The mount that it is mounted on.
    parent: u64,
    /// The device, `major:minor`.
    device: String,
    /// The part of the file system that it shows.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
    kind: String,
}

/// The place of a path in its file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilePlace {
    device: String,
    path: PathBuf,
    is_kernel: bool,
}

impl FilePlace {
    /// Whether the place equals `other` or lies in it.
    pub(super) fn is_in(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }

    /// Whether it is an interface of the kernel.
    pub(super) fn is_kernel(&self) -> bool {
        self.is_kernel
    }

    /// The path of this place below `other`, if it is there.
    fn below<'a>(&'a self, other: &Self) -> Option<&'a Path> {
        (self.device == other.device).then(|| self.path.strip_prefix(&other.path).ok()).flatten()
    }
}

impl MountTable {
    /// Reads the table of this process. It is empty on systems without one.
    pub(super) fn read() -> Self {
        use std::io::Read as _;
        let mut text = Vec::new();
        let file = std::fs::File::open("/proc/self/mountinfo");
        match file.and_then(|file| file.take(MAX_TABLE).read_to_end(&mut text)) {
            Ok(_) => Self::parse(&text),
            Err(_) => Self::default(),
        }
    }

    /// Reads lines as proc(5) describes them. Other lines are left out.
    fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect())
    }

    /// The place of a path without links. `None` if no mount holds it.
    pub(super) fn place(&self, path: &Path) -> Option<FilePlace> {
        let mut mount =
            self.first_mount(path, |mount| self.0.iter().all(|other| other.id != mount.parent))?;
        // No mount is its own ancestor, but the table is text.
        for _ in 0..self.0.len() {
            match self.first_mount(path, |other| other.parent == mount.id && other.id != mount.id) {
                Some(next) => mount = next,
                None => break,
            }
        }
        let inside = path.strip_prefix(&mount.point).ok()?;
        Some(mount.place(inside))
    }

    /// The first matching mount on the way along a path.
    fn first_mount(&self, path: &Path, of: impl Fn(&Mount) -> bool) -> Option<&Mount> {
        let on_path = self.0.iter().filter(|mount| path.starts_with(&mount.point) && of(mount));
        on_path.min_by_key(|mount| mount.depth())
    }

    /// The paths below a folder at which `protected` places, and interfaces of the kernel, can be reached by other names
    /// than their own. The folder and the paths have no links.
    pub(super) fn other_names<'a>(&'a self, folder: &'a Path, protected: &'a [FilePlace]) -> Vec<PathBuf> {
        let own = self.place(folder).map(|place| (folder.to_path_buf(), place));
        let below = self.0.iter().filter(|mount| mount.point != folder && mount.point.starts_with(folder));
        let shown =
            own.into_iter().chain(below.map(|mount| (mount.point.clone(), mount.place(Path::new("")))));
        let mut names: Vec<PathBuf> = shown
            .flat_map(|(at, place)| {
                let is_whole = place.is_kernel || protected.iter().any(|one| place.is_in(one));
                let parts = protected.iter().filter_map(|one| Some(join(&at, one.below(&place)?)));
                if is_whole { vec![at.clone()] } else { parts.collect() }
            })
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

fn join(at: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { at.to_path_buf() } else { at.join(rest) }
}

impl Mount {
    /// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut id = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (id()?, id()?);
        let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
        let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        let kind = String::from_utf8_lossy(kind).into_owned();
        (root.is_absolute() && point.is_absolute()).then_some(Self { id, parent, device, root, point, kind })
    }

    fn depth(&self) -> usize {
        self.point.components().count()
    }

    fn place(&self, inside: &Path) -> FilePlace {
        FilePlace {
            device: self.device.clone(),
            path: join(&self.root, inside),
            is_kernel: KERNEL_TYPES.contains(&self.kind.as_str()),
        }
    }
}

/// Spaces and a few other bytes are written as `\040`.
fn unescape(field: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let [first, tail @ ..] = rest {
        let escaped = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { rest.get(4..).unwrap_or_default() } else { tail };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
28 27 254:0 /home/user/.ssh /srv/keys rw - ext4 /dev/vda rw
29 27 254:0 /home/user/.ssh/id /srv/one rw - ext4 /dev/vda rw
30 27 254:0 /home /srv/homes rw - ext4 /dev/vda rw
31 27 0:77 / /srv/p\\040q rw - proc proc rw
32 27 0:78 / /srv/data rw - tmpfs tmpfs rw
33 32 0:79 / /srv/data rw - sysfs sysfs rw
34 27 0:80 / /over/below rw - proc proc rw
35 27 0:81 / /over rw - tmpfs tmpfs rw
broken line
";

    #[test]
    fn a_path_has_a_place_in_its_file_system() {
        let table = MountTable::parse(TABLE.as_bytes());
        for (path, device, place, is_kernel) in [
            ("/home/user/.ssh/id", "254:0", "/home/user/.ssh/id", false),
            ("/srv/keys/id", "254:0", "/home/user/.ssh/id", false),
            ("/srv/one", "254:0", "/home/user/.ssh/id", false),
            ("/srv/keys2", "254:0", "/srv/keys2", false),
            ("/proc/1/mem", "0:21", "/1/mem", true),
            ("/srv/p q/1/mem", "0:77", "/1/mem", true),
            ("/dev/shm/a", "0:23", "/a", false),
            ("/srv/data/a", "0:79", "/a", true),
            ("/over/below/a", "0:81", "/below/a", false),
        ] {
            let found = table.place(Path::new(path)).unwrap();
            let expect = FilePlace { device: device.to_owned(), path: place.into(), is_kernel };
            assert_eq!(found, expect, "{path}");
        }
    }

    #[test]
    fn other_names_of_protected_places_are_found() {
        let table = MountTable::parse(TABLE.as_bytes());
        let protected =
            ["/home/user/.ssh", "/var/lib/state"].map(|path| table.place(Path::new(path)).unwrap());
        let names = |folder: &str| {
            let names = table.other_names(Path::new(folder), &protected);
            names.into_iter().map(|name| name.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("/srv"), ["/srv/data", "/srv/homes/user/.ssh", "/srv/keys", "/srv/one", "/srv/p q"]);
        assert_eq!(names("/srv/keys"), ["/srv/keys"], "the folder itself is a mount of one");
        assert_eq!(names("/srv/homes"), ["/srv/homes/user/.ssh"]);
        assert_eq!(names("/srv/homes/user/.ssh"), ["/srv/homes/user/.ssh"]);
        assert_eq!(names("/home"), ["/home/user/.ssh"]);
        assert_eq!(names("/srv/src"), [""; 0]);
        assert_eq!(names("/dev/shm"), [""; 0]);
    }

    #[test]
    fn the_table_of_this_process_is_read() {
        let table = MountTable::read();
        let proc = table.place(Path::new("/proc/self/mem"));
        assert!(proc.is_none_or(|place| place.is_kernel()));
    }
}
