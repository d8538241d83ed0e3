//! Folders and files of the host's own: made for this user only, believed only if nobody else can have written them.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long somebody else may hold a lock; it takes milliseconds.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Makes a folder, and those above it, if it is not there.
///
/// # Errors
/// Says why the folder can not be made or trusted.
pub(crate) fn make_dir(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| format!("`{shown}` can not be made: {e}"))?;
    check_dir(dir)
}

/// Checks that a folder is one, and this user's.
///
/// # Errors
/// Says why it can not be trusted.
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
pub(crate) fn trusted(meta: &fs::Metadata) -> Result<(), &'static str> {
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
/// Says why it can not be read or trusted.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, String> {
    let failed = |problem: String| format!("`{}` {problem}", path.display());
    let Some(file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| failed(format!("can not be read: {e}")))?;
    if bytes.len() as u64 > most {
        return Err(failed(format!("has more than {most} bytes")));
    }
    Ok(Some(bytes))
}

/// Opens a file for reading; `None` if it is not there.
///
/// # Errors
/// Says why it can not be read or trusted.
pub(crate) fn open(path: &Path) -> Result<Option<File>, String> {
    let failed = |problem: String| format!("`{}` {problem}", path.display());
    // No link is followed, and a FIFO put there is not waited for.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file: File = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(format!("can not be read: {error}"))),
    };
    let meta = file.metadata().map_err(|e| failed(format!("can not be read: {e}")))?;
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
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let unique = format!(".{}-{count}.tmp", std::process::id());
    let dir = path.parent().unwrap_or(Path::new("/"));
    let temporary = dir.join(unique);
    // Left over by a process of the same number that was killed.
    fs::remove_file(&temporary).ok();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = parts.iter().try_for_each(|part| file.write_all(part)).and_then(|()| sync(&file));
    let done = written.and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        fs::remove_file(&temporary).ok();
    }
    done
}

/// Takes a lock, a file beside what it guards, from other threads and processes, until what is returned is dropped.
/// Blocks.
///
/// # Errors
/// When somebody else holds it for long, or it can not be made.
pub(crate) fn lock(path: &Path) -> Result<File, String> {
    let failed = |e: &dyn std::fmt::Display| format!("`{}` can not be locked: {e}", path.display());
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(|e| failed(&e))?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => return Err(failed(&"another process holds it")),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

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
        assert!(read(&at("link"), 10).unwrap_err().contains("can not be read"));
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
