//! The result cache of a session, for tools that the operator marked as cacheable.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;
use toolbay_policy::session::SessionLimits;

use super::Session;
use crate::tool::ToolDef;
use crate::tool::canonical::Digest;
use crate::tool::content::ToolOutput;

/// Bytes that an entry takes in addition to its texts: an upper bound, so that the cache of empty results is bounded,
/// too.
const OVERHEAD: u64 = 512;

/// The key of a cached result. The tool is not part of the key but compared by identity: a new version of its plugin, a
/// new policy or a new grant creates a new definition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ResultKey {
    /// Digest of the tool's name and the canonical arguments.
    pub(crate) call: Digest,
    /// The profile of the call.
    pub(crate) profile: Option<Arc<str>>,
    /// The part of the caller's identity that the tool may see, without the number of the turn.
    pub(crate) caller: String,
}

/// Cached results by call. The oldest are evicted first.
#[derive(Debug, Default)]
pub(super) struct ResultCache {
    entries: HashMap<ResultKey, CachedResult>,
    order: VecDeque<ResultKey>,
    bytes: u64,
}

#[derive(Debug)]
struct CachedResult {
    tool: Weak<ToolDef>,
    output: Arc<ToolOutput>,
    bytes: u64,
    since: Instant,
}

impl ResultCache {
    fn remove(&mut self, key: &ResultKey) {
        if let Some(old) = self.entries.remove(key) {
            self.bytes -= old.bytes;
            self.order.retain(|one| one != key);
        }
    }

    fn pop(&mut self) -> Option<()> {
        let oldest = self.order.pop_front()?;
        self.bytes -= self.entries.remove(&oldest)?.bytes;
        Some(())
    }
}

impl Session {
    /// The cached result of this call and its age, if the age is below `keep`.
    pub(crate) fn cached_result(
        &self,
        key: &ResultKey,
        tool: &Arc<ToolDef>,
        keep: Duration,
    ) -> Option<(ToolOutput, Duration)> {
        let mut cache = self.cache.lock();
        let result = cache.entries.get(key)?;
        let age = result.since.elapsed();
        if age >= keep || !std::ptr::eq(result.tool.as_ptr(), Arc::as_ptr(tool)) {
            cache.remove(key);
            return None;
        }
        let output = Arc::clone(&result.output);
        drop(cache);
        Some((ToolOutput::clone(&output), age))
    }

    /// Caches a result, unless it is larger than the cache.
    pub(crate) fn cache_result(
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
            // An older result of the same call is outdated.
            self.cache.lock().remove(&key);
            return;
        }
        // A cached result costs nothing.
        let output = Arc::new(ToolOutput { cost_usd: None, ..output.clone() });
        let result = CachedResult { tool: Arc::downgrade(tool), output, bytes, since: Instant::now() };
        let mut cache = self.cache.lock();
        cache.remove(&key);
        while cache.order.len() >= entries || cache.bytes + bytes > most {
            if cache.pop().is_none() {
                return;
            }
        }
        cache.bytes += bytes;
        cache.order.push_back(key.clone());
        cache.entries.insert(key, result);
    }
}

#[cfg(test)]
impl Session {
    /// The entries and bytes in the cache.
    pub(super) fn cache_size(&self) -> (usize, u64) {
        let cache = self.cache.lock();
        (cache.order.len(), cache.entries.values().map(|kept| kept.bytes).sum())
    }
}

/// The approximate size of an output in memory, in bytes.
fn size_of(output: &ToolOutput) -> u64 {
    let raw = |raw: &Option<Box<serde_json::value::RawValue>>| raw.as_ref().map_or(0, |raw| raw.get().len());
    let blocks =
        output.content.iter().map(|block| (block.text_bytes() + block.data_bytes()) as u64 + OVERHEAD);
    (output.value.len() + raw(&output.structured) + raw(&output.meta)) as u64 + blocks.sum::<u64>()
}
