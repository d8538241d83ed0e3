//! Idempotency keys: a caller that repeats a call under the same key gets the result of the first one, and the tool does
//! not run again. The port and an implementation in memory.

mod ended;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::tool::canonical::Digest;
use crate::tool::content::{ToolError, ToolOutput};

pub use ended::EndedKeys;

/// Longest key of a caller, in bytes.
pub const MAX_KEY_BYTES: usize = 255;
/// How long a key is remembered after its call began.
pub const KEY_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Largest result that is saved under a key, in bytes of its JSON text.
pub const MAX_RESULT_BYTES: usize = 192 << 10;
/// Most keys of running calls in memory.
const MAX_RUNNING: usize = 4096;
/// Most bytes of all ended keys in memory.
const MAX_ENDED_BYTES: usize = 32 << 20;

/// A key of a caller, in its session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// The key of the session ([`crate::session::Session::key`]).
    pub session: Arc<str>,
    /// The key that the caller chose, at most [`MAX_KEY_BYTES`].
    pub key: Arc<str>,
}

/// The saved result of a call that began: redacted, and not cut.
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
    /// The call did not begin. The key is free again.
    NotBegun,
    /// The call ended with this result: the JSON text of a [`RecordedResult`].
    Result(Box<str>),
    /// The call began, and there is no result to save: it failed, was cut off, or its result is too large.
    Unknown,
}

/// What a key says about a call.
#[derive(Debug)]
pub enum KeyState {
    /// The key is new, and this call has claimed it. The number is that of the claim.
    Claimed(u64),
    /// A call under this key is running.
    Running,
    /// A call under this key has ended. The duration is the time since then.
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

/// The keys of a host without replicas, in memory. Beyond the limit, the session with the most keys loses its oldest ones.
/// Clones share the keys.
#[derive(Debug, Clone, Default)]
pub struct MemoryCallKeys(Arc<Mutex<KeyTable>>);

#[derive(Debug, Default)]
struct KeyTable {
    entries: HashMap<CallKey, KeyEntry>,
    /// The ended keys, each with its claim.
    ended: EndedKeys<(CallKey, u64)>,
    running: usize,
    claims: u64,
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
    fn is_known(&self) -> bool {
        self.end.is_none() || self.since.elapsed() <= KEY_LIFE
    }
}

impl CallEnd {
    /// The bytes of the result.
    fn bytes(&self) -> usize {
        match self {
            Self::Result(text) => text.len(),
            Self::NotBegun | Self::Unknown => 0,
        }
    }
}

impl KeyTable {
    fn claim(&mut self, key: &CallKey, call: Digest, reruns_unknown: bool) -> Result<KeyState, KeyError> {
        if let Some(entry) = self.entries.get(key).filter(|entry| entry.is_known()) {
            match &entry.end {
                _ if entry.call != call => return Ok(KeyState::OtherCall),
                None => return Ok(KeyState::Running),
                Some(CallEnd::Result(text)) => {
                    let age = entry.since.elapsed();
                    let saved = serde_json::from_str(text).map(|result| KeyState::Ended(result, age));
                    return Ok(saved.unwrap_or(KeyState::Unknown));
                }
                Some(CallEnd::Unknown) if !reruns_unknown => return Ok(KeyState::Unknown),
                Some(CallEnd::NotBegun | CallEnd::Unknown) => {}
            }
        }
        if self.running >= MAX_RUNNING {
            return Err(KeyError(format!("{MAX_RUNNING} calls with an idempotency key are running")));
        }
        self.running += 1;
        self.claims += 1;
        let claim = self.claims;
        self.entries.insert(key.clone(), KeyEntry { call, claim, since: Instant::now(), end: None });
        Ok(KeyState::Claimed(claim))
    }

    fn settle(&mut self, key: CallKey, claim: u64, end: CallEnd) {
        let is_running = |entry: &&mut KeyEntry| entry.claim == claim && entry.end.is_none();
        let Some(entry) = self.entries.get_mut(&key).filter(is_running) else { return };
        self.running -= 1;
        if matches!(end, CallEnd::NotBegun) {
            self.entries.remove(&key);
            return;
        }
        let bytes = end.bytes();
        entry.end = Some(end);
        entry.since = Instant::now();
        let session = Arc::clone(&key.session);
        for (key, claim) in self.ended.add(&session, (key, claim), bytes, MAX_ENDED_BYTES) {
            if self.entries.get(&key).is_some_and(|entry| entry.claim == claim) {
                self.entries.remove(&key);
            }
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
        self.0.lock().settle(key, claim, end);
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

    #[test]
    fn running_calls_are_bounded() {
        let keys = MemoryCallKeys::default();
        let claims: Vec<_> = (0..MAX_RUNNING).map(|n| claim(&keys, &n.to_string(), 1, false)).collect();
        let full = keys.claim(&key("more"), canonical::sha256(&json!(1)), false).now_or_never().unwrap();
        assert!(full.unwrap_err().to_string().contains("4096 calls"));
        settle(&keys, "0", &claims[0], CallEnd::NotBegun);
        assert!(matches!(claim(&keys, "more", 1, false), KeyState::Claimed(_)));
    }

    #[test]
    fn the_results_of_one_session_do_not_push_out_those_of_others() {
        let keys = MemoryCallKeys::default();
        let of_other = CallKey { session: "named:other".into(), key: "a".into() };
        let call = canonical::sha256(&json!(1));
        let claimed = keys.claim(&of_other, call, false).now_or_never().unwrap().unwrap();
        let KeyState::Claimed(number) = claimed else { panic!("{claimed:?}") };
        keys.settle(of_other.clone(), number, result("mine")).now_or_never().unwrap();
        for n in 0..500 {
            let state = claim(&keys, &n.to_string(), 1, false);
            settle(&keys, &n.to_string(), &state, result(&"x".repeat(180 << 10)));
        }
        assert!(matches!(claim(&keys, "499", 1, false), KeyState::Ended(..)), "its newest is kept");
        assert!(matches!(claim(&keys, "0", 1, false), KeyState::Claimed(_)), "its oldest is forgotten");
        let kept = keys.claim(&of_other, call, false).now_or_never().unwrap().unwrap();
        assert!(matches!(kept, KeyState::Ended(..)), "{kept:?}");
        let table = keys.0.lock();
        assert!(table.entries.len() < 200, "{}", table.entries.len());
    }
}
