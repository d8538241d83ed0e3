//! Idempotency keys that replicas share: one record for each key, which the replica that runs the call has claimed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolbay_core::call::idempotency::{CallEnd, CallKey, CallKeys, EndedKeys, KeyError, KeyState};
use toolbay_state::digest::Digest;

use crate::clock::StoreClock;
use crate::nats::Records;
use crate::protocol::{Revision, Written};
use crate::roster::{ProcessId, Roster};

/// The start of the record keys.
const KEY: &str = "key.";
/// Most attempts to claim a key. Each conflict means that another replica wrote it.
const MAX_ATTEMPTS: u32 = 20;
/// Most bytes of the ended keys of all replicas: half of the bucket. Each replica forgets those whose calls it ran.
const MAX_ENDED_BYTES: usize = 128 << 20;
/// The pause before the end of a call is written again.
const PAUSE: Duration = Duration::from_secs(1);

/// The idempotency keys of all sessions with a name. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct NatsCallKeys {
    records: Records,
    clock: StoreClock,
    roster: Roster,
    /// The record keys of calls that run here, or whose end is not written yet.
    claimed: Arc<Mutex<HashSet<String>>>,
    /// The records of calls that ended here.
    ended: Arc<Mutex<EndedKeys<(String, Revision)>>>,
}

/// What is stored under a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredCall {
    /// The digest of the call.
    call: String,
    /// The process that runs it.
    process: ProcessId,
    /// When it was claimed or ended, in milliseconds of the store's clock.
    at: u64,
    #[serde(default)]
    end: Option<StoredEnd>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum StoredEnd {
    /// The result. Its text must not grow in the record, as a string in JSON does.
    Result(Box<RawValue>),
    Unknown,
}

impl NatsCallKeys {
    pub(crate) fn new(records: Records, clock: StoreClock, roster: Roster) -> Self {
        Self { records, clock, roster, claimed: Arc::default(), ended: Arc::default() }
    }

    async fn try_claim(
        &self,
        name: &str,
        call: &str,
        reruns_unknown: bool,
    ) -> Result<Option<KeyState>, KeyError> {
        let found =
            self.records.read::<StoredCall>(name).await.map_err(|error| KeyError(error.to_string()))?;
        let revision = found.as_ref().map(|record| record.revision);
        if let Some(stored) = found.map(|record| record.value)
            && let Some(state) = self.judge(name, call, stored, reruns_unknown)
        {
            return Ok(Some(state));
        }
        if !self.claimed.lock().insert(name.to_owned()) {
            return Ok(Some(KeyState::Running));
        }
        let own = StoredCall {
            call: call.to_owned(),
            process: self.roster.own().clone(),
            at: self.clock.now(),
            end: None,
        };
        match self.records.write(name, revision, &own).await {
            Written::Stored(Revision(claim)) => Ok(Some(KeyState::Claimed(claim))),
            Written::Conflict => {
                self.claimed.lock().remove(name);
                Ok(None)
            }
            Written::Unknown => {
                self.claimed.lock().remove(name);
                Err(KeyError("the shared state does not take the idempotency key".to_owned()))
            }
        }
    }

    /// What a stored call means. `None`: the key can be claimed.
    fn judge(&self, name: &str, call: &str, stored: StoredCall, reruns_unknown: bool) -> Option<KeyState> {
        if stored.call != call {
            return Some(KeyState::OtherCall);
        }
        let is_unknown = match stored.end {
            Some(StoredEnd::Result(text)) => {
                let age = Duration::from_millis(self.clock.now().saturating_sub(stored.at));
                match serde_json::from_str(text.get()) {
                    Ok(result) => return Some(KeyState::Ended(result, age)),
                    // A newer version wrote it.
                    Err(_) => true,
                }
            }
            Some(StoredEnd::Unknown) => true,
            None if stored.process == *self.roster.own() => {
                // A claim whose write had no reply: the call was refused.
                return self.claimed.lock().contains(name).then_some(KeyState::Running);
            }
            None if self.roster.is_alive(&stored.process) => return Some(KeyState::Running),
            None => true,
        };
        (is_unknown && !reruns_unknown).then_some(KeyState::Unknown)
    }

    /// Writes the end of a call. `false`: it is not written yet.
    async fn write_end(&self, key: &CallKey, claim: u64, end: Option<StoredEnd>) -> bool {
        let name = record_key(key);
        let found = match self.records.read::<StoredCall>(&name).await {
            Ok(found) => found.filter(|record| record.revision == Revision(claim)),
            Err(error) => {
                tracing::debug!(%error, "the end of a call with an idempotency key is not written yet");
                return false;
            }
        };
        // Another revision: the end is written, or the record was removed.
        let Some(record) = found else { return true };
        let Some(end) = end else {
            self.records.remove(&name, record.revision).await;
            return true;
        };
        let bytes = end.bytes();
        let ended = StoredCall { at: self.clock.now(), end: Some(end), ..record.value };
        let written = self.records.write(&name, Some(record.revision), &ended).await;
        let Written::Stored(revision) = written else { return false };
        self.make_room(&key.session, (name, revision), bytes);
        true
    }

    /// Forgets old records, if those of this replica are more than its share.
    fn make_room(&self, session: &Arc<str>, newest: (String, Revision), bytes: usize) {
        let most = MAX_ENDED_BYTES / self.roster.len();
        let forgotten = self.ended.lock().add(session, newest, bytes, most);
        if !forgotten.is_empty() {
            let records = self.records.clone();
            // A request for each, whose loss leaves the record until it expires. Ends after the last one.
            tokio::spawn(async move {
                for (name, revision) in forgotten {
                    records.remove(&name, revision).await;
                }
            });
        }
    }
}

impl StoredEnd {
    /// The bytes of the result.
    fn bytes(&self) -> usize {
        match self {
            Self::Result(text) => text.get().len(),
            Self::Unknown => 0,
        }
    }
}

impl CallKeys for NatsCallKeys {
    fn claim<'a>(
        &'a self,
        key: &'a CallKey,
        call: Digest,
        reruns_unknown: bool,
    ) -> BoxFuture<'a, Result<KeyState, KeyError>> {
        Box::pin(async move {
            let (name, call) = (record_key(key), call.to_string());
            for _ in 0..MAX_ATTEMPTS {
                if let Some(state) = self.try_claim(&name, &call, reruns_unknown).await? {
                    return Ok(state);
                }
            }
            Err(KeyError("other servers claim the same idempotency key".to_owned()))
        })
    }

    fn settle(&self, key: CallKey, claim: u64, end: CallEnd) -> BoxFuture<'static, ()> {
        let keys = self.clone();
        let (end, fallback) = match end {
            CallEnd::NotBegun => (None, None),
            CallEnd::Result(text) => {
                let result = RawValue::from_string(text.into()).map_or(StoredEnd::Unknown, StoredEnd::Result);
                (Some(result), Some(StoredEnd::Unknown))
            }
            CallEnd::Unknown => (Some(StoredEnd::Unknown), Some(StoredEnd::Unknown)),
        };
        Box::pin(async move {
            if !keys.write_end(&key, claim, end).await {
                // The store does not answer, or the result is too large for it. Ends when the end is written; if the
                // process ends first, the result is unknown, too.
                tokio::spawn(async move {
                    while !keys.write_end(&key, claim, fallback.clone()).await {
                        tokio::time::sleep(PAUSE).await;
                    }
                    keys.claimed.lock().remove(&record_key(&key));
                });
                return;
            }
            keys.claimed.lock().remove(&record_key(&key));
        })
    }
}

/// The record of a key. Keys and sessions may have any characters and may be secret.
fn record_key(key: &CallKey) -> String {
    let text = format!("{}\0{}", key.session, key.key);
    format!("{KEY}{}", Digest::of(text.as_bytes()))
}
