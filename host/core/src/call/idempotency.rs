//! Idempotency keys: a caller that repeats a call under the same key gets the result of the first one, and the tool does
//! not run again. The port and an implementation in memory.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::tool::canonical::Digest;
use crate::tool::content::{ToolError, ToolOutput};

/// Longest key of a caller, in bytes.
pub const MAX_KEY_BYTES: usize = 255;
/// How long a key is known after its call began.
pub const KEY_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Largest result that is kept under a key, in bytes of its JSON text.
pub const MAX_RESULT_BYTES: usize = 192 << 10;
/// Most keys in memory.
const MAX_KEYS: usize = 4096;
/// Most bytes of all results in memory.
const MAX_BYTES: usize = 32 << 20;

/// A key of a caller, in its session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// The key of the session ([`crate::session::Session::key`]).
    pub session: Arc<str>,
    /// The key that the caller chose, at most [`MAX_KEY_BYTES`].
    pub key: Arc<str>,
}

/// The result of a call that began, as it is kept: redacted, and not cut yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RecordedResult {
    /// The tool's output.
    Output(ToolOutput),
    /// The tool's own error.
    Error(ToolError),
}

/// How a call with a key ended.
#[derive(Debug)]
pub enum CallEnd {
    /// It did not begin. The key is free again.
    NotBegun,
    /// The JSON text of its [`RecordedResult`].
    Result(Box<str>),
    /// It began, and there is no result to keep: it failed, was cut off, or its result is too large.
    Unknown,
}

/// What a key says about a call.
#[derive(Debug)]
pub enum KeyState {
    /// The key is new, and this call has claimed it. The number is that of the claim.
    Claimed(u64),
    /// A call under this key is running.
    Running,
    /// A call under this key has ended, so long ago.
    Ended(RecordedResult, Duration),
    /// A call under this key began, and its result is not known.
    Unknown,
    /// The key was used for another tool or other arguments.
    OtherCall,
}

/// The reason why a key cannot be claimed. The call must not begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub String);

/// Knows the calls that have an idempotency key.
pub trait CallKeys: Send + Sync + fmt::Debug {
    /// Claims a key for a call. With `reruns_unknown`, a call whose result is not known gives up its claim.
    ///
    /// # Errors
    /// The store of the keys cannot be reached, or is full.
    fn claim<'a>(
        &'a self,
        key: &'a CallKey,
        call: Digest,
        reruns_unknown: bool,
    ) -> BoxFuture<'a, Result<KeyState, KeyError>>;

    /// Records how the call with this claim ended.
    fn settle(&self, key: CallKey, claim: u64, end: CallEnd) -> BoxFuture<'static, ()>;
}

/// The keys of a host on its own, in memory. The oldest that have ended are forgotten first. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryCallKeys(Arc<Mutex<KeyTable>>);

#[derive(Debug, Default)]
struct KeyTable {
    entries: HashMap<CallKey, KeyEntry>,
    /// The keys in the order of their claims.
    order: VecDeque<(CallKey, u64)>,
    claims: u64,
    bytes: usize,
}

#[derive(Debug)]
struct KeyEntry {
    call: Digest,
    claim: u64,
    since: Instant,
    /// `None` while the call runs.
    end: Option<CallEnd>,
}

impl KeyEntry {
    fn bytes(&self) -> usize {
        match &self.end {
            Some(CallEnd::Result(text)) => text.len(),
            Some(CallEnd::NotBegun | CallEnd::Unknown) | None => 0,
        }
    }
}

impl KeyTable {
    fn claim(&mut self, key: &CallKey, call: Digest, reruns_unknown: bool) -> Result<KeyState, KeyError> {
        self.forget_old();
        if let Some(entry) = self.entries.get(key) {
            match &entry.end {
                _ if entry.call != call => return Ok(KeyState::OtherCall),
                None => return Ok(KeyState::Running),
                Some(CallEnd::Result(text)) => {
                    let age = entry.since.elapsed();
                    let kept = serde_json::from_str(text).map(|result| KeyState::Ended(result, age));
                    return Ok(kept.unwrap_or(KeyState::Unknown));
                }
                Some(CallEnd::Unknown) if !reruns_unknown => return Ok(KeyState::Unknown),
                Some(CallEnd::NotBegun | CallEnd::Unknown) => {}
            }
        }
        if self.entries.len() >= MAX_KEYS && !self.forget_oldest() {
            return Err(KeyError(format!("{MAX_KEYS} calls with an idempotency key are running")));
        }
        self.claims += 1;
        let claim = self.claims;
        self.entries.insert(key.clone(), KeyEntry { call, claim, since: Instant::now(), end: None });
        self.order.push_back((key.clone(), claim));
        Ok(KeyState::Claimed(claim))
    }

    fn settle(&mut self, key: &CallKey, claim: u64, end: CallEnd) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.claim == claim) else { return };
        if matches!(end, CallEnd::NotBegun) {
            self.remove(key, claim);
            return;
        }
        entry.end = Some(end);
        entry.since = Instant::now();
        self.bytes += entry.bytes();
        while self.bytes > MAX_BYTES && self.forget_oldest() {}
    }

    fn forget_old(&mut self) {
        while let Some((key, claim)) = self.order.front().cloned() {
            let is_old = |entry: &KeyEntry| entry.end.is_some() && entry.since.elapsed() > KEY_LIFE;
            if self.entries.get(&key).is_some_and(|entry| entry.claim == claim && !is_old(entry)) {
                return;
            }
            self.remove(&key, claim);
        }
    }

    /// Forgets the oldest key whose call has ended; `false` if all run.
    fn forget_oldest(&mut self) -> bool {
        let has_ended = |(key, claim): &&(CallKey, u64)| {
            self.entries.get(key).is_some_and(|entry| entry.claim == *claim && entry.end.is_some())
        };
        let oldest = self.order.iter().find(has_ended).cloned();
        oldest.is_some_and(|(key, claim)| {
            self.remove(&key, claim);
            true
        })
    }

    fn remove(&mut self, key: &CallKey, claim: u64) {
        self.order.retain(|(_, other)| *other != claim);
        if self.entries.get(key).is_some_and(|entry| entry.claim == claim)
            && let Some(gone) = self.entries.remove(key)
        {
            self.bytes -= gone.bytes();
        }
    }
}

impl CallKeys for MemoryCallKeys {
    fn claim<'a>(
        &'a self,
        key: &'a CallKey,
        call: Digest,
        reruns_unknown: bool,
    ) -> BoxFuture<'a, Result<KeyState, KeyError>> {
        Box::pin(std::future::ready(self.0.lock().claim(key, call, reruns_unknown)))
    }

    fn settle(&self, key: CallKey, claim: u64, end: CallEnd) -> BoxFuture<'static, ()> {
        self.0.lock().settle(&key, claim, end);
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::tool::canonical;

    fn key(name: &str) -> CallKey {
        CallKey { session: "named:team".into(), key: name.into() }
    }

    fn claim(keys: &MemoryCallKeys, name: &str, call: u32, reruns_unknown: bool) -> KeyState {
        let call = canonical::sha256(&json!(call));
        keys.claim(&key(name), call, reruns_unknown).now_or_never().unwrap().unwrap()
    }

    fn settle(keys: &MemoryCallKeys, name: &str, state: &KeyState, end: CallEnd) {
        let KeyState::Claimed(claim) = *state else { panic!("not claimed: {state:?}") };
        keys.settle(key(name), claim, end).now_or_never().unwrap();
    }

    fn result(text: &str) -> CallEnd {
        let result = RecordedResult::Output(ToolOutput::text(text));
        CallEnd::Result(serde_json::to_string(&result).unwrap().into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_belongs_to_one_call() {
        let keys = MemoryCallKeys::default();
        let first = claim(&keys, "a", 1, false);
        assert!(matches!(claim(&keys, "a", 1, true), KeyState::Running));
        assert!(matches!(claim(&keys, "a", 2, true), KeyState::OtherCall));
        assert!(matches!(claim(&keys, "b", 2, false), KeyState::Claimed(_)));
        settle(&keys, "a", &first, result("done"));
        tokio::time::advance(Duration::from_secs(60)).await;
        let KeyState::Ended(RecordedResult::Output(output), age) = claim(&keys, "a", 1, true) else {
            panic!()
        };
        assert_eq!((output.value.as_str(), age), ("done", Duration::from_secs(60)));
        tokio::time::advance(KEY_LIFE).await;
        assert!(matches!(claim(&keys, "a", 2, false), KeyState::Claimed(_)), "the key is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_did_not_begin_frees_its_key_and_an_unknown_result_does_not() {
        let keys = MemoryCallKeys::default();
        let first = claim(&keys, "a", 1, false);
        settle(&keys, "a", &first, CallEnd::NotBegun);
        let second = claim(&keys, "a", 1, false);
        settle(&keys, "a", &first, result("late"));
        assert!(matches!(claim(&keys, "a", 1, false), KeyState::Running), "the first claim is over");
        settle(&keys, "a", &second, CallEnd::Unknown);
        assert!(matches!(claim(&keys, "a", 1, false), KeyState::Unknown));
        assert!(matches!(claim(&keys, "a", 1, true), KeyState::Claimed(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_and_results_are_bounded() {
        let keys = MemoryCallKeys::default();
        let claims: Vec<_> = (0..MAX_KEYS).map(|n| claim(&keys, &n.to_string(), 1, false)).collect();
        let full = keys.claim(&key("more"), canonical::sha256(&json!(1)), false).now_or_never().unwrap();
        assert!(full.unwrap_err().to_string().contains("4096 calls"));
        let large = serde_json::to_string(&RecordedResult::Output(ToolOutput::text("x".repeat(180 << 10))));
        let large: Box<str> = large.unwrap().into();
        for (n, claim) in claims.iter().enumerate() {
            let is_new = n + 300 > MAX_KEYS;
            let end = if is_new { CallEnd::Result(large.clone()) } else { CallEnd::Unknown };
            settle(&keys, &n.to_string(), claim, end);
        }
        let table = keys.0.lock();
        assert!(table.bytes <= MAX_BYTES && table.bytes > MAX_BYTES / 2, "{}", table.bytes);
        assert_eq!(table.order.len(), table.entries.len());
        drop(table);
        assert!(matches!(claim(&keys, "more", 1, false), KeyState::Claimed(_)));
        assert!(matches!(claim(&keys, "4095", 1, false), KeyState::Ended(..)), "the newest result is kept");
    }
}
