//! Recorded conversations: an embedder writes turns, and the tool `conversation_search` of the plugin `memory` reads
//! them.
//!
//! A turn is an entry of the key-value store, in the plugin's bucket of the agent: the scope `agent`, which the
//! operator must grant. Keys begin with `turn/` and sort the newest turn first.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use toolbay_capabilities::kv::bucket_owner;
use toolbay_core::call::TurnContext;
use toolbay_core::session::kv::{Bucket, KvError, Quota};
use toolbay_policy::capability::kv::KvScope;
use toolbay_policy::name::PluginId;

use crate::host::Host;

/// Maximum number of attempts to find a free key for turns of the same millisecond.
const TRIES: u32 = 100;

/// A turn of a conversation.
#[derive(Debug, Clone)]
pub struct ConversationTurn {
    /// The speaker: `user`, `assistant`, or another word of the embedder.
    pub role: String,
    /// What was said.
    pub text: String,
    /// The time of the turn. A time before 1970 counts as 1970.
    pub time: SystemTime,
}

/// A turn as the plugin reads it.
#[derive(Serialize)]
struct StoredTurn<'a> {
    session: &'a str,
    role: &'a str,
    /// Unix milliseconds.
    at: u64,
    text: &'a str,
}

impl Host {
    /// Records a turn of a conversation for a plugin, usually `memory`. Its tools find the turn in later sessions of the
    /// same agent, if the policy grants them `kv` of `agent`. It expires after `ttl`, if given.
    ///
    /// # Errors
    /// The session has no id, the identity names neither an agent nor a personality; a limit of the plugin (`kv_value_bytes`,
    /// `kv_bytes`, `kv_keys`) is reached; or the store failed.
    pub async fn record_turn(
        &self,
        plugin: &PluginId,
        context: &TurnContext,
        turn: &ConversationTurn,
        ttl: Option<Duration>,
    ) -> Result<(), KvError> {
        let session = context.session.id();
        let session = session.ok_or_else(|| KvError::Other("the session has no id".to_owned()))?;
        let owner = bucket_owner(KvScope::Agent, "", context);
        let bucket = Bucket::new(plugin.clone(), KvScope::Agent, &owner).map_err(KvError::Other)?;
        let services = self.installed.services();
        let limits = services.policy.limits(plugin, None);
        let quota =
            Quota { value_bytes: limits.kv_value_bytes, bytes: limits.kv_bytes, keys: limits.kv_keys };
        let since = turn.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let stored = StoredTurn { session, role: &turn.role, at, text: &turn.text };
        let value = serde_json::to_vec(&stored).map_err(|error| KvError::Other(error.to_string()))?;
        if value.len() as u64 > quota.value_bytes {
            return Err(KvError::TooLarge(value.len() as u64));
        }
        for number in 0..TRIES {
            let key = format!("turn/{:020}-{number:02}", u64::MAX - at);
            if services.kv.replace(&bucket, &key, None, value.clone(), quota).await? {
                return match ttl {
                    Some(ttl) => services.kv.set(&bucket, &key, value, Some(ttl), quota).await,
                    None => Ok(()),
                };
            }
        }
        Err(KvError::Other(format!("{TRIES} turns have the same time")))
    }
}
