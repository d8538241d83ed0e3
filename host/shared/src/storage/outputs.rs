//! The saved outputs that replicas share.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::session::output_store::{
    OVERHEAD_BYTES, OutputId, OutputQuota, OutputStore, SaveError, SavedOutput, SavedText,
};

use super::items::{ItemLimits, ListedItem, SessionItems};
use crate::clock::StoreClock;
use crate::nats::{Objects, ReadError, Records};

/// Most texts of one session. Their list is one record.
const MAX_TEXTS: usize = 400;
/// Longest name of a tool or its source, in bytes. Longer ones would make the list too large.
const MAX_NAME_BYTES: usize = 200;

/// The saved outputs of all sessions.
#[derive(Debug, Clone)]
pub struct NatsOutputStore {
    texts: SessionItems<StoredText>,
    quota: OutputQuota,
}

/// What is known about a text.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredText {
    source: Arc<str>,
    tool: Arc<str>,
    untrusted: bool,
}

impl NatsOutputStore {
    /// A store in these buckets.
    #[must_use]
    pub fn new(lists: Records, texts: Objects, clock: StoreClock, quota: OutputQuota) -> Self {
        let limits = ItemLimits {
            name: "texts",
            count: MAX_TEXTS,
            bytes: quota.session_bytes.min(quota.bytes),
            overhead: OVERHEAD_BYTES,
            age: quota.age,
        };
        Self { texts: SessionItems::new(lists, texts, clock, limits), quota }
    }

    async fn save(&self, session: &str, text: &SavedText) -> Result<OutputId, SaveError> {
        self.quota.check(text)?;
        if text.tool.len() > MAX_NAME_BYTES || text.source.len() > MAX_NAME_BYTES {
            return Err(SaveError::Failed("its tool name is too long".to_owned()));
        }
        let id = OutputId::from_text(text);
        let (source, tool) = (Arc::clone(&text.source), Arc::clone(&text.tool));
        let about = StoredText { source, tool, untrusted: text.untrusted };
        let inserted = self.texts.insert(session, id.as_str(), &about, text.text.as_bytes()).await;
        inserted.map_err(|error| SaveError::Failed(error.to_string()))?;
        Ok(id)
    }

    async fn load(&self, session: &str, id: &OutputId) -> Result<Option<SavedText>, ReadError> {
        let Some((about, data)) = self.texts.load(session, id.as_str()).await? else { return Ok(None) };
        let Ok(text) = String::from_utf8(data) else { return Ok(None) };
        let StoredText { source, tool, untrusted } = about;
        let text = SavedText { text: text.into(), source, tool, untrusted };
        Ok((OutputId::from_text(&text) == *id).then_some(text))
    }
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
        let to_output = |item: ListedItem<StoredText>| {
            Some(SavedOutput { id: OutputId::parse(&item.id)?, tool: item.about.tool, bytes: item.bytes })
        };
        Box::pin(async move {
            let listed = self.texts.list(session).await;
            let listed = listed.inspect_err(|error| tracing::warn!(%error, "saved outputs cannot be listed"));
            listed.unwrap_or_default().into_iter().filter_map(to_output).collect()
        })
    }
}
