//! Results that a session may look up again instead of running the tool: of tools for which the operator said so.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;
use toolbay_policy::session::SessionLimits;

use super::Session;
use crate::tool::ToolDef;
use crate::tool::canonical::Digest;
use crate::tool::content::{BlockBody, ResourceBody, ToolOutput};

/// What an entry takes beside its texts, in bytes: an upper bound, so that empty results are bounded, too.
const OVERHEAD: u64 = 512;

/// Which call a result answers. The tool itself is compared by identity: whatever makes another tool of it, a new
/// version of its plugin, another policy, another grant, makes a new definition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ResultKey {
    /// Digest of the tool's name and the canonical arguments.
    pub(crate) call: Digest,
    /// The profile under which it ran.
    pub(crate) profile: Option<Arc<str>>,
    /// What else the tool may learn of its caller, but for the number of the turn.
    pub(crate) caller: String,
}

/// Results by call, the oldest first to go.
#[derive(Debug, Default)]
pub(super) struct ResultCache {
    kept: HashMap<ResultKey, Kept>,
    order: VecDeque<ResultKey>,
    bytes: u64,
}

#[derive(Debug)]
struct Kept {
    tool: Weak<ToolDef>,
    output: Arc<ToolOutput>,
    bytes: u64,
    since: Instant,
}

impl ResultCache {
    fn remove(&mut self, key: &ResultKey) {
        if let Some(old) = self.kept.remove(key) {
            self.bytes -= old.bytes;
            self.order.retain(|one| one != key);
        }
    }

    fn pop(&mut self) -> Option<()> {
        let oldest = self.order.pop_front()?;
        self.bytes -= self.kept.remove(&oldest)?.bytes;
        Some(())
    }
}

impl Session {
    /// What this tool answered to this call within `keep`, and how long ago.
    pub(crate) fn cached(
        &self,
        key: &ResultKey,
        tool: &Arc<ToolDef>,
        keep: Duration,
    ) -> Option<(ToolOutput, Duration)> {
        let mut cache = self.cache.lock();
        let kept = cache.kept.get(key)?;
        let age = kept.since.elapsed();
        if age >= keep || !std::ptr::eq(kept.tool.as_ptr(), Arc::as_ptr(tool)) {
            cache.remove(key);
            return None;
        }
        let output = Arc::clone(&kept.output);
        drop(cache);
        Some((ToolOutput::clone(&output), age))
    }

    /// Keeps a result, if there is room for it at all.
    pub(crate) fn keep(
        &self,
        policy: &SessionLimits,
        key: ResultKey,
        tool: &Arc<ToolDef>,
        output: &ToolOutput,
    ) {
        let entries = policy.cache_entries.min(self.limits.cache_entries);
        let most = policy.cache_bytes.min(self.limits.cache_bytes);
        let bytes = size_of(output) + 2 * key.caller.len() as u64 + OVERHEAD;
        if bytes > most || entries == 0 {
            // What was kept before is not the last answer any more.
            self.cache.lock().remove(&key);
            return;
        }
        // It answers from now on, but costs nothing again.
        let output = Arc::new(ToolOutput { cost_usd: None, ..output.clone() });
        let kept = Kept { tool: Arc::downgrade(tool), output, bytes, since: Instant::now() };
        let mut cache = self.cache.lock();
        cache.remove(&key);
        while cache.order.len() >= entries || cache.bytes + bytes > most {
            if cache.pop().is_none() {
                return;
            }
        }
        cache.bytes += bytes;
        cache.order.push_back(key.clone());
        cache.kept.insert(key, kept);
    }
}

#[cfg(test)]
impl Session {
    /// Entries and bytes that are kept.
    pub(super) fn cache_size(&self) -> (usize, u64) {
        let cache = self.cache.lock();
        (cache.order.len(), cache.kept.values().map(|kept| kept.bytes).sum())
    }
}

/// Bytes of an output in memory, nearly.
fn size_of(output: &ToolOutput) -> u64 {
    let raw = |raw: &Option<Box<serde_json::value::RawValue>>| raw.as_ref().map_or(0, |raw| raw.get().len());
    let blocks = output.content.iter().map(|block| {
        let body = match &block.body {
            BlockBody::Text(text) => text.len(),
            BlockBody::Image(blob) | BlockBody::Audio(blob) => blob.data.len(),
            BlockBody::Link(link) => {
                link.uri.len() + link.name.len() + link.description.as_ref().map_or(0, String::len)
            }
            BlockBody::Embedded(resource) => {
                resource.uri.len()
                    + match &resource.body {
                        ResourceBody::Text(text) => text.len(),
                        ResourceBody::Blob(data) => data.len(),
                    }
            }
        };
        body as u64 + OVERHEAD
    });
    (output.value.len() + raw(&output.structured) + raw(&output.meta)) as u64 + blocks.sum::<u64>()
}
