//! `kv`: state that outlives a call, in the scopes that were granted.
//!
//! The host says whose entries a call means: the guest names a scope and a key, never a plugin, a session or an agent.

mod backup;
mod open;
mod place;
mod read;
mod store;
mod tables;
mod writer;

pub use place::EntryInfo;
pub use store::{KvUsage, RedbStore};

use std::sync::Arc;
use std::time::Duration;

use toolbay_core::call::Identity;
use toolbay_core::session::kv::{self, Bucket, KvStore, MAX_KEY_BYTES, MAX_LISTED, Quota};
use toolbay_policy::Key;
use toolbay_policy::capability::kv as granted_kv;
use toolbay_policy::limits::Limit;

use super::Capabilities;
use crate::engine::bindings::host::kv::{Host, KvError, Scope};

/// What an operation works with, once it is granted.
struct Access {
    store: Arc<dyn KvStore>,
    bucket: Bucket,
    quota: Quota,
}

impl Capabilities {
    /// Checks that the scope is granted and says whose entries are meant.
    fn kv(&self, scope: Scope) -> Result<Access, KvError> {
        let scope = match scope {
            Scope::Tool => granted_kv::Scope::Tool,
            Scope::Plugin => granted_kv::Scope::Plugin,
            Scope::Session => granted_kv::Scope::Session,
            Scope::Agent => granted_kv::Scope::Agent,
        };
        let granted = self.who.granted.as_ref().filter(|granted| granted.grants.kv.contains(&scope));
        let (Some(granted), Some(ctx)) = (granted, &self.who.ctx) else {
            return Err(KvError::Denied(self.who.refuse(Key::Kv, scope.as_str())));
        };
        let owner = owner(scope, granted.tool.as_str(), &ctx.turn.identity);
        let bucket = Bucket::new(self.who.plugin.clone(), scope, &owner).map_err(KvError::Other)?;
        self.who.note(Key::Kv, scope.as_str(), true);
        let quota = Quota {
            value_bytes: self.who.limits.kv_value_bytes,
            bytes: self.who.limits.kv_bytes,
            keys: self.who.limits.kv_keys,
        };
        Ok(Access { store: Arc::clone(&granted.services.kv), bucket, quota })
    }

    fn kv_access(&self, scope: Scope, key: &str) -> Result<Access, KvError> {
        let access = self.kv(scope)?;
        kv::check_key(key)?;
        Ok(access)
    }

    fn check_value(&self, value: &[u8]) -> Result<(), KvError> {
        let bytes = value.len() as u64;
        if bytes > self.who.limits.kv_value_bytes { Err(KvError::TooLarge(bytes)) } else { Ok(()) }
    }

    /// The contract's `quota-exceeded` says nothing; the operator hears which lines would help.
    fn kv_failed(&self, error: kv::KvError) -> KvError {
        if error == kv::KvError::QuotaExceeded {
            let [bytes, keys] =
                [Limit::KvBytes, Limit::KvKeys].map(|limit| self.who.limits.hit(limit, &self.who.plugin));
            tracing::warn!(
                plugin = %self.who.plugin,
                "its key-value quota is used up ({} {}, {} {}): {} {}",
                bytes.name, bytes.value, keys.name, keys.value, bytes.setting, keys.setting
            );
            for limit in [Limit::KvBytes, Limit::KvKeys] {
                drop(self.who.over("its key-value quota is used up", limit));
            }
        }
        error.into()
    }
}

/// Whose entries a call means; empty where it does not say who it is.
fn owner(scope: granted_kv::Scope, tool: &str, identity: &Identity) -> String {
    let named = |kind: &str, id: &Option<String>| {
        id.as_ref().filter(|id| !id.is_empty()).map(|id| format!("{kind}:{id}"))
    };
    match scope {
        granted_kv::Scope::Tool => tool.to_owned(),
        granted_kv::Scope::Plugin => String::new(),
        granted_kv::Scope::Session => identity.session_id.clone().unwrap_or_default(),
        // An agent and a personality of one name are not one.
        granted_kv::Scope::Agent => named("agent", &identity.agent_id)
            .or_else(|| named("personality", &identity.personality_id))
            .unwrap_or_default(),
    }
}

impl From<kv::KvError> for KvError {
    fn from(error: kv::KvError) -> Self {
        match error {
            kv::KvError::TooLarge(bytes) => Self::TooLarge(bytes),
            kv::KvError::QuotaExceeded => Self::QuotaExceeded,
            kv::KvError::NotANumber => Self::NotANumber,
            kv::KvError::Other(message) => Self::Other(message),
        }
    }
}

impl Host for Capabilities {
    async fn get(&mut self, scope: Scope, key: String) -> Result<Option<Vec<u8>>, KvError> {
        let Access { store, bucket, .. } = self.kv_access(scope, &key)?;
        Ok(store.get(&bucket, &key).await?)
    }

    async fn set(
        &mut self,
        scope: Scope,
        key: String,
        value: Vec<u8>,
        ttl_seconds: Option<u32>,
    ) -> Result<(), KvError> {
        let Access { store, bucket, quota } = self.kv_access(scope, &key)?;
        self.check_value(&value)?;
        let ttl = ttl_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        store.set(&bucket, &key, value, ttl, quota).await.map_err(|error| self.kv_failed(error))
    }

    async fn remove(&mut self, scope: Scope, key: String) -> Result<(), KvError> {
        let Access { store, bucket, .. } = self.kv_access(scope, &key)?;
        Ok(store.remove(&bucket, &key).await?)
    }

    async fn keys(
        &mut self,
        scope: Scope,
        prefix: String,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<String>, KvError> {
        let Access { store, bucket, .. } = self.kv(scope)?;
        for (what, text) in [("prefix", Some(&prefix)), ("cursor", after.as_ref())] {
            if let Some(bytes) = text.map(String::len).filter(|bytes| *bytes > MAX_KEY_BYTES) {
                let problem = format!("the {what} has {bytes} bytes; a key has at most {MAX_KEY_BYTES}");
                return Err(KvError::Other(problem));
            }
        }
        if limit == 0 {
            return Ok(Vec::new());
        }
        Ok(store.keys(&bucket, &prefix, after.as_deref(), limit.min(MAX_LISTED)).await?)
    }

    async fn increment(&mut self, scope: Scope, key: String, by: i64) -> Result<i64, KvError> {
        let Access { store, bucket, quota } = self.kv_access(scope, &key)?;
        store.increment(&bucket, &key, by, quota).await.map_err(|error| self.kv_failed(error))
    }

    async fn replace(
        &mut self,
        scope: Scope,
        key: String,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<bool, KvError> {
        let Access { store, bucket, quota } = self.kv_access(scope, &key)?;
        self.check_value(&value)?;
        // What waits for the disk is held in memory.
        expected.as_deref().map_or(Ok(()), |expected| self.check_value(expected))?;
        store.replace(&bucket, &key, expected, value, quota).await.map_err(|error| self.kv_failed(error))
    }
}

#[cfg(test)]
mod tests;
