//! The audit as lines of JSON in a file (`audit.jsonl`), that several processes may append to.
//!
//! A record is in the file, by one write, before the result of its call is delivered: who has seen a result finds its
//! record, also when the process was killed right after. A channel to a thread that writes would have to be waited for
//! just the same, and a hand-over costs more than the write, which goes to memory of the kernel. What a loss of power
//! may cost is the time between two syncs, which a thread does in the background.
//!
//! When the file is full its name is given on: `audit.jsonl.1` is the newest old one. Whoever writes looks whether the
//! name still means the file that is open, so a process follows when another one has done it; what it writes in the
//! millisecond until then goes to the newest old one.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use toolbay_core::audit::{AuditRecord, AuditSink, GrantRecord, Line};

use crate::consent::now;

/// How the files of an audit grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes after which a file is closed and a new one begun.
    pub max_bytes: u64,
    /// Files that are kept, the one that is written included; the oldest goes.
    pub files: u32,
}

impl Default for Rotation {
    fn default() -> Self {
        // Some 20 000 calls a file.
        Self { max_bytes: 16 << 20, files: 8 }
    }
}

/// Between two syncs: what a loss of power may cost.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How long it is not looked at again which file has the name.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How often a file is opened anew because another process gave its name on meanwhile.
const OPEN_TRIES: u32 = 16;
/// How long the end of the program waits for the last sync: a disk that hangs must not keep it.
const LAST_SYNC: Duration = Duration::from_secs(5);

/// Appends records to a file.
#[derive(Debug)]
pub struct FileAudit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    rotation: Rotation,
    state: Mutex<State>,
    /// Something is to be synced, the end has come, or the last sync is done.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    file: Arc<File>,
    /// When the name was looked at last, and how many bytes the file had then, or has since of this process.
    looked: Option<Instant>,
    bytes: u64,
    /// Files that were written and are not synced yet.
    unsynced: Vec<Arc<File>>,
    /// The last line has no end, because the disk was full.
    partial: bool,
    /// Records that could not be written since the last one that could, and in all.
    lost: u64,
    lost_in_all: u64,
    /// That records are lost is in the log; or that the disk does not sync.
    told: bool,
    closing: bool,
    synced: bool,
}

impl FileAudit {
    /// Opens a file with the default rotation, and makes it, for this user only, if it is not there.
    ///
    /// # Errors
    /// When it can not be opened or its folder is not there.
    pub fn open(path: impl Into<PathBuf>) -> std::io::Result<Self> {
        Self::with_rotation(path, Rotation::default())
    }

    /// Opens a file in the host's folder of state (`audit.jsonl`), and makes the folder if it is not there.
    ///
    /// # Errors
    /// When it can not be opened, or the folder can be written by others.
    pub fn in_state_dir(dir: &Path) -> std::io::Result<Self> {
        crate::private::make_dir(dir).map_err(std::io::Error::other)?;
        Self::open(Self::path_in(dir))
    }

    /// Where the audit is in the host's folder of state.
    #[must_use]
    pub fn path_in(dir: &Path) -> PathBuf {
        dir.join("audit.jsonl")
    }

    /// As [`FileAudit::open`], with another rotation.
    ///
    /// # Errors
    /// As [`FileAudit::open`].
    pub fn with_rotation(path: impl Into<PathBuf>, rotation: Rotation) -> std::io::Result<Self> {
        let path = path.into();
        let file = Arc::new(open(&path)?);
        let state = State {
            file,
            looked: None,
            bytes: 0,
            unsynced: Vec::new(),
            partial: false,
            lost: 0,
            lost_in_all: 0,
            told: false,
            closing: false,
            synced: false,
        };
        let shared = Arc::new(Shared { path, rotation, state: Mutex::new(state), changed: Condvar::new() });
        let syncing = Arc::clone(&shared);
        std::thread::Builder::new().name("toolbay-audit".to_owned()).spawn(move || syncing.keep_synced())?;
        Ok(Self { shared })
    }

    /// The files of an audit that are there, the oldest first.
    #[must_use]
    pub fn files(path: &Path) -> Vec<PathBuf> {
        // By the folder and not by counting: a process that was killed as it renamed leaves a number out.
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = |entry: fs::DirEntry| {
            entry.file_name().to_str()?.strip_prefix(&*name)?.strip_prefix('.')?.parse::<u32>().ok()
        };
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut numbers: Vec<u32> = entries.filter_map(number).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let old = numbers.into_iter().map(|number| rotated(path, number));
        old.chain(path.exists().then(|| path.to_path_buf())).filter(|file| file.exists()).collect()
    }

    /// Records that could not be written, since this was opened.
    #[must_use]
    pub fn records_lost(&self) -> u64 {
        self.shared.state().lost_in_all
    }

    /// Puts all that was written on the disk.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn flush(&self) -> std::io::Result<()> {
        let files = self.shared.state().take_unsynced();
        files.iter().try_for_each(|file| file.sync_data())
    }
}

impl AuditSink for FileAudit {
    fn record(&self, record: AuditRecord) {
        self.shared.append(&Line::Call(&record).to_json(&now()));
    }

    fn decided(&self, record: GrantRecord) {
        self.shared.append(&Line::Grant(&record).to_json(&now()));
    }
}

impl Drop for FileAudit {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closing = true;
        self.shared.changed.notify_all();
        drop(self.shared.changed.wait_timeout_while(state, LAST_SYNC, |state| !state.synced));
    }
}

impl State {
    fn take_unsynced(&mut self) -> Vec<Arc<File>> {
        std::mem::take(&mut self.unsynced)
    }

    /// Counts a record that was not written; tells it once, until one is written again.
    fn lose(&mut self, path: &Path, error: &std::io::Error) {
        self.lost += 1;
        self.lost_in_all += 1;
        self.looked = None;
        if !std::mem::replace(&mut self.told, true) {
            tracing::error!(file = %path.display(), %error, "records of the audit are lost");
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, line: &str) {
        let mut state = self.state();
        if let Err(error) = self.follow(&mut state) {
            // What goes to a file without a name is lost.
            state.lose(&self.path, &error);
            return;
        }
        let end = if state.partial { "\n" } else { "" };
        let gap = match state.lost {
            0 => String::new(),
            lost => Line::Gap { lost }.to_json(&now()),
        };
        let text = match (end, gap.as_str()) {
            ("", "") => Cow::Borrowed(line),
            _ => Cow::Owned(format!("{end}{gap}{line}")),
        };
        let written = write_once(&state.file, text.as_bytes());
        state.bytes = state.bytes.saturating_add(text.len() as u64);
        match written {
            Ok(written) => {
                let part = text.as_bytes().get(..written).unwrap_or_default();
                state.partial = part.last().map_or(state.partial, |last| *last != b'\n');
                if written >= end.len() + gap.len() {
                    state.lost = 0;
                }
                if written == text.len() {
                    state.told = false;
                } else {
                    state.lose(&self.path, &ErrorKind::StorageFull.into());
                }
            }
            Err(error) => state.lose(&self.path, &error),
        }
        if !state.unsynced.iter().any(|file| Arc::ptr_eq(file, &state.file)) {
            let file = Arc::clone(&state.file);
            state.unsynced.push(file);
            self.changed.notify_all();
        }
    }

    /// Whether the name may mean another file than the one that is open, or one that is full. Where there is one file
    /// only, its name is not given on but taken away: what is written after that is lost.
    fn is_to_be_looked_at(&self, state: &State) -> bool {
        let lately = state.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY);
        !lately || state.bytes >= self.rotation.max_bytes || self.rotation.files <= 1
    }

    /// Opens the file that has the name now, if it is another one, and gives the name on if the file is full.
    fn follow(&self, state: &mut State) -> std::io::Result<()> {
        if !self.is_to_be_looked_at(state) {
            return Ok(());
        }
        let full = |meta: &fs::Metadata| meta.is_file() && meta.len() >= self.rotation.max_bytes;
        let open_now = state.file.metadata()?;
        (state.looked, state.bytes) = (Some(Instant::now()), open_now.len());
        match fs::metadata(&self.path) {
            Ok(meta) if same_file(&meta, &open_now) && !full(&meta) => return Ok(()),
            Ok(meta) if same_file(&meta, &open_now) => {
                // One process gives the name on; who finds it at work goes on in the old file for this time.
                let Ok(Some(_lock)) = try_lock(&self.path) else { return Ok(()) };
                if fs::metadata(&self.path).is_ok_and(|meta| same_file(&meta, &open_now) && full(&meta))
                    && let Err(error) = rotate(&self.path, self.rotation.files)
                {
                    tracing::debug!(file = %self.path.display(), %error, "the audit goes on in a full file");
                    return Ok(());
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        state.file = Arc::new(open(&self.path)?);
        (state.looked, state.partial) = (None, false);
        Ok(())
    }

    /// Syncs what was written, not more often than [`SYNC_EVERY`], until the audit is dropped.
    fn keep_synced(&self) {
        let mut state = self.state();
        loop {
            let idle = |state: &mut State| state.unsynced.is_empty() && !state.closing;
            state = self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
            let waiting = self.changed.wait_timeout_while(state, SYNC_EVERY, |state| !state.closing);
            state = waiting.unwrap_or_else(PoisonError::into_inner).0;
            let (files, closing) = (state.take_unsynced(), state.closing);
            drop(state);
            for file in files {
                // What is no file on a disk (a terminal, a pipe) can not be synced and need not.
                if let Err(error) = file.sync_data()
                    && error.kind() != ErrorKind::InvalidInput
                {
                    tracing::error!(file = %self.path.display(), %error, "the audit is not on the disk");
                }
            }
            state = self.state();
            if closing {
                state.synced = true;
                self.changed.notify_all();
                return;
            }
        }
    }
}

/// `audit.jsonl.1`, …
fn rotated(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Gives each name on to the next older file, up to the first number that is free; without one the oldest goes. A
/// number is free also where a process was killed as it renamed: nothing is lost there, and the gap closes.
fn rotate(path: &Path, files: u32) -> std::io::Result<()> {
    let oldest = files.saturating_sub(1);
    if oldest == 0 {
        return fs::remove_file(path);
    }
    let free = (1..oldest).find(|number| !rotated(path, *number).exists()).unwrap_or(oldest);
    for number in (1..free).rev() {
        fs::rename(rotated(path, number), rotated(path, number + 1))?;
    }
    fs::rename(path, rotated(path, 1))
}

/// Opens a file to append to. A line without an end, left by a process that was killed as it wrote, is ended; should
/// that line be another process's that is writing just now, the end makes an empty line, which readers skip.
fn open(path: &Path) -> std::io::Result<File> {
    // A FIFO that nobody reads is an error and no wait.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let options = options.append(true).create(true).mode(0o600).custom_flags(flags);
    let mut file = options.open(path)?;
    // Another process may give the name on between any two steps: then the file that has it now is meant.
    for _ in 0..OPEN_TRIES {
        let meta = file.metadata()?;
        if !meta.is_file() || meta.len() == 0 {
            break;
        }
        match last_byte(path, &meta)? {
            Some(b'\n') => break,
            Some(_) => {
                file.write_all(b"\n")?;
                break;
            }
            None => file = options.open(path)?,
        }
    }
    Ok(file)
}

/// The last byte of the file that `open` was told of, or `None` if the name means another file by now, or none.
fn last_byte(path: &Path, open: &fs::Metadata) -> std::io::Result<Option<u8>> {
    let mut reader = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        reader => reader?,
    };
    if !same_file(&reader.metadata()?, open) {
        return Ok(None);
    }
    let mut last = [0];
    reader.seek(SeekFrom::End(-1))?;
    reader.read_exact(&mut last)?;
    Ok(last.first().copied())
}

fn same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The lock under which files are renamed; `None` if another process has it.
fn try_lock(path: &Path) -> std::io::Result<Option<File>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(PathBuf::from(name))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// One write, so that lines of several processes do not mix.
fn write_once(mut file: &File, bytes: &[u8]) -> std::io::Result<usize> {
    loop {
        match file.write(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use toolbay_core::audit::GrantEvent;
    use toolbay_core::consent::Authority;

    fn record(plugin: &str) -> GrantRecord {
        GrantRecord {
            event: GrantEvent::Loaded,
            plugin: plugin.to_owned(),
            version: None,
            digest: None,
            granted: Authority::default(),
            refused: BTreeMap::new(),
            held: vec![],
            by: None,
        }
    }

    /// The plugins of the records of all files, and how many lines are none.
    fn all(path: &Path) -> (Vec<String>, usize) {
        let text: String = FileAudit::files(path).iter().map(|f| fs::read_to_string(f).unwrap()).collect();
        let parsed = text.lines().filter(|l| !l.is_empty()).map(serde_json::from_str::<serde_json::Value>);
        let (good, bad): (Vec<_>, Vec<_>) = parsed.partition(Result::is_ok);
        (good.into_iter().map(|v| v.unwrap()["plugin"].as_str().unwrap().to_owned()).collect(), bad.len())
    }

    #[test]
    fn several_writers_rotate_one_audit_and_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let small = Rotation { max_bytes: 2000, files: 1000 };
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                // Each as if in a process of its own: it has its own open file.
                scope.spawn(move || {
                    let audit = FileAudit::with_rotation(path, small).unwrap();
                    for n in 0..200 {
                        audit.decided(record(&format!("{writer}-{n}")));
                    }
                    assert_eq!(audit.records_lost(), 0);
                });
            }
        });
        let (found, bad) = all(&path);
        let expect: BTreeSet<String> =
            (0..4).flat_map(|w| (0..200).map(move |n| format!("{w}-{n}"))).collect();
        assert_eq!((found.len(), bad), (800, 0));
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expect);
        assert!(FileAudit::files(&path).len() > 10);
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn only_so_many_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        for (files, left) in [(3, 3), (1, 1)] {
            let audit = FileAudit::with_rotation(&path, Rotation { max_bytes: 300, files }).unwrap();
            (0..50).for_each(|n| audit.decided(record(&n.to_string())));
            assert!(FileAudit::files(&path).len() <= left, "{:?}", FileAudit::files(&path));
            assert_eq!(all(&path).0.last().unwrap(), "49");
            (1..9).for_each(|n| drop(fs::remove_file(rotated(&path, n))));
        }
    }

    #[test]
    fn a_rotation_that_was_cut_off_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let line = |plugin: &str| Line::Grant(&record(plugin)).to_json("t");
        for (number, plugin) in [(5, "a"), (4, "b"), (2, "c")] {
            fs::write(rotated(&path, number), line(plugin)).unwrap();
        }
        fs::write(dir.path().join("audit.jsonl.x"), "no file of it").unwrap();
        assert_eq!(all(&path).0, ["a", "b", "c"], "also without the newest");
        let audit = FileAudit::with_rotation(&path, Rotation { max_bytes: 1, files: 6 }).unwrap();
        for plugin in ["d", "e", "f"] {
            audit.decided(record(plugin));
        }
        assert_eq!(all(&path).0, ["a", "b", "c", "d", "e", "f"]);
        audit.decided(record("g"));
        assert_eq!(all(&path).0, ["b", "c", "d", "e", "f", "g"], "now the oldest goes");
    }

    #[test]
    fn a_line_that_was_cut_off_is_ended_and_a_file_that_is_gone_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        fs::write(&path, "{\"kind\":\"ca").unwrap();
        let audit = FileAudit::open(&path).unwrap();
        audit.decided(record("a"));
        assert_eq!(all(&path), (vec!["a".to_owned()], 1));
        fs::remove_file(&path).unwrap();
        std::thread::sleep(LOOK_EVERY);
        audit.decided(record("b"));
        assert_eq!(all(&path), (vec!["b".to_owned()], 0));
        fs::remove_dir_all(dir.path()).unwrap();
        std::thread::sleep(LOOK_EVERY);
        audit.decided(record("c"));
        assert_eq!(audit.records_lost(), 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_counted_and_told_when_there_is_room_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let audit = FileAudit::open(&path).unwrap();
        (0..5).for_each(|n| audit.decided(record(&n.to_string())));
        assert_eq!(audit.records_lost(), 5);
        fs::remove_file(&path).unwrap();
        std::thread::sleep(LOOK_EVERY);
        audit.decided(record("again"));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains(r#""kind":"gap","lost":5"#) && lines[1].contains("again"), "{text}");
        assert_eq!((lines.len(), audit.records_lost()), (2, 5));
        drop(audit);
    }

    #[test]
    fn what_can_not_be_opened_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(FileAudit::open(dir.path()).is_err(), "a folder");
        assert!(FileAudit::open(dir.path().join("no/such/folder")).is_err());
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(FileAudit::open(fifo).is_err(), "a FIFO that nobody reads");
    }
}
