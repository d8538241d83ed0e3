//! Saved outputs that all servers share: the texts as objects, and one record for each session that lists them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::session::output_store::{
    OVERHEAD_BYTES, OutputId, OutputQuota, OutputStore, SaveError, SavedOutput, SavedText,
};

use crate::bundle::ContentDigest;
use crate::clock::StoreClock;
use crate::nats::{Objects, ReadError, Records};
use crate::protocol::{Revision, Written};

/// Most texts of one session. Their list is one record.
const MAX_TEXTS: usize = 500;
/// Longest name of a tool or its source, in bytes. Longer ones would make the list too large.
const MAX_NAME_BYTES: usize = 200;
/// Most attempts to change the list of a session. Each conflict means that another server changed it.
const MAX_ATTEMPTS: u32 = 50;

/// The saved outputs of all sessions.
#[derive(Debug, Clone)]
pub struct NatsOutputStore {
    lists: Records,
    texts: Objects,
    clock: StoreClock,
    quota: OutputQuota,
}

/// The texts of a session, the oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredList {
    texts: Vec<ListedText>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ListedText {
    id: String,
    source: Arc<str>,
    tool: Arc<str>,
    untrusted: bool,
    bytes: u64,
    /// When it was saved, in milliseconds of the store's clock.
    at: u64,
}

impl NatsOutputStore {
    /// A store in these buckets.
    #[must_use]
    pub fn new(lists: Records, texts: Objects, clock: StoreClock, quota: OutputQuota) -> Self {
        Self { lists, texts, clock, quota }
    }

    /// The list of a session without expired texts, and the revision of its record.
    async fn read(&self, session: &str) -> Result<(StoredList, Option<Revision>), ReadError> {
        let found = self.lists.read::<StoredList>(&key(session)).await?;
        let (mut list, revision) =
            found.map_or_else(Default::default, |record| (record.value, Some(record.revision)));
        let age = u64::try_from(self.quota.age.as_millis()).unwrap_or(u64::MAX);
        let now = self.clock.now();
        list.texts.retain(|text| now < text.at.saturating_add(age));
        Ok((list, revision))
    }

    async fn save(&self, session: &str, text: &SavedText) -> Result<OutputId, SaveError> {
        let most = self.quota.check(text)?;
        if text.tool.len() > MAX_NAME_BYTES || text.source.len() > MAX_NAME_BYTES {
            return Err(SaveError::Failed("its tool name is too long".to_owned()));
        }
        let id = OutputId::from_text(text);
        let failed = |error: ReadError| SaveError::Failed(error.to_string());
        self.texts.write(&object(session, id.as_str()), text.text.as_bytes()).await.map_err(failed)?;
        for _ in 0..MAX_ATTEMPTS {
            let (mut list, revision) = self.read(session).await.map_err(failed)?;
            list.texts.retain(|listed| listed.id != id.as_str());
            let removed = list.make_room(text.weight(), most);
            list.texts.push(ListedText {
                id: id.as_str().to_owned(),
                source: Arc::clone(&text.source),
                tool: Arc::clone(&text.tool),
                untrusted: text.untrusted,
                bytes: text.text.len() as u64,
                at: self.clock.now(),
            });
            match self.lists.write(&key(session), revision, &list).await {
                Written::Stored(_) => {
                    for old in removed {
                        self.texts.remove(&object(session, &old.id)).await;
                    }
                    return Ok(id);
                }
                Written::Conflict => {}
                Written::Unknown => break,
            }
        }
        Err(SaveError::Failed("the shared state does not take it".to_owned()))
    }

    async fn load(&self, session: &str, id: &OutputId) -> Result<Option<SavedText>, ReadError> {
        let (list, _) = self.read(session).await?;
        let Some(listed) = list.texts.into_iter().find(|text| text.id == id.as_str()) else {
            return Ok(None);
        };
        let most = usize::try_from(listed.bytes).unwrap_or(usize::MAX);
        let Some(bytes) = self.texts.read(&object(session, id.as_str()), most).await? else {
            return Ok(None);
        };
        let Ok(text) = String::from_utf8(bytes) else { return Ok(None) };
        let ListedText { source, tool, untrusted, .. } = listed;
        let text = SavedText { text: text.into(), source, tool, untrusted };
        Ok((OutputId::from_text(&text) == *id).then_some(text))
    }
}

impl StoredList {
    /// Removes the oldest texts until another one fits.
    fn make_room(&mut self, weight: u64, most: u64) -> Vec<ListedText> {
        let weighs = |text: &ListedText| text.bytes.saturating_add(OVERHEAD_BYTES);
        let mut sum = self.texts.iter().map(weighs).sum::<u64>().saturating_add(weight);
        let mut count = 0;
        for text in &self.texts {
            if sum <= most && self.texts.len() - count < MAX_TEXTS {
                break;
            }
            sum = sum.saturating_sub(weighs(text));
            count += 1;
        }
        self.texts.drain(..count).collect()
    }
}

/// The key of a session's list. The key of a session may have any characters and may be secret.
fn key(session: &str) -> String {
    ContentDigest::of(session.as_bytes()).to_string()
}

fn object(session: &str, id: &str) -> String {
    format!("{}-{id}", key(session))
}

impl OutputStore for NatsOutputStore {
    fn put<'a>(&'a self, session: &'a str, text: SavedText) -> BoxFuture<'a, Result<OutputId, SaveError>> {
        Box::pin(async move { self.save(session, &text).await })
    }

    fn get<'a>(&'a self, session: &'a str, id: &'a OutputId) -> BoxFuture<'a, Option<SavedText>> {
        Box::pin(async move {
            let loaded = self.load(session, id).await;
            loaded.inspect_err(|error| tracing::warn!(%error, "a saved output cannot be read")).ok().flatten()
        })
    }

    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<SavedOutput>> {
        Box::pin(async move {
            let (list, _) = match self.read(session).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%error, "saved outputs cannot be listed");
                    return Vec::new();
                }
            };
            let listed = list.texts.into_iter().filter_map(|text| {
                Some(SavedOutput { id: OutputId::parse(&text.id)?, tool: text.tool, bytes: text.bytes })
            });
            listed.collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(sizes: &[u64]) -> StoredList {
        let text = |(at, bytes): (usize, &u64)| ListedText {
            id: at.to_string(),
            source: "p".into(),
            tool: "p__t".into(),
            untrusted: false,
            bytes: *bytes,
            at: 0,
        };
        StoredList { texts: sizes.iter().enumerate().map(text).collect() }
    }

    #[test]
    fn the_oldest_texts_make_room() {
        let removed = |sizes: &[u64], weight, most| list(sizes).make_room(weight, most).len();
        assert_eq!(removed(&[100, 100], 600, 3 * OVERHEAD_BYTES + 400), 0);
        assert_eq!(removed(&[100, 100], 800, 3 * OVERHEAD_BYTES + 300), 1);
        assert_eq!(removed(&[100, 100], 3000, 3000), 2);
        assert_eq!(removed(&[0; MAX_TEXTS], 1, u64::MAX), 1);
        assert_eq!(removed(&[0; MAX_TEXTS - 1], 1, u64::MAX), 0);
    }
}
