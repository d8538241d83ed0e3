//! The store for the full texts of results that were cut or reduced: the port and a store in memory. Each text belongs
//! to the session that received the result. [`query`] reads parts of a text.

pub mod query;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use toolbay_policy::limits::HostLimits;

/// Most texts of one session.
pub const MAX_TEXTS: usize = 1000;
/// Most texts of all sessions.
pub const MAX_ALL_TEXTS: usize = 10_000;
/// Bytes that are counted for each text in addition to its own: its names and its entry in the store.
pub const OVERHEAD_BYTES: u64 = 512;

/// The id of a saved text. It reveals nothing about the text and is valid in its session only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutputId(String);

impl OutputId {
    /// Parses an id: 16 lower-case hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(text.to_owned()))
    }

    /// The id of a text: the first 8 bytes of the SHA-256 of the text and its origin. The same text of the same tool
    /// has the same id.
    #[must_use]
    pub fn from_text(text: &SavedText) -> Self {
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

impl fmt::Display for OutputId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedText {
    /// The text.
    pub text: Arc<str>,
    /// The [label](crate::tool::ToolSource::label) of the tool's source.
    pub source: Arc<str>,
    /// The tool's qualified name.
    pub tool: Arc<str>,
    /// Whether the text is untrusted: it is marked wherever a model gets it.
    pub untrusted: bool,
}

impl SavedText {
    /// The bytes that the text counts for.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.text.len() as u64 + OVERHEAD_BYTES
    }
}

/// An entry in the list of a session's saved texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedOutput {
    /// The id of the text.
    pub id: OutputId,
    /// The tool's qualified name.
    pub tool: Arc<str>,
    /// The size of the text in bytes.
    pub bytes: u64,
}

/// The reason why a text was not saved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SaveError {
    /// The text is larger than the limit of a session.
    #[error(
        "the text has {bytes} bytes; the limit is {most} (`saved_output_bytes_per_session` in the policy's [host])"
    )]
    TooLarge {
        /// The size of the text in bytes.
        bytes: u64,
        /// The limit of a session in bytes.
        most: u64,
    },
    /// The store failed.
    #[error("{0}")]
    Failed(String),
}

/// Limits of an output store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputQuota {
    /// Bytes of all sessions. The oldest texts are removed first.
    pub bytes: u64,
    /// Bytes of one session. Its oldest texts are removed first.
    pub session_bytes: u64,
    /// The age at which a text expires.
    pub age: Duration,
}

impl From<&HostLimits> for OutputQuota {
    fn from(host: &HostLimits) -> Self {
        Self {
            bytes: host.saved_output_bytes,
            session_bytes: host.saved_output_bytes_per_session,
            age: host.saved_output_age,
        }
    }
}

impl OutputQuota {
    /// Checks that one session can hold a text, and returns the byte limit of a session.
    ///
    /// # Errors
    /// The text alone exceeds that limit.
    pub fn check(&self, text: &SavedText) -> Result<u64, SaveError> {
        let most = self.session_bytes.min(self.bytes);
        if text.weight() > most {
            return Err(SaveError::TooLarge { bytes: text.text.len() as u64, most });
        }
        Ok(most)
    }
}

/// Stores texts for sessions ([`crate::session::Session::key`]). A session cannot get the texts of another.
pub trait OutputStore: Send + Sync + fmt::Debug {
    /// Saves a text. Saving a text again renews its age.
    fn put<'a>(&'a self, session: &'a str, text: SavedText) -> BoxFuture<'a, Result<OutputId, SaveError>>;
    /// The text, unless it expired or was removed.
    fn get<'a>(&'a self, session: &'a str, id: &'a OutputId) -> BoxFuture<'a, Option<SavedText>>;
    /// The saved texts of a session, the oldest first.
    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<SavedOutput>>;
}

/// An output store in memory. It removes expired texts, and the oldest texts beyond the quota.
#[derive(Debug)]
pub struct MemoryOutputStore {
    quota: OutputQuota,
    saved: Mutex<SavedTexts>,
}

type SavedTextKey = (Box<str>, OutputId);

#[derive(Debug, Default)]
struct SavedTexts {
    texts: HashMap<SavedTextKey, (SavedText, Instant)>,
    /// Keys by age, the oldest first.
    order: VecDeque<SavedTextKey>,
    /// Bytes and texts of each session.
    sessions: HashMap<Box<str>, (u64, usize)>,
    bytes: u64,
}

impl MemoryOutputStore {
    /// An empty store.
    #[must_use]
    pub fn new(quota: OutputQuota) -> Self {
        Self { quota, saved: Mutex::default() }
    }
}

impl SavedTexts {
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

    fn forget(&mut self, key: &SavedTextKey) {
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

impl OutputStore for MemoryOutputStore {
    fn put<'a>(&'a self, session: &'a str, text: SavedText) -> BoxFuture<'a, Result<OutputId, SaveError>> {
        Box::pin(async move {
            let most = self.quota.check(&text)?;
            let (id, weight) = (OutputId::from_text(&text), text.weight());
            let key: SavedTextKey = (session.into(), id.clone());
            let mut saved = self.saved.lock();
            saved.forget(&key);
            saved.expire(self.quota.age);
            while saved.session(session).0 + weight > most || saved.session(session).1 >= MAX_TEXTS {
                let Some(oldest) = saved.order.iter().find(|key| &*key.0 == session).cloned() else { break };
                saved.forget(&oldest);
            }
            while saved.bytes + weight > self.quota.bytes || saved.order.len() >= MAX_ALL_TEXTS {
                let Some(oldest) = saved.order.front().cloned() else { break };
                saved.forget(&oldest);
            }
            saved.bytes += weight;
            let (bytes, texts) = saved.sessions.entry(session.into()).or_default();
            (*bytes, *texts) = (*bytes + weight, *texts + 1);
            saved.order.push_back(key.clone());
            saved.texts.insert(key, (text, Instant::now()));
            Ok(id)
        })
    }

    fn get<'a>(&'a self, session: &'a str, id: &'a OutputId) -> BoxFuture<'a, Option<SavedText>> {
        Box::pin(async move {
            let mut saved = self.saved.lock();
            saved.expire(self.quota.age);
            saved.texts.get(&(session.into(), id.clone())).map(|(text, _)| text.clone())
        })
    }

    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<SavedOutput>> {
        Box::pin(async move {
            let mut saved = self.saved.lock();
            saved.expire(self.quota.age);
            let of_session = saved.order.iter().filter(|key| &*key.0 == session);
            let listed = of_session.filter_map(|key| {
                let (text, _) = saved.texts.get(key)?;
                Some(SavedOutput {
                    id: key.1.clone(),
                    tool: Arc::clone(&text.tool),
                    bytes: text.text.len() as u64,
                })
            });
            listed.collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, tool: &str) -> SavedText {
        SavedText { text: text.into(), source: "plugin:p".into(), tool: tool.into(), untrusted: false }
    }

    fn store(bytes: u64, session_bytes: u64, age: Duration) -> MemoryOutputStore {
        MemoryOutputStore::new(OutputQuota { bytes, session_bytes, age })
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_session_cannot_read_the_texts_of_another() {
        let store = store(1 << 20, 1 << 20, LONG);
        let kept = text(&"x".repeat(60), "p__t");
        let id = store.put("a", kept.clone()).await.unwrap();
        assert_eq!(store.get("a", &id).await, Some(kept.clone()));
        for other in ["b", "A", "a ", "", "a\0", "á", "a/../a"] {
            assert_eq!(store.get(other, &id).await, None, "{other:?}");
            assert!(store.list(other).await.is_empty());
        }
        assert_eq!(store.put("a", kept.clone()).await, Ok(id.clone()), "the same text has the same id");
        assert_eq!(store.list("a").await.len(), 1);
        assert_ne!(OutputId::from_text(&SavedText { untrusted: true, ..kept.clone() }), id);
        assert_ne!(OutputId::from_text(&SavedText { tool: "p__u".into(), ..kept }), id);
        assert_eq!(OutputId::parse(id.as_str()), Some(id));
        for bad in [
            "../../etc/passwd",
            "",
            "0123456789ABCDEF",
            "0123456789abcde",
            "0123456789abcdef0",
            "é123456789abcde",
        ] {
            assert_eq!(OutputId::parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn the_oldest_texts_beyond_a_quota_are_removed() {
        let weight = |n: u64| n * (100 + OVERHEAD_BYTES);
        let store = store(weight(4), weight(2), LONG);
        let put =
            async |session: &str, n: u8| store.put(session, text(&n.to_string().repeat(100), "t")).await;
        let first = put("a", 1).await.unwrap();
        put("a", 2).await.unwrap();
        put("a", 1).await.unwrap();
        put("a", 3).await.unwrap();
        assert!(store.get("a", &first).await.is_some(), "saving a text again renews its age");
        assert_eq!(store.list("a").await.len(), 2, "the quota of the session is exceeded");
        for (session, n) in [("b", 4), ("c", 5), ("d", 6), ("e", 7)] {
            put(session, n).await.unwrap();
        }
        assert!(store.list("a").await.is_empty(), "the quota of all sessions is exceeded");
        {
            let kept = store.saved.lock();
            assert_eq!(
                (kept.bytes, kept.order.len(), kept.texts.len(), kept.sessions.len()),
                (weight(4), 4, 4, 4)
            );
        }
        let huge = store.put("a", text(&"x".repeat(3000), "t")).await;
        assert!(matches!(huge, Err(SaveError::TooLarge { bytes: 3000, .. })), "{huge:?}");
    }

    #[tokio::test]
    async fn the_number_of_texts_is_bounded_and_old_texts_expire() {
        let store = store(1 << 30, 1 << 30, LONG);
        for n in 0..=MAX_TEXTS {
            store.put("a", text(&n.to_string(), "t")).await.unwrap();
        }
        assert_eq!(store.list("a").await.len(), MAX_TEXTS);
        let short = super::tests::store(1 << 20, 1 << 20, Duration::ZERO);
        let id = short.put("a", text("x", "t")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(short.get("a", &id).await, None, "the text has expired");
        assert_eq!(short.saved.lock().bytes, 0);
    }
}
