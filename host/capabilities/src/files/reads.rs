//! The file versions that sessions have read, for the stale-write guard.
//!
//! A file is identified by its path with all links resolved: a read through a link guards the target, and a replaced
//! file is the same file at another version. A call's own reads take precedence over its session's: when two calls of
//! a session read the same version and both write, the second write is refused although the session knows of the
//! first.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of sessions. When it is reached, the least recently used half is forgotten.
const MAX_SESSIONS: usize = 256;
/// Maximum number of files of one session, with the same eviction. A write to a forgotten file is not guarded.
const MAX_FILES: usize = 2048;

/// A map that evicts the least recently used entries. Keys and versions are stored as hashes with a key of this
/// process: memory is bounded whatever their length, and a guest cannot choose colliding ones.
#[derive(Debug)]
struct RecentMap<V> {
    entries: HashMap<u64, (u64, V)>,
    clock: u64,
    capacity: usize,
}

impl<V> RecentMap<V> {
    fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), clock: 0, capacity: max }
    }

    /// Returns the value of a key, inserting it if absent, and marks it as most recently used.
    fn touch(&mut self, key: u64, make: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&key) {
            let mut times: Vec<u64> = self.entries.values().map(|(time, _)| *time).collect();
            let middle = times.len() / 2;
            let oldest_kept = *times.select_nth_unstable(middle).1;
            self.entries.retain(|_, (time, _)| *time >= oldest_kept);
        }
        let thing = self.entries.entry(key).or_insert_with(|| (0, make()));
        thing.0 = self.clock;
        &mut thing.1
    }

    fn get(&self, key: u64) -> Option<&V> {
        self.entries.get(&key).map(|(_, thing)| thing)
    }
}

type Versions = RecentMap<u64>;

/// The reads of all sessions of a host.
#[derive(Debug)]
pub struct ReadLog {
    hash: RandomState,
    sessions: Mutex<RecentMap<Versions>>,
}

impl Default for ReadLog {
    fn default() -> Self {
        Self { hash: RandomState::new(), sessions: Mutex::new(RecentMap::new(MAX_SESSIONS)) }
    }
}

/// The reads of one call, on top of those of its session.
#[derive(Debug, Clone)]
pub(crate) struct ReadTracker {
    log: Arc<ReadLog>,
    /// `None`: a call without a session remembers only its own reads.
    session: Option<u64>,
    call_reads: Arc<Mutex<Versions>>,
    /// Whether the caller does not see what the tool reads.
    pub(super) internal_reads: bool,
}

impl ReadTracker {
    pub(crate) fn new(log: &Arc<ReadLog>, session: Option<&str>) -> Self {
        let session = session.map(|session| log.hash.hash_one(session));
        let call_reads = Arc::new(Mutex::new(RecentMap::new(MAX_FILES)));
        Self { log: Arc::clone(log), session, call_reads, internal_reads: false }
    }

    /// The reads of a tool whose caller does not see what it reads.
    pub(crate) fn with_internal_reads(self, internal_reads: bool) -> Self {
        Self { internal_reads, ..self }
    }

    /// Whether `version` (`None`: the file does not exist) is the version read last, or the file was never read.
    pub(crate) fn is_fresh(&self, path: &Path, version: Option<&str>) -> bool {
        let key = self.log.hash.hash_one(path);
        let version = self.version(version);
        let own = self.call_reads.lock().get(key).copied();
        if own.is_some_and(|own| own != version) {
            return false;
        }
        if own.is_some() && !self.internal_reads {
            return true;
        }
        let sessions = self.log.sessions.lock();
        let seen = self.session.and_then(|session| sessions.get(session)?.get(key).copied());
        seen.is_none_or(|seen| seen == version)
    }

    /// Records the version that the tool read.
    pub(crate) fn record_read(&self, path: &Path, version: &str) {
        self.store(path, Some(version), !self.internal_reads);
    }

    /// Records the version that the tool wrote; `None` records that it removed the file.
    pub(crate) fn record_write(&self, path: &Path, version: Option<&str>) {
        self.store(path, version, true);
    }

    fn store(&self, path: &Path, version: Option<&str>, for_session: bool) {
        let (key, version) = (self.log.hash.hash_one(path), self.version(version));
        *self.call_reads.lock().touch(key, || version) = version;
        if let (true, Some(session)) = (for_session, self.session) {
            let mut sessions = self.log.sessions.lock();
            *sessions.touch(session, || RecentMap::new(MAX_FILES)).touch(key, || version) = version;
        }
    }

    fn version(&self, version: Option<&str>) -> u64 {
        self.log.hash.hash_one(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers() -> (Arc<ReadLog>, impl Fn(Option<&str>) -> ReadTracker) {
        let log = Arc::new(ReadLog::default());
        (Arc::clone(&log), move |session| ReadTracker::new(&log, session))
    }

    #[test]
    fn sessions_share_nothing() {
        let (_, reader) = readers();
        let path = Path::new("/x");
        reader(Some("a")).record_read(path, "1");
        reader(None).record_read(path, "9");
        assert!(!reader(Some("a")).is_fresh(path, Some("2")));
        assert!(!reader(Some("a")).is_fresh(path, None), "the file was removed");
        assert!(reader(Some("a")).is_fresh(path, Some("1")));
        assert!(reader(Some("b")).is_fresh(path, Some("2")) && reader(None).is_fresh(path, Some("2")));
        reader(Some("a")).record_write(path, None);
        assert!(!reader(Some("a")).is_fresh(path, Some("1")), "another writer created it again");
    }

    #[test]
    fn a_call_knows_what_it_read_itself() {
        let (_, reader) = readers();
        let path = Path::new("/x");
        let (one, two) = (reader(Some("a")), reader(Some("a")));
        one.record_read(path, "1");
        two.record_read(path, "1");
        two.record_read(path, "2");
        assert!(!one.is_fresh(path, Some("2")), "the other call wrote in between");
        assert!(two.is_fresh(path, Some("2")) && reader(Some("a")).is_fresh(path, Some("2")));
    }

    #[test]
    fn an_internal_read_does_not_make_the_session_know_a_version() {
        let (_, reader) = readers();
        let path = Path::new("/x");
        reader(Some("a")).record_read(path, "1");
        let patch = reader(Some("a")).with_internal_reads(true);
        patch.record_read(path, "2");
        assert!(!patch.is_fresh(path, Some("2")), "the session has seen 1 only");
        assert!(!reader(Some("a")).is_fresh(path, Some("2")));
        let patch = reader(Some("a")).with_internal_reads(true);
        patch.record_read(path, "1");
        assert!(patch.is_fresh(path, Some("1")) && !patch.is_fresh(path, Some("2")));
        patch.record_write(path, Some("2"));
        assert!(patch.is_fresh(path, Some("2")) && reader(Some("a")).is_fresh(path, Some("2")));
        let unseen = reader(Some("b")).with_internal_reads(true);
        unseen.record_read(path, "2");
        assert!(unseen.is_fresh(path, Some("2")) && !unseen.is_fresh(path, Some("3")));
    }

    #[test]
    fn memory_is_bounded_for_each_session_and_for_all() {
        let (log, reader) = readers();
        let flood = reader(Some("flood"));
        let quiet = reader(Some("quiet"));
        quiet.record_read(Path::new("/kept"), "1");
        for n in 0..3 * MAX_FILES {
            flood.record_read(Path::new(&format!("/{n}")), "2");
        }
        assert!(
            !reader(Some("quiet")).is_fresh(Path::new("/kept"), Some("3")),
            "other sessions keep their entries"
        );
        assert!(!reader(Some("flood")).is_fresh(Path::new(&format!("/{}", 3 * MAX_FILES - 1)), Some("3")));
        let count = |log: &ReadLog| {
            let sessions = log.sessions.lock();
            (sessions.entries.len(), sessions.entries.values().map(|(_, s)| s.entries.len()).max().unwrap())
        };
        assert!(count(&log).1 <= MAX_FILES);
        for n in 0..3 * MAX_SESSIONS {
            reader(Some(&n.to_string())).record_read(Path::new("/x"), "1");
        }
        assert!(count(&log).0 <= MAX_SESSIONS);
        assert!(reader(Some("quiet")).is_fresh(Path::new("/kept"), Some("3")), "the oldest are forgotten");
    }
}
