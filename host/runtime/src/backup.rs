//! Backups of a state folder while servers use it, and their restoration.
//!
//! A backup is a folder: `state/` with copies of the files, and `backup.json` with their digests, which is written last.
//! Each copy is consistent in itself: state files are replaced as a whole, the audit is cut after its last line, and
//! the key-value store makes its own snapshot.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use toolbay_capabilities::kv::RedbStore;
use toolbay_state::private;

use crate::storage::timestamp_now;

/// Increased when the meaning of the stored data changes.
const VERSION: u32 = 1;
/// The list of files in a backup.
const LIST: &str = "backup.json";
/// The folder with the copies.
const COPIES: &str = "state";
/// Maximum size of the list, in bytes.
const MAX_LIST: u64 = 64 << 20;
/// Maximum number of files in a backup.
const MAX_FILES: usize = 200_000;
/// Maximum depth of folders in a state folder.
const MAX_DEPTH: usize = 8;
/// The key-value store.
const STORE: &str = "kv.redb";
/// The folder of control sockets, which is not part of a backup.
const SOCKETS: &str = "servers";

/// The list of a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupList {
    version: u32,
    /// The time (RFC 3339).
    created: String,
    files: Vec<CopiedFile>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopiedFile {
    /// The path in the state folder.
    path: PathBuf,
    bytes: u64,
    sha256: String,
}

/// The summary of a backup or a restoration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupSummary {
    /// The number of files.
    pub files: usize,
    /// Their size in bytes.
    pub bytes: u64,
    /// The state folder from before a restoration; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<PathBuf>,
}

/// Copies a state folder to a new folder that only this user can read. Servers may use the state folder.
///
/// # Errors
/// The target exists, or a file cannot be copied. An incomplete copy is removed.
pub async fn back_up(state: &Path, to: &Path, store: &RedbStore) -> Result<BackupSummary, String> {
    make_new_dir(to)?;
    let copied = match is_inside(to, state) {
        Ok(false) => copy_all(state, to, store).await,
        Ok(true) => Err(format!("`{}` is inside of the state folder; choose another place", to.display())),
        Err(error) => Err(shown(to, "cannot be read", &error)),
    };
    if copied.is_err() {
        // Without its list, what is left is not a backup.
        drop(fs::remove_dir_all(to));
    }
    copied
}

fn is_inside(path: &Path, folder: &Path) -> io::Result<bool> {
    Ok(path.canonicalize()?.starts_with(folder.canonicalize()?))
}

async fn copy_all(state: &Path, to: &Path, store: &RedbStore) -> Result<BackupSummary, String> {
    let copies = to.join(COPIES);
    make_new_dir(&copies)?;
    let mut files = Vec::new();
    if state.join(STORE).exists() {
        store.backup(&copies.join(STORE)).await.map_err(|error| error.to_string())?;
        files.push(describe(&copies, PathBuf::from(STORE))?);
    }
    let (state, root) = (state.to_path_buf(), to.to_path_buf());
    let copying = tokio::task::spawn_blocking(move || {
        copy_folder(&state, &copies, Path::new(""), &mut files)?;
        let list = BackupList { version: VERSION, created: timestamp_now(), files };
        let bytes = serde_json::to_vec_pretty(&list).map_err(|error| error.to_string())?;
        let written = private::replace(&root.join(LIST), &bytes);
        written.map_err(|error| shown(&root.join(LIST), "cannot be written", &error))?;
        Ok(list.summary())
    });
    copying.await.map_err(|error| error.to_string())?
}

/// Copies the files of a folder and the folders in it.
fn copy_folder(state: &Path, copies: &Path, below: &Path, files: &mut Vec<CopiedFile>) -> Result<(), String> {
    if below.components().count() > MAX_DEPTH {
        return Err(format!("`{}` has more than {MAX_DEPTH} levels", state.join(below).display()));
    }
    let folder = state.join(below);
    let entries = fs::read_dir(&folder).map_err(|error| shown(&folder, "cannot be read", &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| shown(&folder, "cannot be read", &error))?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type().map_err(|error| shown(&entry.path(), "cannot be read", &error))?;
        if kind.is_dir() && path != Path::new(SOCKETS) {
            make_new_dir(&copies.join(&path))?;
            copy_folder(state, copies, &path, files)?;
        } else if kind.is_file() && is_state(&path) {
            files.extend(copy_file(state, copies, path)?);
            if files.len() > MAX_FILES {
                return Err(format!("`{}` has more than {MAX_FILES} files", state.display()));
            }
        }
    }
    Ok(())
}

/// Whether a file belongs to the state: not a lock, a temporary file, or the store, which is copied separately.
fn is_state(path: &Path) -> bool {
    let is_other = |extension| extension == "lock" || extension == "tmp";
    path != Path::new(STORE) && !path.extension().is_some_and(is_other)
}

/// Copies one file; `None`: it was removed meanwhile.
fn copy_file(state: &Path, copies: &Path, path: PathBuf) -> Result<Option<CopiedFile>, String> {
    let (from, to) = (state.join(&path), copies.join(&path));
    let Some(mut source) = private::open(&from)? else { return Ok(None) };
    let failed = |error: io::Error| shown(&from, "cannot be copied", &error);
    let mut target = create(&to).map_err(failed)?;
    let mut bytes = io::copy(&mut source, &mut target).map_err(failed)?;
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        bytes = cut_after_last_line(&to, bytes).map_err(failed)?;
        target.set_len(bytes).map_err(failed)?;
    }
    target.sync_all().map_err(failed)?;
    describe(copies, path).map(Some)
}

/// The length of a file up to its last line break, near its end.
fn cut_after_last_line(file: &Path, bytes: u64) -> io::Result<u64> {
    let from = bytes.saturating_sub(toolbay_core::audit::MAX_LINE as u64);
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let end = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    Ok(from + end as u64)
}

/// Restores a backup to a state folder that no server uses. The whole backup is checked and copied first; then one
/// rename puts it in place. The state folder from before stays beside it. Blocks.
///
/// # Errors
/// The backup is damaged or incomplete, or cannot be copied. The state folder stays as it is.
pub fn restore(from: &Path, state: &Path) -> Result<BackupSummary, String> {
    let list = BackupList::read(from)?;
    let copies = from.join(COPIES);
    for file in &list.files {
        file.check(&copies)?;
    }
    let parent = state.parent().ok_or_else(|| format!("`{}` has no parent", state.display()))?;
    private::make_dir(parent).or_else(|problem| if parent.is_dir() { Ok(()) } else { Err(problem) })?;
    let fresh = private::temporary_path(state);
    make_new_dir(&fresh)?;
    let placed = list.copy_to(&copies, &fresh).and_then(|()| put_in_place(&fresh, state));
    if placed.is_err() {
        drop(fs::remove_dir_all(&fresh));
    }
    Ok(BackupSummary { replaced: placed?, ..list.summary() })
}

/// Exchanges a new folder with the state folder. Returns the path of the old one, if there was one.
fn put_in_place(fresh: &Path, state: &Path) -> Result<Option<PathBuf>, String> {
    let failed = |error: io::Error| shown(state, "cannot be replaced", &error);
    if !state.exists() {
        return fs::rename(fresh, state).map(|()| None).map_err(failed);
    }
    renameat_with(CWD, fresh, CWD, state, RenameFlags::EXCHANGE).map_err(|error| failed(error.into()))?;
    let stamp: String = timestamp_now().chars().filter(char::is_ascii_alphanumeric).collect();
    let name = state.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let old = state.with_file_name(format!("{name}.replaced-{stamp}"));
    // From here on, the old state is at `fresh`. If it cannot be renamed, it stays there.
    Ok(Some(fs::rename(fresh, &old).map_or_else(|_| fresh.to_path_buf(), |()| old)))
}

impl BackupList {
    fn read(from: &Path) -> Result<Self, String> {
        let file = from.join(LIST);
        let bytes = private::read(&file, MAX_LIST)?;
        let bytes =
            bytes.ok_or_else(|| format!("`{}` is not a backup: it has no `{LIST}`", from.display()))?;
        let list: Self = serde_json::from_slice(&bytes)
            .map_err(|error| format!("the backup is damaged: `{}`: {error}", file.display()))?;
        private::check_version(list.version.into(), VERSION.into())
            .map_err(|problem| format!("`{}` {problem}", file.display()))?;
        Ok(list)
    }

    fn summary(&self) -> BackupSummary {
        let bytes = self.files.iter().map(|file| file.bytes).sum();
        BackupSummary { files: self.files.len(), bytes, replaced: None }
    }

    fn copy_to(&self, copies: &Path, fresh: &Path) -> Result<(), String> {
        for CopiedFile { path, sha256, .. } in &self.files {
            let to = fresh.join(path);
            let failed = |error: io::Error| shown(&to, "cannot be written", &error);
            if let Some(folder) = to.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
            }
            let mut source = private::open(&copies.join(path))?
                .ok_or_else(|| format!("the backup is damaged: `{}` is missing", path.display()))?;
            let mut target = create(&to).map_err(failed)?;
            io::copy(&mut source, &mut target).and_then(|_| target.sync_all()).map_err(failed)?;
            // The copies count, not the files that were checked before.
            if describe(fresh, path.clone())?.sha256 != *sha256 {
                return Err(format!("the backup changed while it was read: `{}`", path.display()));
            }
        }
        Ok(())
    }
}

impl CopiedFile {
    /// Compares a copy with the list.
    fn check(&self, copies: &Path) -> Result<(), String> {
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if self.path.as_os_str().is_empty() || !self.path.components().all(is_plain) {
            return Err(format!("the backup is damaged: `{}` is not a path in it", self.path.display()));
        }
        let found = describe(copies, self.path.clone())?;
        if (found.bytes, &found.sha256) != (self.bytes, &self.sha256) {
            return Err(format!("the backup is damaged: `{}` has another content", self.path.display()));
        }
        Ok(())
    }
}

/// The size and digest of a copy.
fn describe(copies: &Path, path: PathBuf) -> Result<CopiedFile, String> {
    let file = private::open(&copies.join(&path))?;
    let mut file = file.ok_or_else(|| format!("the backup is damaged: `{}` is missing", path.display()))?;
    let mut hash = Sha256::new();
    let bytes = io::copy(&mut file, &mut hash).map_err(|error| shown(&path, "cannot be read", &error))?;
    let sha256 = format!("{:x}", hash.finalize());
    Ok(CopiedFile { path, bytes, sha256 })
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn make_new_dir(path: &Path) -> Result<(), String> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => format!("`{}` already exists; choose another name", path.display()),
        _ => shown(path, "cannot be created", &error),
    })
}

fn shown(path: &Path, what: &str, error: &io::Error) -> String {
    format!("`{}` {what}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::*;

    /// A state folder, and a backup of it.
    async fn backup() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (state, to) = (dir.path().join("state"), dir.path().join("backup"));
        for (path, text) in [
            ("switches.json", "{}"),
            ("switches.lock", ""),
            (".12-34.tmp", "half"),
            ("audit.jsonl", "{\"a\":1}\n{\"b\":2}\n{\"c\""),
            ("outputs/s/1.json", "text"),
            ("servers/1.sock", ""),
        ] {
            let file = state.join(path);
            DirBuilder::new().recursive(true).mode(0o700).create(file.parent().unwrap()).unwrap();
            create(&file).unwrap().write_all(text.as_bytes()).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", state.join("link")).unwrap();
        let store = RedbStore::in_dir_with_wait(&state, Duration::from_secs(5));
        let summary = back_up(&state, &to, &store).await.unwrap();
        assert_eq!(summary, BackupSummary { files: 3, bytes: 22, replaced: None });
        (dir, state, to)
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[tokio::test]
    async fn a_backup_has_whole_files_and_is_restored_as_a_whole() {
        let (_dir, state, from) = backup().await;
        private::replace(&state.join("switches.json"), b"later").unwrap();
        let BackupSummary { files, replaced, .. } = restore(&from, &state).unwrap();
        let replaced = replaced.unwrap();
        assert_eq!((files, read(&replaced.join("switches.json")).as_str()), (3, "later"));
        assert_eq!(read(&state.join("switches.json")), "{}");
        assert_eq!(read(&state.join("audit.jsonl")), "{\"a\":1}\n{\"b\":2}\n");
        assert_eq!(read(&state.join("outputs/s/1.json")), "text");
        assert!(!state.join("link").exists() && !state.join("servers").exists());
        // To a machine without a state folder.
        let other = state.with_file_name("other");
        assert_eq!(restore(&from, &other).unwrap().replaced, None);
        assert_eq!(read(&other.join("switches.json")), "{}");
    }

    #[tokio::test]
    async fn an_existing_folder_is_not_overwritten() {
        let (_dir, state, to) = backup().await;
        let store = RedbStore::in_dir_with_wait(&state, Duration::from_secs(5));
        assert!(back_up(&state, &to, &store).await.unwrap_err().contains("already exists"));
        assert!(to.join(LIST).exists(), "and is unchanged");
        let inside = state.join("backup");
        assert!(back_up(&state, &inside, &store).await.unwrap_err().contains("inside of the state folder"));
        assert!(!inside.exists());
    }

    #[tokio::test]
    async fn a_damaged_backup_changes_nothing() {
        type Damage = fn(&Path);
        let list = |from: &Path, old: &str, new: &str| {
            let text = read(&from.join(LIST)).replace(old, new);
            private::replace(&from.join(LIST), text.as_bytes()).unwrap();
        };
        let damages: [(Damage, &str); 8] = [
            (|from| private::replace(&from.join("state/switches.json"), b"[]").unwrap(), "another content"),
            (|from| fs::remove_file(from.join("state/outputs/s/1.json")).unwrap(), "is missing"),
            (|from| fs::remove_file(from.join(LIST)).unwrap(), "is not a backup"),
            (|from| private::replace(&from.join(LIST), b"{\"version\":1").unwrap(), "is damaged"),
            (
                |from| {
                    let file = from.join("state/switches.json");
                    fs::remove_file(&file).unwrap();
                    std::os::unix::fs::symlink("/etc/passwd", file).unwrap();
                },
                "cannot be read",
            ),
            (|_| {}, "newer version"),
            (|_| {}, "is not a path"),
            (|_| {}, "is not a path"),
        ];
        for (at, (damage, reason)) in damages.into_iter().enumerate() {
            let (dir, state, from) = backup().await;
            damage(&from);
            match at {
                5 => list(&from, "\"version\": 1", "\"version\": 2"),
                6 => list(&from, "\"switches.json\"", "\"../switches.json\""),
                7 => list(&from, "\"switches.json\"", "\"/etc/passwd\""),
                _ => {}
            }
            let problem = restore(&from, &state).unwrap_err();
            assert!(problem.contains(reason), "{at}: {problem}");
            assert_eq!(read(&state.join("switches.json")), "{}", "{at}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "{at}: nothing is left behind");
        }
    }
}
