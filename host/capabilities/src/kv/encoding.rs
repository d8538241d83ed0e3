//! The encoding of buckets, keys and times in the tables; see [`super::tables`].

use toolbay_core::session::kv::Bucket;
use toolbay_policy::capability::kv::KvScope;

use super::tables::TimestampMs;

/// An entry whose remaining life exceeds its time to live by more than this was written before the clock was set
/// back, and counts as expired. Below it, the clocks of two processes just differ.
pub(super) const CLOCK_SLACK_MS: u64 = 60_000;

/// The key of an entry in the table `entries`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryKey {
    pub(super) bytes: Vec<u8>,
    /// Length of the guest's key, which counts against the quota.
    pub(super) key_bytes: usize,
}

impl EntryKey {
    pub(super) fn new(bucket: &Bucket, key: &str) -> Self {
        let mut bytes = bucket_prefix(bucket);
        bytes.extend_from_slice(key.as_bytes());
        Self { bytes, key_bytes: key.len() }
    }

    /// The key of a row of `entries`.
    pub(super) fn from_stored(bytes: &[u8]) -> Self {
        let key_bytes = decode_key(bytes).map_or(0, |(_, _, key)| key.len());
        Self { bytes: bytes.to_vec(), key_bytes }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

pub(super) fn plugin_prefix(plugin: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    // A plugin id has at most 61 characters.
    bytes.push(u8::try_from(plugin.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(plugin.as_bytes());
    bytes
}

pub(super) fn bucket_prefix(bucket: &Bucket) -> Vec<u8> {
    let mut bytes = plugin_prefix(bucket.plugin().as_str());
    bytes.push(match bucket.scope() {
        KvScope::Tool => b't',
        KvScope::Plugin => b'p',
        KvScope::Session => b's',
        KvScope::Agent => b'a',
    });
    // An owner has at most `MAX_OWNER_BYTES`.
    bytes.extend_from_slice(&u16::try_from(bucket.owner().len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(bucket.owner().as_bytes());
    bytes
}

/// A live entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryInfo {
    /// The scope of the entry.
    pub scope: KvScope,
    /// The tool, the session or the agent; empty for the scope `plugin`.
    pub owner: String,
    /// The key.
    pub key: String,
    /// Bytes of the value.
    pub bytes: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// Decodes the key of an entry; `None` for a key that this host did not write.
pub(super) fn decode_key(bytes: &[u8]) -> Option<(KvScope, String, String)> {
    let (length, rest) = bytes.split_first()?;
    let rest = rest.get(usize::from(*length)..)?;
    let (scope, rest) = rest.split_first()?;
    let scope = match scope {
        b't' => KvScope::Tool,
        b'p' => KvScope::Plugin,
        b's' => KvScope::Session,
        b'a' => KvScope::Agent,
        _ => return None,
    };
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (owner, key) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((scope, String::from_utf8(owner.to_vec()).ok()?, String::from_utf8(key.to_vec()).ok()?))
}

/// The expiry of an entry and its time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expiry {
    pub(super) at_ms: u64,
    pub(super) ttl_s: u32,
}

impl Expiry {
    pub(super) fn from_ttl(now: TimestampMs, ttl_s: u32) -> Self {
        Self { at_ms: now.saturating_add(u64::from(ttl_s) * 1000).max(1), ttl_s }
    }

    pub(super) fn is_expired(self, now: TimestampMs) -> bool {
        let left = self.at_ms.saturating_sub(now);
        left == 0 || left > u64::from(self.ttl_s) * 1000 + CLOCK_SLACK_MS
    }
}

/// Splits a stored value into expiry and value.
pub(super) fn decode_value(stored: &[u8]) -> (Option<Expiry>, &[u8]) {
    let Some((at, rest)) = stored.split_first_chunk::<8>() else { return (None, &[]) };
    let Some((ttl, value)) = rest.split_first_chunk::<4>() else { return (None, &[]) };
    let expiry = Expiry { at_ms: u64::from_be_bytes(*at), ttl_s: u32::from_be_bytes(*ttl) };
    ((expiry.at_ms != 0).then_some(expiry), value)
}

/// The value of an entry; `None` if it has expired.
pub(super) fn live_value(stored: &[u8], now: TimestampMs) -> Option<&[u8]> {
    let (expiry, value) = decode_value(stored);
    (!expiry.is_some_and(|expiry| expiry.is_expired(now))).then_some(value)
}
