//! State that outlives a call: whose it is, and the port to what keeps it.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use toolbay_policy::capability::kv::Scope;
use toolbay_policy::name::PluginId;

/// Most bytes of a key. Long enough for a path or a URL; short enough that a full listing of [`MAX_LISTED`] keys
/// stays below a megabyte.
pub const MAX_KEY_BYTES: usize = 512;
/// Most bytes of the id of a session, an agent or a personality whose state is kept.
pub const MAX_OWNER_BYTES: usize = 512;
/// Most keys that one listing returns; the rest comes with `after`.
pub const MAX_LISTED: u32 = 1000;

/// Whose entries are meant: nothing is shared between two buckets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    plugin: PluginId,
    scope: Scope,
    owner: String,
}

impl Bucket {
    /// The entries of `owner`: the tool's name, nothing for the scope `plugin`, the id of the session or agent.
    ///
    /// # Errors
    /// When nobody is named where somebody must be, which would be a bucket that strangers share; when the name is
    /// longer than [`MAX_OWNER_BYTES`].
    pub fn new(plugin: PluginId, scope: Scope, owner: &str) -> Result<Self, String> {
        let named = scope != Scope::Plugin;
        if named == owner.is_empty() {
            let who = if named { "has no" } else { "takes no" };
            return Err(format!("the call {who} `{}` whose state it would be", scope.as_str()));
        }
        if owner.len() > MAX_OWNER_BYTES {
            let (bytes, scope) = (owner.len(), scope.as_str());
            return Err(format!(
                "the id of the {scope} has {bytes} bytes; state is kept for {MAX_OWNER_BYTES}"
            ));
        }
        Ok(Self { plugin, scope, owner: owner.to_owned() })
    }

    /// The plugin.
    #[must_use]
    pub fn plugin(&self) -> &PluginId {
        &self.plugin
    }

    /// Who shares the entries.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The tool, the session or the agent; empty for the scope `plugin`.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }
}

/// How much a plugin may keep. Given with each write, since the operator may change it between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of one value.
    pub value_bytes: u64,
    /// Bytes of all keys and values of the plugin together, in all scopes.
    pub bytes: u64,
    /// Keys of the plugin, in all scopes.
    pub keys: u64,
}

/// Why the store did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// The value has so many bytes, more than [`Quota::value_bytes`].
    #[error("the value has {0} bytes, which is too large")]
    TooLarge(u64),
    /// The plugin would keep more than its quota.
    #[error("the quota of the plugin is used up")]
    QuotaExceeded,
    /// What is to be incremented is no decimal number of 64 bits.
    #[error("the value is not a number")]
    NotANumber,
    /// Anything else; for people to read.
    #[error("{0}")]
    Other(String),
}

/// Says what is wrong with a key.
///
/// # Errors
/// It is empty or has more than [`MAX_KEY_BYTES`]. Any character may be in it, NUL too.
pub fn check_key(key: &str) -> Result<(), KvError> {
    match key.len() {
        0 => Err(KvError::Other("the key is empty".to_owned())),
        1..=MAX_KEY_BYTES => Ok(()),
        bytes => Err(KvError::Other(format!("the key has {bytes} bytes; a key has at most {MAX_KEY_BYTES}"))),
    }
}

/// Keeps entries. The host checks keys with [`check_key`], owners with [`Bucket::new`] and the granted scopes before it
/// asks.
///
/// Each operation is atomic, also towards other hosts on the same store. What was acknowledged is kept as long as the
/// store promises. An entry whose time is up is not there for any operation. A future that is dropped may or may not
/// have had its effect, never half of it.
pub trait KvStore: Send + Sync + fmt::Debug {
    /// The value of a key; `None` if it is not there.
    fn get<'a>(&'a self, bucket: &'a Bucket, key: &'a str)
    -> BoxFuture<'a, Result<Option<Vec<u8>>, KvError>>;

    /// Sets a key, for a while or for good; a time of zero removes it.
    fn set<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        value: Vec<u8>,
        ttl: Option<Duration>,
        quota: Quota,
    ) -> BoxFuture<'a, Result<(), KvError>>;

    /// Removes a key, if it is there.
    fn remove<'a>(&'a self, bucket: &'a Bucket, key: &'a str) -> BoxFuture<'a, Result<(), KvError>>;

    /// The keys with a prefix that come after `after`, sorted by their bytes, at most `limit`.
    fn keys<'a>(
        &'a self,
        bucket: &'a Bucket,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<String>, KvError>>;

    /// Adds to a decimal number; an absent key counts as 0. The entry's time runs on. A sum beyond 64 bits is an error
    /// and changes nothing.
    fn increment<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        by: i64,
        quota: Quota,
    ) -> BoxFuture<'a, Result<i64, KvError>>;

    /// Sets a key only if it holds `expected` (`None`: only if it is not there) and tells whether it did. The entry's
    /// time runs on.
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
    fn a_bucket_names_its_owner_or_is_refused() {
        let plugin = || PluginId::new("p").unwrap();
        for (scope, owner, fine) in [
            (Scope::Plugin, "", true),
            (Scope::Plugin, "x", false),
            (Scope::Tool, "t", true),
            (Scope::Tool, "", false),
            (Scope::Session, "s\0", true),
            (Scope::Session, "", false),
            (Scope::Agent, "", false),
            (Scope::Agent, &"a".repeat(512), true),
            (Scope::Agent, &"a".repeat(513), false),
        ] {
            assert_eq!(Bucket::new(plugin(), scope, owner).is_ok(), fine, "{scope:?} {owner}");
        }
    }

    #[test]
    fn keys_have_a_length_and_any_character() {
        for good in ["a", "\0", "ü", &"k".repeat(512)] {
            assert_eq!(check_key(good), Ok(()), "{good:?}");
        }
        for bad in ["", &"k".repeat(513), &"ü".repeat(257)] {
            assert!(matches!(check_key(bad), Err(KvError::Other(_))), "{bad:?}");
        }
    }
}
