//! The files that tools create for sessions. The port and an implementation in memory.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::attachment::{Attachment, AttachmentError};

/// Keeps the files that tools create for sessions, so that their clients can read them later. A session is named by its
/// key ([`super::Session::key`]).
pub trait AttachmentStore: Send + Sync + fmt::Debug {
    /// Stores a file. The oldest files of the session make room for it.
    fn put<'a>(
        &'a self,
        session: &'a str,
        attachment: &'a Attachment,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), AttachmentError>>;

    /// The data of a file.
    fn get<'a>(&'a self, session: &'a str, id: &'a str) -> BoxFuture<'a, Result<Arc<[u8]>, AttachmentError>>;

    /// All files of a session, the oldest first.
    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<Attachment>>;

    /// Removes the files of a session that has ended. A store that several replicas share keeps them until they expire.
    fn remove_session(&self, session: &str);
}

/// Most files of one session in a store.
pub const MAX_SESSION_FILES: usize = 256;
/// Most bytes of the files of one session in a store.
pub const MAX_SESSION_BYTES: u64 = 64 << 20;
/// How long a store keeps a file.
pub const MAX_FILE_AGE: Duration = Duration::from_secs(24 * 3600);
/// Bytes that a file counts in addition to its data, so that the number of empty files is bounded.
pub const FILE_OVERHEAD: u64 = 1 << 10;

/// Most bytes of all sessions in memory.
const MAX_BYTES: u64 = 256 << 20;

/// The files of all sessions of a host, in memory. When all sessions together have too many bytes, the largest one drops its
/// oldest files first.
#[derive(Debug, Default)]
pub struct MemoryAttachmentStore(Mutex<HashMap<Arc<str>, AttachmentList>>);

/// The files of one session.
#[derive(Debug, Default)]
struct AttachmentList {
    bytes: u64,
    files: VecDeque<SessionFile>,
}

#[derive(Debug)]
struct SessionFile {
    metadata: Attachment,
    data: Arc<[u8]>,
    created_at: Instant,
}

impl SessionFile {
    fn weight(&self) -> u64 {
        self.metadata.size.saturating_add(FILE_OVERHEAD)
    }
}

impl AttachmentList {
    /// Drops the oldest file; returns `false` if there was none.
    fn drop_oldest(&mut self) -> bool {
        let removed = self.files.pop_front();
        self.bytes -= removed.as_ref().map_or(0, SessionFile::weight);
        removed.is_some()
    }
}

impl MemoryAttachmentStore {
    /// Locks the files of all sessions, and drops expired ones.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, AttachmentList>> {
        let mut all = self.0.lock();
        all.retain(|_, list| {
            while list.files.front().is_some_and(|file| file.created_at.elapsed() > MAX_FILE_AGE) {
                list.drop_oldest();
            }
            !list.files.is_empty()
        });
        all
    }

    fn store(&self, session: &str, metadata: Attachment, data: Vec<u8>) -> Result<(), AttachmentError> {
        let file = SessionFile { metadata, data: data.into(), created_at: Instant::now() };
        let weight = file.weight();
        if weight > MAX_SESSION_BYTES {
            return Err(AttachmentError::TooLarge(file.metadata.size));
        }
        let mut all = self.lock();
        if let Some(list) = all.get_mut(session) {
            while list.files.len() >= MAX_SESSION_FILES || list.bytes + weight > MAX_SESSION_BYTES {
                if !list.drop_oldest() {
                    break;
                }
            }
        }
        while all.values().map(|list| list.bytes).sum::<u64>() + weight > MAX_BYTES {
            let largest = all.values_mut().max_by_key(|list| list.bytes);
            if !largest.is_some_and(AttachmentList::drop_oldest) {
                break;
            }
        }
        let list = all.entry(session.into()).or_default();
        list.bytes += weight;
        list.files.push_back(file);
        Ok(())
    }

    fn data(&self, session: &str, id: &str) -> Option<Arc<[u8]>> {
        let all = self.lock();
        let file = all.get(session)?.files.iter().find(|file| file.metadata.id == id)?;
        Some(Arc::clone(&file.data))
    }
}

impl AttachmentStore for MemoryAttachmentStore {
    fn put<'a>(
        &'a self,
        session: &'a str,
        attachment: &'a Attachment,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), AttachmentError>> {
        Box::pin(std::future::ready(self.store(session, attachment.clone(), data)))
    }

    fn get<'a>(&'a self, session: &'a str, id: &'a str) -> BoxFuture<'a, Result<Arc<[u8]>, AttachmentError>> {
        Box::pin(std::future::ready(self.data(session, id).ok_or(AttachmentError::NotFound)))
    }

    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<Attachment>> {
        let all = self.lock();
        let files = all.get(session).into_iter().flat_map(|list| &list.files);
        Box::pin(std::future::ready(files.map(|file| file.metadata.clone()).collect()))
    }

    fn remove_session(&self, session: &str) {
        self.lock().remove(session);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Stores a file and returns its id.
    fn put(store: &MemoryAttachmentStore, session: &str, size: u64) -> Result<String, AttachmentError> {
        let count =
            store.lock().get(session).map_or(0, |list| list.files.back().map_or(0, |file| number(file) + 1));
        let file =
            Attachment { id: count.to_string(), name: "a".to_owned(), media_type: "a/b".to_owned(), size };
        let data = vec![7; usize::try_from(size).unwrap()];
        store.put(session, &file, data).now_or_never().unwrap().map(|()| file.id)
    }

    fn number(file: &SessionFile) -> u64 {
        file.metadata.id.parse().unwrap()
    }

    fn ids(store: &MemoryAttachmentStore, session: &str) -> Vec<String> {
        store.list(session).now_or_never().unwrap().into_iter().map(|file| file.id).collect()
    }

    #[test]
    fn a_session_is_bounded_and_drops_its_oldest_files() {
        let store = MemoryAttachmentStore::default();
        put(&store, "other", 10).unwrap();
        assert_eq!(
            put(&store, "one", MAX_SESSION_BYTES + 1),
            Err(AttachmentError::TooLarge(MAX_SESSION_BYTES + 1))
        );
        (0..MAX_SESSION_FILES + 3).for_each(|_| drop(put(&store, "one", 1).unwrap()));
        let kept = ids(&store, "one");
        assert_eq!((kept.len(), kept[0].as_str()), (MAX_SESSION_FILES, "3"));
        put(&store, "one", MAX_SESSION_BYTES - FILE_OVERHEAD).unwrap();
        assert_eq!(ids(&store, "one").len(), 1);
        assert_eq!(ids(&store, "other").len(), 1, "files of other sessions stay");
        store.remove_session("one");
        assert!(ids(&store, "one").is_empty() && !ids(&store, "other").is_empty());
    }

    #[test]
    fn all_sessions_are_bounded_and_the_largest_drops_files() {
        let store = MemoryAttachmentStore::default();
        put(&store, "0", 1).unwrap();
        for session in ["1", "2", "3", "4"] {
            put(&store, session, MAX_SESSION_BYTES / 2 - FILE_OVERHEAD).unwrap();
            put(&store, session, MAX_SESSION_BYTES / 2 - FILE_OVERHEAD).unwrap();
        }
        put(&store, "0", 1 << 20).unwrap();
        assert_eq!(ids(&store, "0").len(), 2);
        assert_eq!(["1", "2", "3", "4"].map(|session| ids(&store, session).len()).iter().sum::<usize>(), 7);
        let all = store.lock().values().map(|list| list.bytes).sum::<u64>();
        assert!(all <= MAX_BYTES, "{all}");
    }

    /// A client that chooses session names can create many sessions.
    #[test]
    fn many_sessions_with_empty_files_are_bounded_too() {
        let store = MemoryAttachmentStore::default();
        // Leaves space for only a few more files.
        let bytes = MAX_BYTES - 5 * FILE_OVERHEAD;
        let metadata = Attachment {
            id: "0".to_owned(),
            name: String::new(),
            media_type: String::new(),
            size: bytes - FILE_OVERHEAD,
        };
        let large = SessionFile { metadata, data: [].into(), created_at: Instant::now() };
        store.0.lock().insert("large".into(), AttachmentList { bytes, files: [large].into() });
        (0..20).for_each(|n| drop(put(&store, &n.to_string(), 0).unwrap()));
        assert!(!store.lock().contains_key("large"), "the largest session drops its files");
        assert_eq!(store.lock().len(), 20);
        (0..20).for_each(|n| store.remove_session(&n.to_string()));
        assert!(store.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn expired_files_are_removed() {
        let store = MemoryAttachmentStore::default();
        let one = put(&store, "s", 5).unwrap();
        tokio::time::advance(MAX_FILE_AGE / 2).await;
        let two = put(&store, "s", 6).unwrap();
        assert_eq!(store.get("s", &one).await.map(|data| data.len()), Ok(5));
        tokio::time::advance(MAX_FILE_AGE / 2 + Duration::from_secs(1)).await;
        assert_eq!(store.get("s", &one).await, Err(AttachmentError::NotFound));
        assert_eq!(ids(&store, "s"), [two]);
        tokio::time::advance(MAX_FILE_AGE).await;
        assert!(store.lock().is_empty(), "the session has no entry left");
    }
}
