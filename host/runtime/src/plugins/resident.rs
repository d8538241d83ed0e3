//! Whose code is in memory. What was not called for longest goes when there is more than a budget; the next call maps it
//! from the cache again.
//!
//! A call takes no lock here: it reads a pointer, and notes a few times a second at most that its plugin is in use. The
//! list is locked only while code is mapped, which takes a thousand times as long.
//!
//! Code goes only where it comes back for the price of a mapping: its file stands in the cache, and should the cache lose
//! it, the component's file is there to be compiled again. Code that has neither behind it (a host without a cache, a
//! component that came as bytes, a version that goes on although its file holds something else) stays whatever the budget
//! says: a call must not wait for seconds of compiling, or fail, for the sake of memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use crate::plugins::code::Code;

/// What is in memory of the code of a host's plugins. Code that only a call in flight still holds is not counted: it
/// goes with the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadedCode {
    /// The plugins whose code is in memory.
    pub plugins: usize,
    /// Its bytes as they are mapped: machine code and what belongs to it.
    pub bytes: u64,
    /// How many bytes there may be: `code_bytes` under `[host]`.
    pub most: u64,
    /// How often code was dropped to keep to that.
    pub dropped: u64,
}

/// All code of one host.
pub(crate) struct Resident {
    most: u64,
    since: Instant,
    bytes: AtomicU64,
    dropped: AtomicU64,
    /// Those with code in the order in which it was mapped. Some may be gone.
    slots: Mutex<Vec<Weak<Slot>>>,
}

/// The place of one plugin's code.
pub(crate) struct Slot {
    all: Arc<Resident>,
    code: ArcSwapOption<Code>,
    /// When it was used last, in eighths of a second.
    used: AtomicU64,
    /// Held while it is mapped or compiled.
    pub(crate) loading: tokio::sync::Mutex<()>,
    /// The file of the cache from which it can be mapped again.
    cached: OnceLock<PathBuf>,
    stays: AtomicBool,
}

impl Resident {
    pub(crate) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            most,
            since: Instant::now(),
            bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            slots: Mutex::default(),
        })
    }

    /// A place without code. Without a `file` to compile it from again its code stays.
    pub(crate) fn slot(self: &Arc<Self>, has_file: bool) -> Arc<Slot> {
        Arc::new(Slot {
            all: Arc::clone(self),
            code: ArcSwapOption::empty(),
            used: AtomicU64::new(0),
            loading: tokio::sync::Mutex::default(),
            cached: OnceLock::new(),
            stays: AtomicBool::new(!has_file),
        })
    }

    pub(crate) fn loaded(&self) -> LoadedCode {
        let plugins = self.slots.lock().iter().filter(|slot| slot.strong_count() > 0).count();
        let (bytes, dropped) = (self.bytes.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed));
        LoadedCode { plugins, bytes, most: self.most, dropped }
    }

    /// Takes out what was used longest ago until the rest is within the budget; of two, the one that was mapped first.
    fn cool(&self, slots: &mut Vec<Weak<Slot>>, but: &Arc<Slot>) -> Vec<Arc<Code>> {
        let mut gone = Vec::new();
        while self.bytes.load(Ordering::Relaxed) > self.most {
            let others = slots.iter().filter_map(Weak::upgrade).filter(|slot| !Arc::ptr_eq(slot, but));
            let coldest =
                others.filter(|slot| slot.comes_back()).min_by_key(|slot| slot.used.load(Ordering::Relaxed));
            let Some(coldest) = coldest else { break };
            gone.extend(coldest.replace(None));
            slots.retain(|slot| !std::ptr::eq(slot.as_ptr(), Arc::as_ptr(&coldest)));
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        gone
    }
}

impl Slot {
    /// The code, if it is in memory.
    pub(crate) fn code(&self) -> Guard<Option<Arc<Code>>> {
        self.code.load()
    }

    /// Notes that it is used.
    pub(crate) fn used(&self, now: Instant) {
        let since = now.saturating_duration_since(self.all.since);
        let stamp = since.as_secs() << 3 | u64::from(since.subsec_nanos() >> 27);
        // Written only if it is another: threads that call the same plugin do not pass the line about.
        if self.used.load(Ordering::Relaxed) != stamp {
            self.used.store(stamp, Ordering::Relaxed);
        }
    }

    /// Its code is there to stay: it could not come back.
    pub(crate) fn stay(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// Puts code in, and takes that of others out if it is too much then. `cached` is the file from which it can be mapped
    /// again. Blocks.
    pub(crate) fn put(self: &Arc<Self>, code: Arc<Code>, cached: Option<PathBuf>) {
        if let Some(file) = cached {
            // The name is made of the digest: it is the same each time.
            self.cached.set(file).ok();
        }
        let mut slots = self.all.slots.lock();
        let before = self.replace(Some(code));
        if before.is_none() {
            if slots.len() == slots.capacity() {
                slots.retain(|slot| slot.strong_count() > 0);
            }
            slots.push(Arc::downgrade(self));
        }
        let gone = self.all.cool(&mut slots, self);
        drop(slots);
        // Not before: to unmap takes time.
        drop((before, gone));
    }

    fn replace(&self, code: Option<Arc<Code>>) -> Option<Arc<Code>> {
        let bytes = |code: &Option<Arc<Code>>| code.as_ref().map_or(0, |code| code.bytes);
        self.all.bytes.fetch_add(bytes(&code), Ordering::Relaxed);
        let before = self.code.swap(code);
        self.all.bytes.fetch_sub(bytes(&before), Ordering::Relaxed);
        before
    }

    fn comes_back(&self) -> bool {
        !self.stays.load(Ordering::Relaxed) && self.cached.get().is_some_and(|file| file.exists())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.replace(None);
    }
}
