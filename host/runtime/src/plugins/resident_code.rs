//! Keeps the code of plugins in memory within a budget. The least recently called code is dropped, and mapped again
//! from the cache at the next call.
//!
//! A call takes no lock: it reads a pointer, and updates the time of last use at most eight times per second. The list
//! is locked only while code is mapped, which takes a thousand times longer.
//!
//! Code is dropped only if it can be restored cheaply: its file is in the cache, and the component's file exists in
//! case the cache loses it. Other code stays regardless of the budget: code of a host without a cache, of a component
//! loaded from bytes, and of an older version whose file has changed. A call must not wait seconds for a compilation,
//! or fail, to save memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use crate::plugins::code::Code;

/// Statistics of the plugin code in memory. Code that only calls in flight still hold is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadedCode {
    /// The number of plugins with code in memory.
    pub plugins: usize,
    /// The size of the mapped code and its data, in bytes.
    pub bytes: u64,
    /// The budget in bytes: `code_bytes` in `[host]`.
    pub limit: u64,
    /// How often code was dropped to stay within the budget.
    pub dropped: u64,
}

/// The code of all plugins of one host.
pub(crate) struct ResidentCode {
    budget: u64,
    created: Instant,
    bytes: AtomicU64,
    dropped: AtomicU64,
    /// The slots with code, in the order in which it was mapped. Some may have been dropped.
    slots: Mutex<Vec<Weak<CodeSlot>>>,
}

/// The slot for one plugin's code.
pub(crate) struct CodeSlot {
    owner: Arc<ResidentCode>,
    code: ArcSwapOption<Code>,
    /// The time of last use, in eighths of a second.
    last_used: AtomicU64,
    /// Held while the code is mapped or compiled.
    pub(crate) loading: tokio::sync::Mutex<()>,
    /// The cache file from which the code can be mapped again.
    cache_file: OnceLock<PathBuf>,
    pinned: AtomicBool,
}

impl ResidentCode {
    pub(crate) fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            created: Instant::now(),
            bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            slots: Mutex::default(),
        })
    }

    /// Creates an empty slot. Without a file to compile again, the code is pinned.
    pub(crate) fn slot(self: &Arc<Self>, has_file: bool) -> Arc<CodeSlot> {
        Arc::new(CodeSlot {
            owner: Arc::clone(self),
            code: ArcSwapOption::empty(),
            last_used: AtomicU64::new(0),
            loading: tokio::sync::Mutex::default(),
            cache_file: OnceLock::new(),
            pinned: AtomicBool::new(!has_file),
        })
    }

    pub(crate) fn stats(&self) -> LoadedCode {
        let plugins = self.slots.lock().iter().filter(|slot| slot.strong_count() > 0).count();
        let (bytes, dropped) = (self.bytes.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed));
        LoadedCode { plugins, bytes, limit: self.budget, dropped }
    }

    /// Removes the least recently used code until the rest is within the budget. Ties are broken by the time of
    /// mapping.
    fn evict(&self, slots: &mut Vec<Weak<CodeSlot>>, except: &Arc<CodeSlot>) -> Vec<Arc<Code>> {
        let mut evicted = Vec::new();
        while self.bytes.load(Ordering::Relaxed) > self.budget {
            let others = slots.iter().filter_map(Weak::upgrade).filter(|slot| !Arc::ptr_eq(slot, except));
            let oldest = others
                .filter(|slot| slot.is_evictable())
                .min_by_key(|slot| slot.last_used.load(Ordering::Relaxed));
            let Some(oldest) = oldest else { break };
            evicted.extend(oldest.replace(None));
            slots.retain(|slot| !std::ptr::eq(slot.as_ptr(), Arc::as_ptr(&oldest)));
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        evicted
    }
}

impl CodeSlot {
    /// The code, if it is in memory.
    pub(crate) fn code(&self) -> Guard<Option<Arc<Code>>> {
        self.code.load()
    }

    /// Records a use.
    pub(crate) fn mark_used(&self, now: Instant) {
        let since = now.saturating_duration_since(self.owner.created);
        let stamp = since.as_secs() << 3 | u64::from(since.subsec_nanos() >> 27);
        // Written only if it changed, so that threads that call the same plugin do not contend for the cache line.
        if self.last_used.load(Ordering::Relaxed) != stamp {
            self.last_used.store(stamp, Ordering::Relaxed);
        }
    }

    /// Pins the code, because it could not be restored.
    pub(crate) fn pin(&self) {
        self.pinned.store(true, Ordering::Relaxed);
    }

    /// Stores code, and evicts other code beyond the budget. `cached` is the file to map the code from again. Blocks.
    pub(crate) fn put(self: &Arc<Self>, code: Arc<Code>, cached: Option<PathBuf>) {
        if let Some(file) = cached {
            // The name contains the digest, so it is always the same.
            self.cache_file.set(file).ok();
        }
        let mut slots = self.owner.slots.lock();
        let before = self.replace(Some(code));
        if before.is_none() {
            if slots.len() == slots.capacity() {
                slots.retain(|slot| slot.strong_count() > 0);
            }
            slots.push(Arc::downgrade(self));
        }
        let evicted = self.owner.evict(&mut slots, self);
        drop(slots);
        // Dropped without the lock: unmapping takes time.
        drop((before, evicted));
    }

    fn replace(&self, code: Option<Arc<Code>>) -> Option<Arc<Code>> {
        let bytes = |code: &Option<Arc<Code>>| code.as_ref().map_or(0, |code| code.bytes);
        self.owner.bytes.fetch_add(bytes(&code), Ordering::Relaxed);
        let before = self.code.swap(code);
        self.owner.bytes.fetch_sub(bytes(&before), Ordering::Relaxed);
        before
    }

    fn is_evictable(&self) -> bool {
        !self.pinned.load(Ordering::Relaxed) && self.cache_file.get().is_some_and(|file| file.exists())
    }
}

impl Drop for CodeSlot {
    fn drop(&mut self) {
        self.replace(None);
    }
}
