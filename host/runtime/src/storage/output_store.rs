//! Saved output in files. A session can read output that was cut from its results here, also after a restart.
//!
//! ```text
//! STATE/outputs/SHA-256 OF THE SESSION'S KEY/ID      one line of JSON with the origin of the text, then the text
//! ```
//!
//! Folders and files belong to this user only; others are not trusted, and links are not followed. A file is written
//! under a temporary name and renamed. Its id is the hash of its content and is verified on read. Nothing is synced, so
//! a crash of the system can lose a file. Processes share the store, and each applies the quotas to everything it
//! finds.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::session::output_store::{
    MAX_ALL_TEXTS, MAX_TEXTS, OutputId, OutputQuota, OutputStore, SaveError, SavedOutput, SavedText,
};
use toolbay_sandbox::blocking::{BlockingError, HostThreads};
use toolbay_state::digest::Digest;
use toolbay_state::private;

/// Maximum length of a file's first line, in bytes: two names and a few flags.
const MAX_HEADER: u64 = 4 << 10;
/// Maximum time between two sweeps of all sessions, while outputs are saved.
const SWEEP_PAUSE: Duration = Duration::from_secs(60);
/// A sweep starts after this fraction of the quota was written, and frees the same amount.
const SWEEP_FRACTION: u64 = 8;
/// Age after which a temporary file counts as abandoned.
const PARTIAL_FILE_AGE: Duration = Duration::from_secs(600);

/// An output store in the state folder. Cheap to clone; all clones share one store.
#[derive(Debug, Clone)]
pub struct FileOutputStore {
    store: Arc<OutputFolder>,
}

#[derive(Debug)]
struct OutputFolder {
    threads: HostThreads,
    root: PathBuf,
    quota: OutputQuota,
    since: Mutex<SweepState>,
}

/// What was written since the last sweep.
#[derive(Debug, Default)]
struct SweepState {
    swept: Option<Instant>,
    bytes: u64,
    texts: usize,
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct OutputHeader {
    version: u32,
    source: Arc<str>,
    tool: Arc<str>,
    untrusted: bool,
}

/// A file in the store.
struct OutputFile {
    path: PathBuf,
    bytes: u64,
    written: SystemTime,
}

impl FileOutputStore {
    /// Creates a store in `outputs` below the state folder. Touches no file until it is used.
    #[must_use]
    pub fn new(state: &Path, quota: OutputQuota) -> Self {
        let root = state.join("outputs");
        let store = OutputFolder { threads: HostThreads::default(), root, quota, since: Mutex::default() };
        Self { store: Arc::new(store) }
    }

    /// Runs file work on the host's threads, which guests cannot block, and with a deadline.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&OutputFolder) -> T + Send + 'static,
    ) -> Result<T, BlockingError> {
        let store = Arc::clone(&self.store);
        self.store.threads.run(move || work(&store)).await
    }
}

impl OutputStore for FileOutputStore {
    fn put<'a>(&'a self, session: &'a str, text: SavedText) -> BoxFuture<'a, Result<OutputId, SaveError>> {
        let session = session.to_owned();
        Box::pin(async move {
            let put = self.run(move |store| store.put(&session, &text)).await;
            put.unwrap_or_else(|error| Err(SaveError::Failed(error.to_string())))
        })
    }

    fn get<'a>(&'a self, session: &'a str, id: &'a OutputId) -> BoxFuture<'a, Option<SavedText>> {
        let (session, id) = (session.to_owned(), id.clone());
        Box::pin(async move { self.run(move |store| store.get(&session, &id)).await.ok().flatten() })
    }

    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<SavedOutput>> {
        let session = session.to_owned();
        Box::pin(async move { self.run(move |store| store.list(&session)).await.unwrap_or_default() })
    }
}

impl OutputFolder {
    fn folder(&self, session: &str) -> PathBuf {
        self.root.join(Digest::of(session.as_bytes()).hex())
    }

    fn put(&self, session: &str, text: &SavedText) -> Result<OutputId, SaveError> {
        let max = self.quota.check(text)?;
        let (id, folder) = (OutputId::from_text(text), self.folder(session));
        let header = OutputHeader {
            version: 1,
            source: Arc::clone(&text.source),
            tool: Arc::clone(&text.tool),
            untrusted: text.untrusted,
        };
        let header = serde_json::to_string(&header).map_err(|e| SaveError::Failed(e.to_string()))? + "\n";
        if header.len() as u64 > MAX_HEADER {
            return Err(SaveError::Failed("its tool name is too long".to_owned()));
        }
        let mut since = self.since.lock();
        private::make_dir(&self.root).and_then(|()| private::make_dir(&folder)).map_err(SaveError::Failed)?;
        self.make_room(&mut since, &folder, max, text.weight());
        let parts = [header.as_bytes(), text.text.as_bytes()];
        let path = folder.join(id.as_str());
        // Another process may have removed the empty folder in between.
        let written = private::replace_unsynced(&path, &parts).or_else(|_| {
            private::make_dir(&folder).map_err(std::io::Error::other)?;
            private::replace_unsynced(&path, &parts)
        });
        written.map_err(|e| SaveError::Failed(format!("`{}` cannot be written: {e}", path.display())))?;
        (since.bytes, since.texts) = (since.bytes + text.weight(), since.texts + 1);
        Ok(id)
    }

    fn make_room(&self, since: &mut SweepState, folder: &Path, session_bytes: u64, weight: u64) {
        remove_oldest(output_files(folder), session_bytes.saturating_sub(weight), MAX_TEXTS - 1);
        let slack = (self.quota.bytes / SWEEP_FRACTION).max(weight);
        let texts = MAX_ALL_TEXTS / 8;
        let fresh = since.swept.is_some_and(|swept| swept.elapsed() < SWEEP_PAUSE);
        if fresh && since.bytes + weight <= self.quota.bytes / SWEEP_FRACTION && since.texts < texts {
            return;
        }
        let folders = subfolders(&self.root);
        let mut all = Vec::new();
        for folder in &folders {
            remove_partial(folder);
            let (old, kept) = output_files(folder).into_iter().partition(|file| self.is_expired(file));
            remove_oldest(old, 0, 0);
            all.extend::<Vec<OutputFile>>(kept);
        }
        remove_oldest(all, self.quota.bytes.saturating_sub(slack), MAX_ALL_TEXTS - texts);
        // Removes empty folders. The folder of the next write is created again.
        for folder in folders {
            fs::remove_dir(folder).ok();
        }
        *since = SweepState { swept: Some(Instant::now()), bytes: 0, texts: 0 };
    }

    fn is_expired(&self, file: &OutputFile) -> bool {
        file.written.elapsed().is_ok_and(|age| age > self.quota.age)
    }

    fn get(&self, session: &str, id: &OutputId) -> Option<SavedText> {
        let folder = self.folder(session);
        let path = folder.join(id.as_str());
        // Most sessions have no saved output.
        let written = fs::symlink_metadata(&path).ok()?.modified().ok()?;
        let read = || {
            private::check_dir(&self.root)?;
            private::check_dir(&folder)?;
            let bytes = private::read(&path, self.quota.session_bytes.saturating_add(MAX_HEADER))?;
            let text = String::from_utf8(bytes.unwrap_or_default()).map_err(|e| e.to_string())?;
            let (header, text) = text.split_once('\n').ok_or("it has no first line")?;
            let header: OutputHeader = serde_json::from_str(header).map_err(|e| e.to_string())?;
            let OutputHeader { source, tool, untrusted, .. } = header;
            let text = SavedText { text: text.into(), source, tool, untrusted };
            if OutputId::from_text(&text) == *id {
                Ok(text)
            } else {
                Err("its id does not match its content".to_owned())
            }
        };
        if self.is_expired(&OutputFile { path: path.clone(), bytes: 0, written }) {
            return None;
        }
        let text: Result<SavedText, String> = read();
        text.inspect_err(
            |problem| tracing::warn!(file = %path.display(), %problem, "a saved output is not used"),
        )
        .ok()
    }

    fn list(&self, session: &str) -> Vec<SavedOutput> {
        let mut files = output_files(&self.folder(session));
        files.retain(|file| !self.is_expired(file));
        files.sort_by_key(|file| file.written);
        files.into_iter().filter_map(|file| saved_output(&file)).collect()
    }
}

/// Reads the first line of a file.
fn saved_output(file: &OutputFile) -> Option<SavedOutput> {
    let id = OutputId::parse(file.path.file_name()?.to_str()?)?;
    let mut header = String::new();
    let opened = private::open(&file.path).ok()??;
    let read = BufReader::new(opened.take(MAX_HEADER)).read_line(&mut header).ok()?;
    let OutputHeader { tool, .. } = serde_json::from_str(&header).ok()?;
    Some(SavedOutput { id, tool, bytes: file.bytes.saturating_sub(read as u64) })
}

/// The outputs in the folder of a session.
fn output_files(folder: &Path) -> Vec<OutputFile> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        OutputId::parse(entry.file_name().to_str()?)?;
        let meta = entry.metadata().ok()?;
        Some(OutputFile { path: entry.path(), bytes: meta.len(), written: meta.modified().ok()? })
    };
    entries.filter_map(file).collect()
}

/// The folders of all sessions, without links.
fn subfolders(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let folder = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        entry.file_type().ok()?.is_dir().then(|| entry.path())
    };
    entries.filter_map(folder).collect()
}

/// Removes the oldest files until at most `bytes` bytes and `texts` files are left.
fn remove_oldest(mut files: Vec<OutputFile>, bytes: u64, texts: usize) {
    files.sort_by_key(|file| file.written);
    let (mut left, mut count) = (files.iter().map(|file| file.bytes).sum::<u64>(), files.len());
    for file in files {
        if left <= bytes && count <= texts {
            return;
        }
        if let Err(error) = fs::remove_file(&file.path) {
            tracing::debug!(file = %file.path.display(), %error, "a saved output could not be removed");
        }
        (left, count) = (left - file.bytes, count - 1);
    }
}

/// Removes temporary files of processes that ended while they wrote.
fn remove_partial(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let torn = entry.path().extension().is_some_and(|extension| extension == "tmp");
        let old = entry.metadata().and_then(|meta| meta.modified());
        if torn && old.is_ok_and(|written| written.elapsed().is_ok_and(|age| age > PARTIAL_FILE_AGE)) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

#[cfg(test)]
#[path = "output_store_tests.rs"]
mod tests;
