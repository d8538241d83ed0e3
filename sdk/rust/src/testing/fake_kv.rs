//! The key-value store of a fake host: one plugin, one session, one agent, and a clock that a test advances.

use std::collections::BTreeMap;

use crate::bindings::imports::toolbay::plugin::kv::{KvError, Scope};

type FakeKvReply<T> = Result<T, KvError>;

/// The longest key, in bytes, as in the real host.
const MAX_KEY: usize = 512;
/// The most keys of a listing, as in the real host.
const MAX_LISTED: usize = 1000;

/// The granted scopes, initially none.
#[derive(Debug, Default)]
pub(crate) struct FakeKv {
    granted: Vec<Scope>,
    entries: BTreeMap<(u8, String), FakeKvEntry>,
    seconds: u64,
    /// The limit for the bytes of keys and values; `None`: unlimited.
    quota: Option<usize>,
}

#[derive(Debug)]
struct FakeKvEntry {
    value: Vec<u8>,
    /// The second at which the entry expires.
    end: Option<u64>,
}

impl FakeKv {
    pub(crate) fn grant(&mut self, scope: Scope) {
        self.granted.push(scope);
    }

    pub(crate) fn limit(&mut self, bytes: usize) {
        self.quota = Some(bytes);
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.seconds += seconds;
        self.entries.retain(|_, entry| entry.end.is_none_or(|end| end > self.seconds));
    }

    /// Whether the scope is granted and the key is valid.
    fn place(&self, scope: Scope, key: &str) -> FakeKvReply<(u8, String)> {
        if !self.granted.contains(&scope) {
            return Err(KvError::Denied("not granted: grant it with `FakeHost::kv`".to_owned()));
        }
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(KvError::Other(format!("a key has 1 to {MAX_KEY} bytes")));
        }
        Ok((scope as u8, key.to_owned()))
    }

    pub(crate) fn get(&self, scope: Scope, key: &str) -> FakeKvReply<Option<Vec<u8>>> {
        Ok(self.entries.get(&self.place(scope, key)?).map(|entry| entry.value.clone()))
    }

    pub(crate) fn set(&mut self, scope: Scope, key: &str, value: &[u8], ttl: Option<u32>) -> FakeKvReply<()> {
        let place = self.place(scope, key)?;
        if ttl == Some(0) {
            self.entries.remove(&place);
            return Ok(());
        }
        self.put(place, value, ttl.map(|ttl| self.seconds + u64::from(ttl)))
    }

    fn put(&mut self, place: (u8, String), value: &[u8], end: Option<u64>) -> FakeKvReply<()> {
        let others = self.entries.iter().filter(|(kept, _)| **kept != place);
        let used: usize = others.map(|((_, key), entry)| key.len() + entry.value.len()).sum();
        if self.quota.is_some_and(|quota| used + place.1.len() + value.len() > quota) {
            return Err(KvError::QuotaExceeded);
        }
        self.entries.insert(place, FakeKvEntry { value: value.to_vec(), end });
        Ok(())
    }

    pub(crate) fn remove(&mut self, scope: Scope, key: &str) -> FakeKvReply<()> {
        let place = self.place(scope, key)?;
        self.entries.remove(&place);
        Ok(())
    }

    pub(crate) fn keys(
        &self,
        scope: Scope,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> FakeKvReply<Vec<String>> {
        let (scope, _) = self.place(scope, "any")?;
        let keys = self.entries.keys().filter(|(of, _)| *of == scope).map(|(_, key)| key);
        let matching =
            keys.filter(|key| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after));
        let most = usize::try_from(limit).unwrap_or(MAX_LISTED).min(MAX_LISTED);
        Ok(matching.take(most).cloned().collect())
    }

    pub(crate) fn increment(&mut self, scope: Scope, key: &str, by: i64) -> FakeKvReply<i64> {
        let place = self.place(scope, key)?;
        let (number, end) = match self.entries.get(&place) {
            None => (0, None),
            Some(entry) => {
                let text = std::str::from_utf8(&entry.value).map_err(|_| KvError::NotANumber)?;
                (text.parse::<i64>().map_err(|_| KvError::NotANumber)?, entry.end)
            }
        };
        let sum = number.checked_add(by).ok_or_else(|| KvError::Other("the sum is too large".to_owned()))?;
        self.put(place, sum.to_string().as_bytes(), end)?;
        Ok(sum)
    }

    pub(crate) fn replace(
        &mut self,
        scope: Scope,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> FakeKvReply<bool> {
        let place = self.place(scope, key)?;
        let kept = self.entries.get(&place);
        if kept.map(|entry| entry.value.as_slice()) != expected {
            return Ok(false);
        }
        let end = kept.and_then(|entry| entry.end);
        self.put(place, value, end)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::kv::{self, Scope};
    use crate::testing::FakeHost;
    use crate::types::ErrorCode;

    #[test]
    fn a_scope_is_there_when_it_was_granted() {
        assert_eq!(kv::get(Scope::Plugin, "a").unwrap_err().code(), ErrorCode::NotAvailable);
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            kv::set(Scope::Plugin, "a", "1", None).unwrap();
            assert_eq!(kv::get(Scope::Plugin, "a").unwrap().as_deref(), Some(&b"1"[..]));
            assert_eq!(kv::get(Scope::Session, "a").unwrap_err().subject(), Some("denied"));
        });
    }

    #[test]
    fn entries_end_change_and_are_listed_as_the_host_does_it() {
        let fake = FakeHost::new().kv(Scope::Plugin).kv_bytes(20);
        fake.run(|| {
            kv::set(Scope::Plugin, "x/b", "1", Some(10)).unwrap();
            kv::set(Scope::Plugin, "x/a", "1", None).unwrap();
            assert_eq!(kv::keys(Scope::Plugin, "x/", None, 10).unwrap(), ["x/a", "x/b"]);
            assert_eq!(kv::keys(Scope::Plugin, "x/", Some("x/a"), 10).unwrap(), ["x/b"]);
            assert_eq!(kv::increment(Scope::Plugin, "x/b", 41).unwrap(), 42);
            assert!(!kv::replace(Scope::Plugin, "x/a", None, "2").unwrap());
            assert!(kv::replace(Scope::Plugin, "x/a", Some(b"1"), "2").unwrap());
            let full = kv::set(Scope::Plugin, "y", "0123456789012345", None).unwrap_err();
            assert_eq!(full.subject(), Some("quota"));
            assert!(kv::set(Scope::Plugin, "", "1", None).is_err());
        });
        fake.pass_seconds(10);
        fake.run(|| assert_eq!(kv::get(Scope::Plugin, "x/b").unwrap(), None));
    }
}
