//! Which version of a file a session saw last: the memory of the stale-write guard.
//!
//! A file is known by its path behind all links, so that a read through a link guards what it led to, and a file that
//! was replaced is the same file at another version. A call first knows what it read itself: of two calls of one
//! session that read the same version and both write, the second is refused, although the session saw the first one's
//! write.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

/// Most sessions that are remembered; the ones that read or wrote longest ago are forgotten, half of them at once.
const MAX_SESSIONS: usize = 256;
/// Most files that are remembered of one session, likewise. A write to a file that is not remembered is not guarded.
const MAX_FILES: usize = 2048;

/// Things by the time they were used last. Paths and versions are kept as hashes under a key of this process: the
/// memory is bounded whatever their length, and nobody can choose two that collide.
#[derive(Debug)]
struct Recent<V> {
    things: HashMap<u64, (u64, V)>,
    clock: u64,
    most: usize,
}

impl<V> Recent<V> {
    fn new(most: usize) -> Self {
        Self { things: HashMap::new(), clock: 0, most }
    }

    /// The thing under a key, made if it is not there; it is now the latest.
    fn touch(&mut self, key: u64, make: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        if self.things.len() >= self.most && !self.things.contains_key(&key) {
            let mut times: Vec<u64> = self.things.values().map(|(time, _)| *time).collect();
            let middle = times.len() / 2;
            let oldest_kept = *times.select_nth_unstable(middle).1;
            self.things.retain(|_, (time, _)| *time >= oldest_kept);
        }
        let thing = self.things.entry(key).or_insert_with(|| (0, make()));
        thing.0 = self.clock;
        &mut thing.1
    }

    fn get(&self, key: u64) -> Option<&V> {
        self.things.get(&key).map(|(_, thing)| thing)
    }
}

type Versions = Recent<u64>;

/// What all sessions of a host have read.
#[derive(Debug)]
pub(crate) struct ReadLog {
    hash: RandomState,
    sessions: Mutex<Recent<Versions>>,
}

impl Default for ReadLog {
    fn default() -> Self {
        Self { hash: RandomState::new(), sessions: Mutex::new(Recent::new(MAX_SESSIONS)) }
    }
}

/// The log from the side of one call.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    log: Arc<ReadLog>,
    /// `None`: a call without a session remembers by itself only.
    session: Option<u64>,
    own: Arc<Mutex<Versions>>,
}

impl Reader {
    pub(crate) fn new(log: &Arc<ReadLog>, session: Option<&str>) -> Self {
        let session = session.map(|session| log.hash.hash_one(session));
        Self { log: Arc::clone(log), session, own: Arc::new(Mutex::new(Recent::new(MAX_FILES))) }
    }

    /// Whether `version` (`None`: there is no file) is the one that was seen last, or none was.
    pub(crate) fn is_fresh(&self, path: &Path, version: Option<&str>) -> bool {
        let key = self.log.hash.hash_one(path);
        let own = self.own.lock().get(key).copied();
        let seen = own.or_else(|| {
            let sessions = self.log.sessions.lock();
            sessions.get(self.session?)?.get(key).copied()
        });
        seen.is_none_or(|seen| seen == self.version(version))
    }

    /// Remembers a version; `None`: that there is no file.
    pub(crate) fn saw(&self, path: &Path, version: Option<&str>) {
        let (key, version) = (self.log.hash.hash_one(path), self.version(version));
        *self.own.lock().touch(key, || version) = version;
        if let Some(session) = self.session {
            let mut sessions = self.log.sessions.lock();
            *sessions.touch(session, || Recent::new(MAX_FILES)).touch(key, || version) = version;
        }
    }

    fn version(&self, version: Option<&str>) -> u64 {
        self.log.hash.hash_one(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers() -> (Arc<ReadLog>, impl Fn(Option<&str>) -> Reader) {
        let log = Arc::new(ReadLog::default());
        (Arc::clone(&log), move |session| Reader::new(&log, session))
    }

    #[test]
    fn sessions_share_nothing() {
        let (_, reader) = readers();
        let path = Path::new("/x");
        reader(Some("a")).saw(path, Some("1"));
        reader(None).saw(path, Some("9"));
        assert!(!reader(Some("a")).is_fresh(path, Some("2")));
        assert!(!reader(Some("a")).is_fresh(path, None), "it is gone");
        assert!(reader(Some("a")).is_fresh(path, Some("1")));
        assert!(reader(Some("b")).is_fresh(path, Some("2")) && reader(None).is_fresh(path, Some("2")));
        reader(Some("a")).saw(path, None);
        assert!(!reader(Some("a")).is_fresh(path, Some("1")), "it was made again by somebody else");
    }

    #[test]
    fn a_call_knows_what_it_read_itself() {
        let (_, reader) = readers();
        let path = Path::new("/x");
        let (one, two) = (reader(Some("a")), reader(Some("a")));
        one.saw(path, Some("1"));
        two.saw(path, Some("1"));
        two.saw(path, Some("2"));
        assert!(!one.is_fresh(path, Some("2")), "the other call wrote in between");
        assert!(two.is_fresh(path, Some("2")) && reader(Some("a")).is_fresh(path, Some("2")));
    }

    #[test]
    fn memory_is_bounded_for_each_session_and_for_all() {
        let (log, reader) = readers();
        let flood = reader(Some("flood"));
        let quiet = reader(Some("quiet"));
        quiet.saw(Path::new("/kept"), Some("1"));
        for n in 0..3 * MAX_FILES {
            flood.saw(Path::new(&format!("/{n}")), Some("2"));
        }
        assert!(!reader(Some("quiet")).is_fresh(Path::new("/kept"), Some("3")), "no other session pays");
        assert!(!reader(Some("flood")).is_fresh(Path::new(&format!("/{}", 3 * MAX_FILES - 1)), Some("3")));
        let count = |log: &ReadLog| {
            let sessions = log.sessions.lock();
            (sessions.things.len(), sessions.things.values().map(|(_, s)| s.things.len()).max().unwrap())
        };
        assert!(count(&log).1 <= MAX_FILES);
        for n in 0..3 * MAX_SESSIONS {
            reader(Some(&n.to_string())).saw(Path::new("/x"), Some("1"));
        }
        assert!(count(&log).0 <= MAX_SESSIONS);
        assert!(reader(Some("quiet")).is_fresh(Path::new("/kept"), Some("3")), "the oldest are forgotten");
    }
}
