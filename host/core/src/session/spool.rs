//! Full texts of results that were too long for the model, kept for the session that got them: the port, and a store in
//! memory. What can be asked of a text is in [`question`].

pub mod question;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use toolbay_policy::limits::HostLimits;

use crate::call::invoke::BoxFuture;

/// Most texts of one session.
pub const MAX_TEXTS: usize = 1000;
/// Most texts of all sessions.
pub const MAX_ALL_TEXTS: usize = 10_000;
/// What a text is counted for besides its bytes: its names and its place in the store.
pub const OVERHEAD_BYTES: u64 = 512;

/// Names one kept text; says nothing of it and is good in its session only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpoolId(String);

impl SpoolId {
    /// Reads an id as [`SpoolId::as_str`] wrote it: 16 hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(text.to_owned()))
    }

    /// The id of a text: the beginning of the SHA-256 of it and of where it comes from. The same text of the same tool
    /// has the same id.
    #[must_use]
    pub fn of(text: &SpooledText) -> Self {
        let mut digest = Sha256::new();
        for part in [&*text.source, &*text.tool, &*text.text] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        digest.update([u8::from(text.untrusted)]);
        Self(digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SpoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text with where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpooledText {
    /// The text.
    pub text: Arc<str>,
    /// Where the tool comes from, as [`crate::tool::ToolSource::label`] says it.
    pub source: Arc<str>,
    /// The tool's qualified name.
    pub tool: Arc<str>,
    /// Whether others wrote it: it is marked wherever a model gets it.
    pub untrusted: bool,
}

impl SpooledText {
    /// What it is counted for, in bytes.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.text.len() as u64 + OVERHEAD_BYTES
    }
}

/// A kept text, for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spooled {
    /// Its id.
    pub id: SpoolId,
    /// The tool's qualified name.
    pub tool: Arc<str>,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Why a text was not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// It is larger than a session may have.
    #[error("it has {bytes} bytes; `saved_output_bytes_per_session` in the policy's [host] lets a session have {most}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// What a session may have.
        most: u64,
    },
    /// The store could not take it.
    #[error("{0}")]
    Failed(String),
}

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of all sessions. The oldest texts go first.
    pub bytes: u64,
    /// Bytes of one session. Its oldest texts go first.
    pub session_bytes: u64,
    /// How long a text is kept.
    pub age: Duration,
}

impl From<&HostLimits> for Quota {
    fn from(host: &HostLimits) -> Self {
        Self { bytes: host.saved_output_bytes, session_bytes: host.saved_output_bytes_per_session, age: host.saved_output_age }
    }
}

impl Quota {
    /// What a session may have; never more than all.
    ///
    /// # Errors
    /// When a text of this weight is more.
    pub fn check(&self, text: &SpooledText) -> Result<u64, NotKept> {
        let most = self.session_bytes.min(self.bytes);
        if text.weight() > most {
            return Err(NotKept::TooLarge { bytes: text.text.len() as u64, most });
        }
        Ok(most)
    }
}

/// Keeps texts for sessions ([`crate::session::Session::key`]). What one session put no other can get.
pub trait Spool: Send + Sync + fmt::Debug {
    /// Keeps a text. One that is there already is as new.
    fn put<'a>(&'a self, session: &'a str, text: SpooledText) -> BoxFuture<'a, Result<SpoolId, NotKept>>;
    /// The text, while it is kept.
    fn get<'a>(&'a self, session: &'a str, id: &'a SpoolId) -> BoxFuture<'a, Option<SpooledText>>;
    /// What is kept for a session, the oldest first.
    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<Spooled>>;
}

/// A spool in memory: the oldest go first when there is too much, and each when its time is over.
#[derive(Debug)]
pub struct MemorySpool {
    quota: Quota,
    kept: Mutex<Kept>,
}

type Key = (Box<str>, SpoolId);

#[derive(Debug, Default)]
struct Kept {
    texts: HashMap<Key, (SpooledText, Instant)>,
    /// The oldest first.
    order: VecDeque<Key>,
    /// Bytes and texts of each session.
    sessions: HashMap<Box<str>, (u64, usize)>,
    bytes: u64,
}

impl MemorySpool {
    /// An empty spool.
    #[must_use]
    pub fn new(quota: Quota) -> Self {
        Self { quota, kept: Mutex::default() }
    }

    fn put_now(&self, session: &str, text: SpooledText) -> Result<SpoolId, NotKept> {
        let most = self.quota.check(&text)?;
        let (id, weight) = (SpoolId::of(&text), text.weight());
        let key: Key = (session.into(), id.clone());
        let mut kept = self.kept.lock();
        kept.forget(&key);
        kept.expire(self.quota.age);
        while kept.session(session).0 + weight > most || kept.session(session).1 >= MAX_TEXTS {
            let Some(oldest) = kept.order.iter().find(|key| &*key.0 == session).cloned() else { break };
            kept.forget(&oldest);
        }
        while kept.bytes + weight > self.quota.bytes || kept.order.len() >= MAX_ALL_TEXTS {
            let Some(oldest) = kept.order.front().cloned() else { break };
            kept.forget(&oldest);
        }
        kept.bytes += weight;
        let (bytes, texts) = kept.sessions.entry(session.into()).or_default();
        (*bytes, *texts) = (*bytes + weight, *texts + 1);
        kept.order.push_back(key.clone());
        kept.texts.insert(key, (text, Instant::now()));
        Ok(id)
    }

    fn get_now(&self, session: &str, id: &SpoolId) -> Option<SpooledText> {
        let mut kept = self.kept.lock();
        kept.expire(self.quota.age);
        kept.texts.get(&(session.into(), id.clone())).map(|(text, _)| text.clone())
    }

    fn list_now(&self, session: &str) -> Vec<Spooled> {
        let mut kept = self.kept.lock();
        kept.expire(self.quota.age);
        let of_session = kept.order.iter().filter(|key| &*key.0 == session);
        let listed = of_session.filter_map(|key| {
            let (text, _) = kept.texts.get(key)?;
            Some(Spooled { id: key.1.clone(), tool: Arc::clone(&text.tool), bytes: text.text.len() as u64 })
        });
        listed.collect()
    }
}

impl Kept {
    fn session(&self, session: &str) -> (u64, usize) {
        self.sessions.get(session).copied().unwrap_or_default()
    }

    fn expire(&mut self, age: Duration) {
        while let Some(oldest) = self.order.front().cloned() {
            if self.texts.get(&oldest).is_some_and(|(_, since)| since.elapsed() <= age) {
                return;
            }
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, key: &Key) {
        let Some((text, _)) = self.texts.remove(key) else { return };
        self.bytes -= text.weight();
        self.order.retain(|other| other != key);
        if let Some((bytes, texts)) = self.sessions.get_mut(&key.0) {
            (*bytes, *texts) = (*bytes - text.weight(), *texts - 1);
            if *texts == 0 {
                self.sessions.remove(&key.0);
            }
        }
    }
}

impl Spool for MemorySpool {
    fn put<'a>(&'a self, session: &'a str, text: SpooledText) -> BoxFuture<'a, Result<SpoolId, NotKept>> {
        Box::pin(async move { self.put_now(session, text) })
    }

    fn get<'a>(&'a self, session: &'a str, id: &'a SpoolId) -> BoxFuture<'a, Option<SpooledText>> {
        Box::pin(async move { self.get_now(session, id) })
    }

    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<Spooled>> {
        Box::pin(async move { self.list_now(session) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, tool: &str) -> SpooledText {
        SpooledText { text: text.into(), source: "plugin:p".into(), tool: tool.into(), untrusted: false }
    }

    fn spool(bytes: u64, session_bytes: u64, age: Duration) -> MemorySpool {
        MemorySpool::new(Quota { bytes, session_bytes, age })
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn what_a_session_put_no_other_gets() {
        let spool = spool(1 << 20, 1 << 20, LONG);
        let kept = text(&"x".repeat(60), "p__t");
        let id = spool.put("a", kept.clone()).await.unwrap();
        assert_eq!(spool.get("a", &id).await, Some(kept.clone()));
        for other in ["b", "A", "a ", "", "a\0", "á", "a/../a"] {
            assert_eq!(spool.get(other, &id).await, None, "{other:?}");
            assert!(spool.list(other).await.is_empty());
        }
        assert_eq!(spool.put("a", kept.clone()).await, Ok(id.clone()), "the same text has the same id");
        assert_eq!(spool.list("a").await.len(), 1);
        assert_ne!(SpoolId::of(&SpooledText { untrusted: true, ..kept.clone() }), id);
        assert_ne!(SpoolId::of(&SpooledText { tool: "p__u".into(), ..kept }), id);
        assert_eq!(SpoolId::parse(id.as_str()), Some(id));
        for bad in [
            "../../etc/passwd",
            "",
            "0123456789ABCDEF",
            "0123456789abcde",
            "0123456789abcdef0",
            "é123456789abcde",
        ] {
            assert_eq!(SpoolId::parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn quotas_hold_and_the_oldest_go_first() {
        let weight = |n: u64| n * (100 + OVERHEAD_BYTES);
        let spool = spool(weight(4), weight(2), LONG);
        let put =
            async |session: &str, n: u8| spool.put(session, text(&n.to_string().repeat(100), "t")).await;
        let first = put("a", 1).await.unwrap();
        put("a", 2).await.unwrap();
        put("a", 1).await.unwrap();
        put("a", 3).await.unwrap();
        assert!(spool.get("a", &first).await.is_some(), "put again, it is as new");
        assert_eq!(spool.list("a").await.len(), 2, "the quota of the session");
        for (session, n) in [("b", 4), ("c", 5), ("d", 6), ("e", 7)] {
            put(session, n).await.unwrap();
        }
        assert!(spool.list("a").await.is_empty(), "the quota of all");
        {
            let kept = spool.kept.lock();
            assert_eq!(
                (kept.bytes, kept.order.len(), kept.texts.len(), kept.sessions.len()),
                (weight(4), 4, 4, 4)
            );
        }
        let huge = spool.put("a", text(&"x".repeat(3000), "t")).await;
        assert!(matches!(huge, Err(NotKept::TooLarge { bytes: 3000, .. })), "{huge:?}");
    }

    #[tokio::test]
    async fn many_small_texts_are_counted_and_old_ones_go() {
        let spool = spool(1 << 30, 1 << 30, LONG);
        for n in 0..=MAX_TEXTS {
            spool.put("a", text(&n.to_string(), "t")).await.unwrap();
        }
        assert_eq!(spool.list("a").await.len(), MAX_TEXTS);
        let short = super::tests::spool(1 << 20, 1 << 20, Duration::ZERO);
        let id = short.put("a", text("x", "t")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(short.get("a", &id).await, None, "its time is over");
        assert_eq!(short.kept.lock().bytes, 0);
    }
}
