//! The `kv` interface of the contract.

use std::sync::Arc;
use std::time::Duration;

use toolbay_core::session::kv::{self, Bucket, KvStore, MAX_KEY_BYTES, MAX_LISTED, Quota};
use toolbay_policy::GrantKey;
use toolbay_policy::capability::kv::KvScope;
use toolbay_policy::limits::Limit;

use super::bucket_owner;
use crate::Capabilities;
use crate::bindings::host::kv::{Host, KvError, Scope};

/// The bucket of a granted scope.
struct GrantedBucket {
    store: Arc<dyn KvStore>,
    bucket: Bucket,
    quota: Quota,
}

impl Capabilities {
    /// Checks that the scope is granted and returns its bucket.
    fn granted_bucket(&self, scope: Scope) -> Result<GrantedBucket, KvError> {
        let scope = match scope {
            Scope::Tool => KvScope::Tool,
            Scope::Plugin => KvScope::Plugin,
            Scope::Session => KvScope::Session,
            Scope::Agent => KvScope::Agent,
        };
        let granted = self.grantee.granted.as_ref().filter(|granted| granted.grants.kv.contains(&scope));
        let (Some(granted), Some(ctx)) = (granted, &self.grantee.ctx) else {
            return Err(KvError::Denied(self.grantee.refuse(GrantKey::Kv, scope.as_str())));
        };
        let owner = bucket_owner(scope, granted.tool.as_str(), &ctx.turn);
        let bucket = Bucket::new(self.grantee.plugin.clone(), scope, &owner).map_err(KvError::Other)?;
        self.grantee.note(GrantKey::Kv, scope.as_str(), true);
        let quota = Quota {
            value_bytes: self.grantee.limits.kv_value_bytes,
            bytes: self.grantee.limits.kv_bytes,
            keys: self.grantee.limits.kv_keys,
        };
        Ok(GrantedBucket { store: Arc::clone(&granted.services.kv), bucket, quota })
    }

    /// Checks that the scope is granted.
    pub(super) fn check_scope(&self, scope: Scope) -> Result<(), KvError> {
        self.granted_bucket(scope).map(drop)
    }

    fn bucket_for_key(&self, scope: Scope, key: &str) -> Result<GrantedBucket, KvError> {
        let access = self.granted_bucket(scope)?;
        kv::check_key(key)?;
        Ok(access)
    }

    fn check_kv_value(&self, value: &[u8]) -> Result<(), KvError> {
        let bytes = value.len() as u64;
        if bytes > self.grantee.limits.kv_value_bytes { Err(KvError::TooLarge(bytes)) } else { Ok(()) }
    }

    /// Converts an error. The contract's `quota-exceeded` has no text, so the operator gets the policy lines that
    /// raise the quota.
    fn to_guest_kv_error(&self, error: kv::KvError) -> KvError {
        if error == kv::KvError::QuotaExceeded {
            let [bytes, keys] = [Limit::KvBytes, Limit::KvKeys]
                .map(|limit| self.grantee.limits.hit(limit, &self.grantee.plugin));
            tracing::warn!(
                plugin = %self.grantee.plugin,
                "the key-value quota is used up ({} {}, {} {}): {} {}",
                bytes.name, bytes.value, keys.name, keys.value, bytes.setting, keys.setting
            );
            for limit in [Limit::KvBytes, Limit::KvKeys] {
                drop(self.grantee.limit_error("the key-value quota is used up", limit));
            }
        }
        error.into()
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
        let GrantedBucket { store, bucket, .. } = self.bucket_for_key(scope, &key)?;
        Ok(store.get(&bucket, &key).await?)
    }

    async fn set(
        &mut self,
        scope: Scope,
        key: String,
        value: Vec<u8>,
        ttl_seconds: Option<u32>,
    ) -> Result<(), KvError> {
        let GrantedBucket { store, bucket, quota } = self.bucket_for_key(scope, &key)?;
        self.check_kv_value(&value)?;
        let ttl = ttl_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        store.set(&bucket, &key, value, ttl, quota).await.map_err(|error| self.to_guest_kv_error(error))
    }

    async fn remove(&mut self, scope: Scope, key: String) -> Result<(), KvError> {
        let GrantedBucket { store, bucket, .. } = self.bucket_for_key(scope, &key)?;
        Ok(store.remove(&bucket, &key).await?)
    }

    async fn keys(
        &mut self,
        scope: Scope,
        prefix: String,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<String>, KvError> {
        let GrantedBucket { store, bucket, .. } = self.granted_bucket(scope)?;
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
        let GrantedBucket { store, bucket, quota } = self.bucket_for_key(scope, &key)?;
        store.increment(&bucket, &key, by, quota).await.map_err(|error| self.to_guest_kv_error(error))
    }

    async fn replace(
        &mut self,
        scope: Scope,
        key: String,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<bool, KvError> {
        let GrantedBucket { store, bucket, quota } = self.bucket_for_key(scope, &key)?;
        self.check_kv_value(&value)?;
        // Waiting writes are held in memory.
        expected.as_deref().map_or(Ok(()), |expected| self.check_kv_value(expected))?;
        store
            .replace(&bucket, &key, expected, value, quota)
            .await
            .map_err(|error| self.to_guest_kv_error(error))
    }
}
