//! Folders and files of the host's own: made for this user only, believed only if nobody else can have written them.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde::de::DeserializeOwned;
use toolbay_policy::quantity::show_duration;

/// How long a lock in the state directory is waited for, unless the host is told otherwise: longer than two hundred
/// commands need that write at once on two cores.
pub const DEFAULT_STATE_WAIT: Duration = Duration::from_secs(30);
/// First pause between two attempts to take a lock. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
/// Longest pause between two attempts: hundreds of processes that wait leave the processor to the one that works.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Age from which a temporary file of a process that is gone is removed. Containers that share the directory do not see
/// each other's processes; a write takes less than this.
const LEFT_BEHIND: Duration = Duration::from_secs(10);
/// Age from which any temporary file is removed: process IDs are used again.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Most entries of a directory that are looked at for temporary files.
const MAX_SWEPT: usize = 10_000;

/// Makes a folder, and those above it, if it is not there.
///
/// # Errors
/// Says why the folder cannot be made or trusted.
pub(crate) fn make_dir(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| format!("`{shown}` cannot be made: {e}"))?;
    check_dir(dir)
}

/// Checks that a folder is one, and this user's.
///
/// # Errors
/// Says why it cannot be trusted.
pub(crate) fn check_dir(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    let meta = fs::symlink_metadata(dir).map_err(|e| format!("`{shown}`: {e}"))?;
    if !meta.is_dir() {
        return Err(format!("`{shown}` is not a folder"));
    }
    trusted(&meta)
        .map_err(|problem| format!("`{shown}` {problem}: only its owner may be able to write it (mode 0700)"))
}

/// Belongs to us, and nobody else may write it.
fn trusted(meta: &fs::Metadata) -> Result<(), &'static str> {
    if meta.uid() != rustix::process::geteuid().as_raw() {
        Err("belongs to another user")
    } else if meta.mode() & 0o022 != 0 {
        Err("can be written by others")
    } else {
        Ok(())
    }
}

/// Reads a file of at most `most` bytes; `None` if it is not there.
///
/// # Errors
/// Says why it cannot be read or trusted.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, String> {
    let failed = |problem: String| format!("`{}` {problem}", path.display());
    let Some(file) = open(path)? else { return Ok(None) };
    let size = file.metadata().map_or(0, |meta| meta.len().min(most));
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|e| failed(format!("cannot be read: {e}")))?;
    if bytes.len() as u64 > most {
        return Err(failed(format!("has more than {most} bytes")));
    }
    Ok(Some(bytes))
}

/// Parses a JSON file of state. `without` says what removing the file does.
///
/// # Errors
/// Says that a newer version of this program wrote the file, or what is wrong with it, and what to do.
pub(crate) fn parse_state<T: DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
    version: u32,
    without: &str,
) -> Result<T, String> {
    #[derive(serde::Deserialize)]
    struct Head {
        version: u32,
    }
    let shown = path.display();
    let damaged = |e: serde_json::Error| {
        format!("`{shown}` is damaged: {e}. Restore it from a backup, or remove it to {without}")
    };
    let Head { version: found } = serde_json::from_slice(bytes).map_err(damaged)?;
    check_version(u64::from(found), u64::from(version)).map_err(|problem| format!("`{shown}` {problem}"))?;
    serde_json::from_slice(bytes).map_err(damaged)
}

/// Checks the format of a file against the one that this program knows.
///
/// # Errors
/// Says what to do with a file of another format.
pub(crate) fn check_version(found: u64, known: u64) -> Result<(), String> {
    match found.cmp(&known) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(format!(
            "was written by a newer version of Toolbay (format {found}, and this program knows {known}): update \
             this program, or use another state directory (--state-dir)"
        )),
        std::cmp::Ordering::Less => Err(format!(
            "has the format {found}, which no version of Toolbay wrote; this program knows {known}: restore the file \
             from a backup"
        )),
    }
}

/// Opens a file for reading; `None` if it is not there.
///
/// # Errors
/// Says why it cannot be read or trusted.
pub(crate) fn open(path: &Path) -> Result<Option<File>, String> {
    let failed = |problem: String| format!("`{}` {problem}", path.display());
    // No link is followed, and a FIFO put there is not waited for.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file: File = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(format!("cannot be read: {error}"))),
    };
    let meta = file.metadata().map_err(|e| failed(format!("cannot be read: {e}")))?;
    if !meta.is_file() {
        return Err(failed("is not a file".to_owned()));
    }
    trusted(&meta).map_err(|problem| failed(format!("{problem}: only its owner may (mode 0600)")))?;
    Ok(Some(file))
}

/// Puts a file in the place of another: written beside it, on the disk before it is renamed. A reader sees the old
/// one or the new one, also after a crash.
///
/// # Errors
/// When the disk is full or the folder is gone; the old file then stays.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    write_beside(path, &[bytes], File::sync_all).and_then(|()| File::open(dir)?.sync_all())
}

/// As [`replace`], for what need not outlive a crash of the system: after one, the file can be torn.
///
/// # Errors
/// When the disk is full or the folder is gone; the old file then stays.
pub(crate) fn put(path: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
    write_beside(path, parts, |_| Ok(()))
}

fn write_beside(
    path: &Path,
    parts: &[&[u8]],
    sync: impl FnOnce(&File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let temporary = temporary_beside(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = parts.iter().try_for_each(|part| file.write_all(part)).and_then(|()| sync(&file));
    let done = written.and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        fs::remove_file(&temporary).ok();
    }
    done
}

/// Removes temporary files that killed processes left behind in a directory. Blocks.
pub(crate) fn sweep_temporary(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten().take(MAX_SWEPT) {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(writer_of) else { continue };
        let modified =
            entry.metadata().ok().filter(fs::Metadata::is_file).and_then(|meta| meta.modified().ok());
        let Some(age) = modified.and_then(|time| time.elapsed().ok()) else { continue };
        let gone = rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH);
        if age > ABANDONED || (gone && age > LEFT_BEHIND) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

/// The process that wrote a temporary file: `.PID-N.tmp`.
fn writer_of(name: &str) -> Option<rustix::process::Pid> {
    let (process, count) = name.strip_prefix('.')?.strip_suffix(".tmp")?.split_once('-')?;
    let numbered = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    rustix::process::Pid::from_raw(process.parse().ok().filter(|_| numbered)?)
}

/// A path beside another that no one else uses, for a file that is renamed when it is complete. Processes in containers
/// that share the directory may have the same number, hence the time.
pub(crate) fn temporary_beside(path: &Path) -> std::path::PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    let dir = path.parent().unwrap_or(Path::new("/"));
    dir.join(format!(".{}-{now}{count}.tmp", std::process::id()))
}

/// Tries until an attempt succeeds or the time is up; tells whether one succeeded. Blocks.
///
/// # Errors
/// The error of an attempt.
pub(crate) fn wait<E>(limit: Duration, mut attempt: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let end = Instant::now() + limit;
    let mut pause = FIRST_PAUSE;
    loop {
        if attempt()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Takes a lock, a file beside what it guards, from other threads and processes, until what is returned is dropped.
/// Blocks.
///
/// # Errors
/// When somebody else holds it for longer than `limit`, or it cannot be made.
pub(crate) fn lock(path: &Path, limit: Duration) -> Result<File, String> {
    let failed = |e: &dyn std::fmt::Display| format!("`{}` cannot be locked: {e}", path.display());
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(|e| failed(&e))?;
    let taken = wait(limit, || try_lock(&file)).map_err(|e| failed(&e))?;
    if taken {
        return Ok(file);
    }
    Err(failed(&format!("another process has held it for {}", show_duration(limit))))
}

/// Takes the lock of a file if nobody else holds it.
///
/// # Errors
/// When the file system has no locks, or fails.
pub(crate) fn try_lock(file: &File) -> std::io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn temporary_files_of_killed_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let here = std::process::id();
        let (young, old, very_old) = (0, 60, 7200);
        for (name, age, stays) in [
            (format!(".{gone}-0.tmp"), old, false),
            (format!(".{gone}-1.tmp"), young, true),
            (format!(".{here}-0.tmp"), old, true),
            (format!(".{here}-1.tmp"), very_old, false),
            (format!(".{gone}-x.tmp"), very_old, true),
            (format!("{gone}-0.tmp"), very_old, true),
            (".notes.tmp".to_owned(), very_old, true),
            ("consents.json".to_owned(), very_old, true),
        ] {
            let path = dir.path().join(&name);
            let file = File::create(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).unwrap();
            sweep_temporary(dir.path());
            assert_eq!(path.exists(), stays, "{name}, {age} s old");
        }
    }

    #[test]
    fn what_others_can_write_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert_eq!(read(&at("absent"), 10), Ok(None));
        replace(&at("mine"), b"0123456789").unwrap();
        assert_eq!(read(&at("mine"), 10).unwrap().unwrap(), b"0123456789");
        assert_eq!(fs::metadata(at("mine")).unwrap().mode() & 0o777, 0o600);
        assert!(read(&at("mine"), 9).unwrap_err().contains("more than 9 bytes"));
        symlink(at("mine"), at("link")).unwrap();
        assert!(read(&at("link"), 10).unwrap_err().contains("cannot be read"));
        assert!(read(dir.path(), 10).unwrap_err().contains("is not a file"));
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(read(&at("fifo"), 10).unwrap_err().contains("is not a file"));
        fs::set_permissions(at("mine"), fs::Permissions::from_mode(0o660)).unwrap();
        assert!(read(&at("mine"), 10).unwrap_err().contains("can be written by others"));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_dir(dir.path()).unwrap_err().contains("can be written by others"));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{names:?}");
    }
}
