//! The keys of ended calls, and which of them are forgotten first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Bytes that a key counts for in addition to its result.
const OVERHEAD: usize = 1 << 10;

/// The keys of ended calls, by session. Beyond the limit, the session with the most bytes loses its oldest keys, so no
/// session displaces the keys of a smaller one.
#[derive(Debug)]
pub struct EndedKeys<T> {
    sessions: HashMap<Arc<str>, SessionKeys<T>>,
    bytes: usize,
}

/// The keys of a session, the oldest first, each with its bytes.
#[derive(Debug)]
struct SessionKeys<T> {
    keys: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Default for EndedKeys<T> {
    fn default() -> Self {
        Self { sessions: HashMap::new(), bytes: 0 }
    }
}

impl<T> Default for SessionKeys<T> {
    fn default() -> Self {
        Self { keys: VecDeque::new(), bytes: 0 }
    }
}

impl<T> EndedKeys<T> {
    /// Adds the newest key of a session, whose result has `result_bytes`. A key counts for 1 KiB and its result. Returns the
    /// keys that no longer fit into `most` bytes, which are forgotten.
    pub fn add(&mut self, session: &Arc<str>, key: T, result_bytes: usize, most: usize) -> Vec<T> {
        let bytes = result_bytes.saturating_add(OVERHEAD);
        let of_session = self.sessions.entry(Arc::clone(session)).or_default();
        of_session.keys.push_back((key, bytes));
        of_session.bytes += bytes;
        self.bytes += bytes;
        let mut removed = Vec::new();
        while self.bytes > most
            && let Some(key) = self.remove_oldest_of_largest()
        {
            removed.push(key);
        }
        removed
    }

    fn remove_oldest_of_largest(&mut self) -> Option<T> {
        let (session, largest) = self.sessions.iter_mut().max_by_key(|(_, keys)| keys.bytes)?;
        let session = Arc::clone(session);
        let (key, bytes) = largest.keys.pop_front()?;
        largest.bytes -= bytes;
        self.bytes -= bytes;
        if largest.keys.is_empty() {
            self.sessions.remove(&session);
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_that_has_most_gives_up_its_oldest() {
        let (large, small) = (Arc::from("large"), Arc::from("small"));
        let mut ended = EndedKeys::default();
        let most = 8 * OVERHEAD;
        assert!(ended.add(&small, 0, 0, most).is_empty());
        assert!((1..=7).all(|key| ended.add(&large, key, 0, most).is_empty()));
        assert_eq!(ended.add(&large, 8, 0, most), [1]);
        assert_eq!(ended.add(&small, 9, 0, most), [2]);
        assert_eq!(ended.add(&large, 10, 2 * OVERHEAD, most), [3, 4, 5]);
        assert_eq!(ended.add(&large, 11, 8 * OVERHEAD, most), [6, 7, 8, 10, 11], "too large for all");
        assert_eq!((ended.bytes, ended.sessions.len()), (2 * OVERHEAD, 1));
    }
}
