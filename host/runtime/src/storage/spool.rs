//! Large results in files: what a session was not given whole, it can read here, also after a restart.
//!
//! ```text
//! STATE/outputs/SHA-256 OF THE SESSION'S KEY/ID      one line of JSON that says where the text comes from, the text
//! ```
//!
//! Folders and files are for this user only and are not believed otherwise; no link is followed; a file is written
//! beside its place and renamed, and read only if its id is that of what is in it. Nothing is synced to the disk: a text
//! that a crash tears is one that is not there. Processes share the store; each keeps the bounds for all it finds.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::session::spool::{
    MAX_ALL_TEXTS, MAX_TEXTS, NotKept, Quota, Spool, SpoolId, Spooled, SpooledText,
};

use crate::engine::blocking::{HostThreads, Undone};
use crate::plugins::digest::sha256;
use crate::storage::private;

/// Longest first line of a file, in bytes: two names and a few words.
const MAX_HEADER: u64 = 4 << 10;
/// How often all sessions are gone through, at least while texts are put.
const SWEEP_PAUSE: Duration = Duration::from_secs(60);
/// After which part of a quota was written all sessions are gone through; this much is then free.
const SWEEP_PART: u64 = 8;
/// Age at which a file that was never finished is nobody's any more.
const TORN_AGE: Duration = Duration::from_secs(600);

/// A spool in a folder of state. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct FileSpool {
    store: Arc<Store>,
}

#[derive(Debug)]
struct Store {
    threads: HostThreads,
    root: PathBuf,
    quota: Quota,
    since: Mutex<Since>,
}

/// What was written since all sessions were gone through.
#[derive(Debug, Default)]
struct Since {
    swept: Option<Instant>,
    bytes: u64,
    texts: usize,
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    source: Arc<str>,
    tool: Arc<str>,
    untrusted: bool,
}

/// A file of the store.
struct Found {
    path: PathBuf,
    bytes: u64,
    written: SystemTime,
}

impl FileSpool {
    /// A spool in `outputs` below the folder of state. Nothing is made or read before it is needed.
    #[must_use]
    pub fn new(state: &Path, quota: Quota) -> Self {
        let root = state.join("outputs");
        let store = Store { threads: HostThreads::default(), root, quota, since: Mutex::default() };
        Self { store: Arc::new(store) }
    }

    /// Does work with the files: on threads that no guest can take, and for a bounded time.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, Undone> {
        let store = Arc::clone(&self.store);
        self.store.threads.run(move || work(&store)).await
    }
}

impl Spool for FileSpool {
    fn put<'a>(&'a self, session: &'a str, text: SpooledText) -> BoxFuture<'a, Result<SpoolId, NotKept>> {
        let session = session.to_owned();
        Box::pin(async move {
            let put = self.blocking(move |store| store.put(&session, &text)).await;
            put.unwrap_or_else(|undone| Err(NotKept::Failed(undone.to_string())))
        })
    }

    fn get<'a>(&'a self, session: &'a str, id: &'a SpoolId) -> BoxFuture<'a, Option<SpooledText>> {
        let (session, id) = (session.to_owned(), id.clone());
        Box::pin(async move { self.blocking(move |store| store.get(&session, &id)).await.ok().flatten() })
    }

    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<Spooled>> {
        let session = session.to_owned();
        Box::pin(async move { self.blocking(move |store| store.list(&session)).await.unwrap_or_default() })
    }
}

impl Store {
    fn folder(&self, session: &str) -> PathBuf {
        self.root.join(sha256(session.as_bytes()).as_str())
    }

    fn put(&self, session: &str, text: &SpooledText) -> Result<SpoolId, NotKept> {
        let most = self.quota.check(text)?;
        let (id, folder) = (SpoolId::of(text), self.folder(session));
        let header = Header {
            version: 1,
            source: Arc::clone(&text.source),
            tool: Arc::clone(&text.tool),
            untrusted: text.untrusted,
        };
        let header = serde_json::to_string(&header).map_err(|e| NotKept::Failed(e.to_string()))? + "\n";
        if header.len() as u64 > MAX_HEADER {
            return Err(NotKept::Failed("its tool's name is too long".to_owned()));
        }
        let mut since = self.since.lock();
        private::make_dir(&self.root).and_then(|()| private::make_dir(&folder)).map_err(NotKept::Failed)?;
        self.make_room(&mut since, &folder, most, text.weight());
        let parts = [header.as_bytes(), text.text.as_bytes()];
        let path = folder.join(id.as_str());
        // Another process may just have removed the folder, which was empty.
        let written = private::put(&path, &parts).or_else(|_| {
            private::make_dir(&folder).map_err(std::io::Error::other)?;
            private::put(&path, &parts)
        });
        written.map_err(|e| NotKept::Failed(format!("`{}` cannot be written: {e}", path.display())))?;
        (since.bytes, since.texts) = (since.bytes + text.weight(), since.texts + 1);
        Ok(id)
    }

    fn make_room(&self, since: &mut Since, folder: &Path, session_bytes: u64, weight: u64) {
        remove_oldest(found(folder), session_bytes.saturating_sub(weight), MAX_TEXTS - 1);
        let slack = (self.quota.bytes / SWEEP_PART).max(weight);
        let texts = MAX_ALL_TEXTS / 8;
        let fresh = since.swept.is_some_and(|swept| swept.elapsed() < SWEEP_PAUSE);
        if fresh && since.bytes + weight <= self.quota.bytes / SWEEP_PART && since.texts < texts {
            return;
        }
        let folders = subfolders(&self.root);
        let mut all = Vec::new();
        for folder in &folders {
            remove_torn(folder);
            let (old, kept) = found(folder).into_iter().partition(|file| self.is_old(file));
            remove_oldest(old, 0, 0);
            all.extend::<Vec<Found>>(kept);
        }
        remove_oldest(all, self.quota.bytes.saturating_sub(slack), MAX_ALL_TEXTS - texts);
        // Those that are empty go; the one that is written to next is made again.
        for folder in folders {
            fs::remove_dir(folder).ok();
        }
        *since = Since { swept: Some(Instant::now()), bytes: 0, texts: 0 };
    }

    fn is_old(&self, file: &Found) -> bool {
        file.written.elapsed().is_ok_and(|age| age > self.quota.age)
    }

    fn get(&self, session: &str, id: &SpoolId) -> Option<SpooledText> {
        let folder = self.folder(session);
        let path = folder.join(id.as_str());
        // Nothing is kept for most sessions.
        let written = fs::symlink_metadata(&path).ok()?.modified().ok()?;
        let read = || {
            private::check_dir(&self.root)?;
            private::check_dir(&folder)?;
            let bytes = private::read(&path, self.quota.session_bytes.saturating_add(MAX_HEADER))?;
            let text = String::from_utf8(bytes.unwrap_or_default()).map_err(|e| e.to_string())?;
            let (header, text) = text.split_once('\n').ok_or("it has no first line")?;
            let header: Header = serde_json::from_str(header).map_err(|e| e.to_string())?;
            let Header { source, tool, untrusted, .. } = header;
            let text = SpooledText { text: text.into(), source, tool, untrusted };
            if SpoolId::of(&text) == *id {
                Ok(text)
            } else {
                Err("its id is not that of its content".to_owned())
            }
        };
        if self.is_old(&Found { path: path.clone(), bytes: 0, written }) {
            return None;
        }
        let text: Result<SpooledText, String> = read();
        text.inspect_err(
            |problem| tracing::warn!(file = %path.display(), %problem, "a kept result is not used"),
        )
        .ok()
    }

    fn list(&self, session: &str) -> Vec<Spooled> {
        let mut files = found(&self.folder(session));
        files.retain(|file| !self.is_old(file));
        files.sort_by_key(|file| file.written);
        files.into_iter().filter_map(|file| listed(&file)).collect()
    }
}

/// What the first line of a file says.
fn listed(file: &Found) -> Option<Spooled> {
    let id = SpoolId::parse(file.path.file_name()?.to_str()?)?;
    let mut header = String::new();
    let opened = private::open(&file.path).ok()??;
    let read = BufReader::new(opened.take(MAX_HEADER)).read_line(&mut header).ok()?;
    let Header { tool, .. } = serde_json::from_str(&header).ok()?;
    Some(Spooled { id, tool, bytes: file.bytes.saturating_sub(read as u64) })
}

/// The texts in a folder of a session.
fn found(folder: &Path) -> Vec<Found> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        SpoolId::parse(entry.file_name().to_str()?)?;
        let meta = entry.metadata().ok()?;
        Some(Found { path: entry.path(), bytes: meta.len(), written: meta.modified().ok()? })
    };
    entries.filter_map(file).collect()
}

/// The folders of all sessions; a link is none.
fn subfolders(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let folder = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        entry.file_type().ok()?.is_dir().then(|| entry.path())
    };
    entries.filter_map(folder).collect()
}

/// Removes the oldest until what is left has at most so many bytes and texts.
fn remove_oldest(mut files: Vec<Found>, bytes: u64, texts: usize) {
    files.sort_by_key(|file| file.written);
    let (mut left, mut count) = (files.iter().map(|file| file.bytes).sum::<u64>(), files.len());
    for file in files {
        if left <= bytes && count <= texts {
            return;
        }
        if let Err(error) = fs::remove_file(&file.path) {
            tracing::debug!(file = %file.path.display(), %error, "a kept result could not be removed");
        }
        (left, count) = (left - file.bytes, count - 1);
    }
}

/// Removes what was being written when its process ended.
fn remove_torn(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let torn = entry.path().extension().is_some_and(|extension| extension == "tmp");
        let old = entry.metadata().and_then(|meta| meta.modified());
        if torn && old.is_ok_and(|written| written.elapsed().is_ok_and(|age| age > TORN_AGE)) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

#[cfg(test)]
#[path = "spool_tests.rs"]
mod tests;
