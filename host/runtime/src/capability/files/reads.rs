//! Which version of a file a session saw last: the memory of the stale-write guard.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Most files that are remembered for all sessions together; the oldest are forgotten first, and a write to a file
/// that is not remembered is not guarded.
const MOST: usize = 10_000;

type Key = (Arc<str>, PathBuf);

/// What all sessions of a host have read.
#[derive(Debug, Default)]
pub(crate) struct ReadLog(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    versions: HashMap<Key, String>,
    order: VecDeque<Key>,
}

/// The log from the side of one session; a call without a session has one of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reader {
    log: Arc<ReadLog>,
    session: Option<Arc<str>>,
}

impl Reader {
    pub(crate) fn of(log: &Arc<ReadLog>, session: Option<&str>) -> Self {
        match session {
            Some(session) => Self { log: Arc::clone(log), session: Some(session.into()) },
            None => Self::default(),
        }
    }

    fn key(&self, path: &Path) -> Key {
        (self.session.clone().unwrap_or_else(|| "".into()), path.to_path_buf())
    }

    /// The version that was seen last.
    pub(crate) fn last(&self, path: &Path) -> Option<String> {
        let seen = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.versions.get(&self.key(path)).cloned()
    }

    /// Remembers a version.
    pub(crate) fn saw(&self, path: &Path, version: &str) {
        let key = self.key(path);
        let mut seen = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.versions.insert(key.clone(), version.to_owned()).is_none() {
            seen.order.push_back(key);
        }
        while seen.order.len() > MOST {
            if let Some(old) = seen.order.pop_front() {
                seen.versions.remove(&old);
            }
        }
    }

    /// Forgets a file that is gone.
    pub(crate) fn forget(&self, path: &Path) {
        let key = self.key(path);
        let mut seen = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.versions.remove(&key).is_some() {
            seen.order.retain(|other| *other != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_share_nothing_and_the_oldest_are_forgotten() {
        let log = Arc::new(ReadLog::default());
        let (a, b, none) = (Reader::of(&log, Some("a")), Reader::of(&log, Some("b")), Reader::of(&log, None));
        let path = Path::new("/x");
        a.saw(path, "1");
        none.saw(path, "9");
        assert_eq!((a.last(path), b.last(path)), (Some("1".to_owned()), None));
        for n in 0..MOST {
            b.saw(Path::new(&format!("/{n}")), "2");
        }
        assert_eq!(a.last(path), None);
        assert_eq!(log.0.lock().unwrap().versions.len(), MOST);
        b.forget(Path::new("/5"));
        assert_eq!(b.last(Path::new("/5")), None);
    }
}
