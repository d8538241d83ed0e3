//! Key-value storage of plugins: buckets, quotas and the port to the store.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use toolbay_policy::capability::kv::KvScope;
use toolbay_policy::name::PluginId;

/// Most bytes of a key. Long enough for a path or a URL; short enough that a full listing of [`MAX_LISTED`] keys
/// stays below a megabyte.
pub const MAX_KEY_BYTES: usize = 512;
/// Most bytes of the id of a session, an agent or a personality that owns entries.
pub const MAX_OWNER_BYTES: usize = 512;
/// Most keys that one listing returns. Pass the last key as `after` to get the next ones.
pub const MAX_LISTED: u32 = 1000;

/// A set of entries with one plugin, scope and owner. Buckets share nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    plugin: PluginId,
    scope: KvScope,
    owner: String,
}

impl Bucket {
    /// The bucket of `owner`: the tool's name, the id of the session or agent, or an empty text for the scope `plugin`.
    ///
    /// # Errors
    /// The owner is missing, so that strangers would share the bucket; the scope takes no owner; or the owner is longer
    /// than [`MAX_OWNER_BYTES`].
    pub fn new(plugin: PluginId, scope: KvScope, owner: &str) -> Result<Self, String> {
        let needs_owner = scope != KvScope::Plugin;
        if needs_owner == owner.is_empty() {
            let problem = if needs_owner { "has no" } else { "takes no" };
            return Err(format!("the call {problem} `{}` that owns the entries", scope.as_str()));
        }
        if owner.len() > MAX_OWNER_BYTES {
            let (bytes, scope) = (owner.len(), scope.as_str());
            return Err(format!(
                "the id of the {scope} has {bytes} bytes; the limit is {MAX_OWNER_BYTES} bytes"
            ));
        }
        Ok(Self { plugin, scope, owner: owner.to_owned() })
    }

    /// The plugin.
    #[must_use]
    pub fn plugin(&self) -> &PluginId {
        &self.plugin
    }

    /// The scope that shares the entries.
    #[must_use]
    pub fn scope(&self) -> KvScope {
        self.scope
    }

    /// The tool, the session or the agent; empty for the scope `plugin`.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }
}

/// The storage limits of a plugin. Each write passes them, since the operator may change them at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of one value.
    pub value_bytes: u64,
    /// Bytes of all keys and values of the plugin together, in all scopes.
    pub bytes: u64,
    /// Keys of the plugin, in all scopes.
    pub keys: u64,
}

/// The error of a store operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// The value has this many bytes, more than [`Quota::value_bytes`].
    #[error("the value has {0} bytes, which is too large")]
    TooLarge(u64),
    /// The write would exceed the plugin's quota.
    #[error("the quota of the plugin is used up")]
    QuotaExceeded,
    /// The value to increment is not a decimal 64-bit integer.
    #[error("the value is not a number")]
    NotANumber,
    /// Any other error, with a message for people.
    #[error("{0}")]
    Other(String),
}

/// Checks a key. It may contain any character, including NUL.
///
/// # Errors
/// The key is empty or longer than [`MAX_KEY_BYTES`].
pub fn check_key(key: &str) -> Result<(), KvError> {
    match key.len() {
        0 => Err(KvError::Other("the key is empty".to_owned())),
        1..=MAX_KEY_BYTES => Ok(()),
        bytes => {
            Err(KvError::Other(format!("the key has {bytes} bytes; the limit is {MAX_KEY_BYTES} bytes")))
        }
    }
}

/// Stores entries. Before an operation the host checks the key with [`check_key`], the owner with [`Bucket::new`] and
/// the granted scope.
///
/// Each operation is atomic, also with respect to other replicas on the same store. Expired entries do not exist for any
/// operation. An operation whose future is dropped happens completely or not at all.
pub trait KvStore: Send + Sync + fmt::Debug {
    /// The value of a key; `None` if the key does not exist.
    fn get<'a>(&'a self, bucket: &'a Bucket, key: &'a str)
    -> BoxFuture<'a, Result<Option<Vec<u8>>, KvError>>;

    /// Sets a key. It expires after `ttl`, if given; a `ttl` of zero removes it.
    fn set<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        value: Vec<u8>,
        ttl: Option<Duration>,
        quota: Quota,
    ) -> BoxFuture<'a, Result<(), KvError>>;

    /// Removes a key, if it exists.
    fn remove<'a>(&'a self, bucket: &'a Bucket, key: &'a str) -> BoxFuture<'a, Result<(), KvError>>;

    /// The keys that start with `prefix` and sort after `after`, in byte order, at most `limit`.
    fn keys<'a>(
        &'a self,
        bucket: &'a Bucket,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<String>, KvError>>;

    /// Adds `by` to a decimal number and returns the sum. An absent key counts as 0. The expiry does not change. A sum
    /// beyond 64 bits is an error and changes nothing.
    fn increment<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        by: i64,
        quota: Quota,
    ) -> BoxFuture<'a, Result<i64, KvError>>;

    /// Sets a key only if its value is `expected` (`None`: only if the key does not exist). Returns whether the value
    /// was set. The expiry does not change.
    fn replace<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
        quota: Quota,
    ) -> BoxFuture<'a, Result<bool, KvError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_needs_the_owner_that_its_scope_requires() {
        let plugin = || PluginId::new("p").unwrap();
        for (scope, owner, fine) in [
            (KvScope::Plugin, "", true),
            (KvScope::Plugin, "x", false),
            (KvScope::Tool, "t", true),
            (KvScope::Tool, "", false),
            (KvScope::Session, "s\0", true),
            (KvScope::Session, "", false),
            (KvScope::Agent, "", false),
            (KvScope::Agent, &"a".repeat(512), true),
            (KvScope::Agent, &"a".repeat(513), false),
        ] {
            assert_eq!(Bucket::new(plugin(), scope, owner).is_ok(), fine, "{scope:?} {owner}");
        }
    }

    #[test]
    fn keys_have_a_bounded_length_and_any_characters() {
        for good in ["a", "\0", "ü", &"k".repeat(512)] {
            assert_eq!(check_key(good), Ok(()), "{good:?}");
        }
        for bad in ["", &"k".repeat(513), &"ü".repeat(257)] {
            assert!(matches!(check_key(bad), Err(KvError::Other(_))), "{bad:?}");
        }
    }
}
