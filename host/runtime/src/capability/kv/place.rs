//! How buckets, keys and times are written in the tables; see [`super::tables`].

use toolbay_core::session::kv::Bucket;
use toolbay_policy::capability::kv::Scope;

use super::tables::Now;

/// An entry that would live longer than it was given, and so much longer, comes from a clock that was set back since:
/// then it counts as expired. Below this, clocks of two processes just differ.
pub(super) const CLOCK_SLACK_MS: u64 = 60_000;

/// Where an entry stands in `entries`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryKey {
    pub(super) bytes: Vec<u8>,
    /// Bytes that the guest's key has; they count.
    pub(super) key_bytes: usize,
}

impl EntryKey {
    pub(super) fn new(bucket: &Bucket, key: &str) -> Self {
        let mut bytes = bucket_prefix(bucket);
        bytes.extend_from_slice(key.as_bytes());
        Self { bytes, key_bytes: key.len() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

pub(super) fn plugin_prefix(plugin: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    // An id has at most 61 characters.
    bytes.push(u8::try_from(plugin.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(plugin.as_bytes());
    bytes
}

pub(super) fn bucket_prefix(bucket: &Bucket) -> Vec<u8> {
    let mut bytes = plugin_prefix(bucket.plugin().as_str());
    bytes.push(match bucket.scope() {
        Scope::Tool => b't',
        Scope::Plugin => b'p',
        Scope::Session => b's',
        Scope::Agent => b'a',
    });
    // An owner has at most `MAX_OWNER_BYTES`.
    bytes.extend_from_slice(&u16::try_from(bucket.owner().len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(bucket.owner().as_bytes());
    bytes
}

/// One entry that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryInfo {
    /// Who shares it.
    pub scope: Scope,
    /// The tool, the session or the agent; empty for the scope `plugin`.
    pub owner: String,
    /// The key.
    pub key: String,
    /// Bytes of the value.
    pub bytes: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// Reads the place of an entry back; `None` for what this host did not write.
pub(super) fn parse_place(bytes: &[u8]) -> Option<(Scope, String, String)> {
    let (length, rest) = bytes.split_first()?;
    let rest = rest.get(usize::from(*length)..)?;
    let (scope, rest) = rest.split_first()?;
    let scope = match scope {
        b't' => Scope::Tool,
        b'p' => Scope::Plugin,
        b's' => Scope::Session,
        b'a' => Scope::Agent,
        _ => return None,
    };
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (owner, key) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((scope, String::from_utf8(owner.to_vec()).ok()?, String::from_utf8(key.to_vec()).ok()?))
}

/// When an entry ends, and how long it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expiry {
    pub(super) at_ms: u64,
    pub(super) ttl_s: u32,
}

impl Expiry {
    pub(super) fn after(now: Now, ttl_s: u32) -> Self {
        Self { at_ms: now.saturating_add(u64::from(ttl_s) * 1000).max(1), ttl_s }
    }

    pub(super) fn is_over(self, now: Now) -> bool {
        let left = self.at_ms.saturating_sub(now);
        left == 0 || left > u64::from(self.ttl_s) * 1000 + CLOCK_SLACK_MS
    }
}

/// Splits what is stored into expiry and value.
pub(super) fn parse(stored: &[u8]) -> (Option<Expiry>, &[u8]) {
    let Some((at, rest)) = stored.split_first_chunk::<8>() else { return (None, &[]) };
    let Some((ttl, value)) = rest.split_first_chunk::<4>() else { return (None, &[]) };
    let expiry = Expiry { at_ms: u64::from_be_bytes(*at), ttl_s: u32::from_be_bytes(*ttl) };
    ((expiry.at_ms != 0).then_some(expiry), value)
}

/// The value of an entry that lives.
pub(super) fn live(stored: &[u8], now: Now) -> Option<&[u8]> {
    let (expiry, value) = parse(stored);
    (!expiry.is_some_and(|expiry| expiry.is_over(now))).then_some(value)
}
