//! The host's own folders and files: created for this user only, and trusted only if no other user can have written
//! them.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde::de::DeserializeOwned;

/// Default time to wait for a lock in the state directory. 200 commands that write at once on two cores need less.
pub const DEFAULT_STATE_WAIT: Duration = Duration::from_secs(30);
/// First pause between two attempts to take a lock. Each pause doubles the previous one.
const MIN_PAUSE: Duration = Duration::from_micros(20);
/// Longest pause between two attempts, so that hundreds of waiting processes leave the CPU to the lock holder.
const MAX_PAUSE: Duration = Duration::from_millis(20);
/// Age after which a temporary file of an ended process is removed. Containers that share the directory do not see each
/// other's processes, but a write takes less time than this.
const ORPHANED_AGE: Duration = Duration::from_secs(10);
/// Age after which any temporary file is removed, because process ids are reused.
const ABANDONED_AGE: Duration = Duration::from_secs(3600);
/// Maximum number of directory entries that a sweep for temporary files examines.
const MAX_SWEPT: usize = 10_000;

/// Creates a folder and its parents, if it does not exist.
///
/// # Errors
/// Returns why the folder cannot be created or trusted.
pub fn make_dir(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| format!("`{shown}` cannot be created: {e}"))?;
    check_dir(dir)
}

/// Checks that a path is a folder that only this user can write.
///
/// # Errors
/// Returns why the folder cannot be trusted.
pub fn check_dir(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    let meta = fs::symlink_metadata(dir).map_err(|e| format!("`{shown}`: {e}"))?;
    if !meta.is_dir() {
        return Err(format!("`{shown}` is not a folder"));
    }
    check_trusted(&meta)
        .map_err(|problem| format!("`{shown}` {problem}: only its owner may write to it (mode 0700)"))
}

/// Checks that this user owns the file and nobody else can write it.
///
/// # Errors
/// Returns why the file cannot be trusted.
pub fn check_trusted(meta: &fs::Metadata) -> Result<(), &'static str> {
    if meta.uid() != rustix::process::geteuid().as_raw() {
        Err("belongs to another user")
    } else if meta.mode() & 0o022 != 0 {
        Err("can be written by others")
    } else {
        Ok(())
    }
}

/// Reads a file of at most `most` bytes. Returns `None` if it does not exist.
///
/// # Errors
/// Returns why the file cannot be read or trusted.
pub fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, String> {
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

/// Parses a JSON state file. `without` says what happens when the file is removed.
///
/// # Errors
/// A newer version of this program wrote the file, or the file is damaged. The message says what to do.
pub fn parse_state<T: DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
    version: u32,
    without: &str,
) -> Result<T, String> {
    #[derive(serde::Deserialize)]
    struct StateVersion {
        version: u32,
    }
    let shown = path.display();
    let damaged = |e: serde_json::Error| {
        format!("`{shown}` is damaged: {e}. Restore it from a backup, or remove it to {without}")
    };
    let StateVersion { version: found } = serde_json::from_slice(bytes).map_err(damaged)?;
    check_version(u64::from(found), u64::from(version)).map_err(|problem| format!("`{shown}` {problem}"))?;
    serde_json::from_slice(bytes).map_err(damaged)
}

/// Compares the format version of a file with the one that this program writes.
///
/// # Errors
/// Fails if the versions differ. The message says what to do.
pub fn check_version(found: u64, known: u64) -> Result<(), String> {
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

/// Opens a file for reading. Returns `None` if it does not exist.
///
/// # Errors
/// Returns why the file cannot be read or trusted.
pub fn open(path: &Path) -> Result<Option<File>, String> {
    let failed = |problem: String| format!("`{}` {problem}", path.display());
    // Follows no link, and does not block on a FIFO.
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
    check_trusted(&meta)
        .map_err(|problem| failed(format!("{problem}: only its owner may write to it (mode 0600)")))?;
    Ok(Some(file))
}

/// Replaces a file atomically: writes a temporary file, syncs it and renames it. A reader sees the old or the new file,
/// also after a crash.
///
/// # Errors
/// The disk is full or the folder is gone. The old file stays.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    write_and_rename(path, &[bytes], File::sync_all).and_then(|()| File::open(dir)?.sync_all())
}

/// Like [`replace`], but without syncing: a crash of the system can leave a torn file.
///
/// # Errors
/// The disk is full or the folder is gone. The old file stays.
pub fn replace_unsynced(path: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
    write_and_rename(path, parts, |_| Ok(()))
}

fn write_and_rename(
    path: &Path,
    parts: &[&[u8]],
    sync: impl FnOnce(&File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let temporary = temporary_path(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = parts.iter().try_for_each(|part| file.write_all(part)).and_then(|()| sync(&file));
    let done = written.and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        fs::remove_file(&temporary).ok();
    }
    done
}

/// Removes temporary files that killed processes left in a directory. Blocks.
pub fn sweep_temporary(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten().take(MAX_SWEPT) {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(writer_pid) else { continue };
        let modified =
            entry.metadata().ok().filter(fs::Metadata::is_file).and_then(|meta| meta.modified().ok());
        let Some(age) = modified.and_then(|time| time.elapsed().ok()) else { continue };
        let has_ended = rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH);
        if age > ABANDONED_AGE || (has_ended && age > ORPHANED_AGE) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

/// The process that wrote a temporary file `.PID-N.tmp`.
fn writer_pid(name: &str) -> Option<rustix::process::Pid> {
    let (process, count) = name.strip_prefix('.')?.strip_suffix(".tmp")?.split_once('-')?;
    let numbered = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    rustix::process::Pid::from_raw(process.parse().ok().filter(|_| numbered)?)
}

/// A unique temporary path in the same folder. The time is part of the name, because processes in containers that share
/// the directory may have the same id.
#[must_use]
pub fn temporary_path(path: &Path) -> std::path::PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    let dir = path.parent().unwrap_or(Path::new("/"));
    dir.join(format!(".{}-{now}{count}.tmp", std::process::id()))
}

/// Repeats an attempt until it succeeds or `limit` has passed. Returns whether it succeeded. Blocks.
///
/// # Errors
/// Returns the first error of an attempt.
pub fn retry_until<E>(limit: Duration, mut attempt: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let end = Instant::now() + limit;
    let mut pause = MIN_PAUSE;
    loop {
        if attempt()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Locks a lock file against other threads and processes, until the returned file is dropped. Blocks.
///
/// # Errors
/// Another process holds the lock for longer than `limit`, or the lock file cannot be created.
pub fn lock(path: &Path, limit: Duration) -> Result<File, String> {
    let failed = |e: &dyn std::fmt::Display| format!("`{}` cannot be locked: {e}", path.display());
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(|e| failed(&e))?;
    let taken = retry_until(limit, || try_lock(&file)).map_err(|e| failed(&e))?;
    if taken {
        return Ok(file);
    }
    Err(failed(&format!("another process has held it for {limit:?}")))
}

/// Locks a file if no one else holds the lock.
///
/// # Errors
/// The file system has no locks, or fails.
pub fn try_lock(file: &File) -> std::io::Result<bool> {
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
    fn a_consent_record_that_others_can_write_is_not_trusted() {
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
        assert!(std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
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
