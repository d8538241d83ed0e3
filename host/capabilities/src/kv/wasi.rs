//! `wasi:keyvalue` on the scopes of the `kv` grant: the name of a bucket is a scope, and `default` or nothing is the
//! scope `plugin`. Each operation is one of [`super::kv`], with its checks, quotas and records.

use toolbay_core::session::kv::MAX_LISTED;
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};

use super::open_bucket::OpenBucket;
use crate::Capabilities;
use crate::bindings::host::kv::{Host as _, KvError, Scope};
use crate::bindings::wasi_keyvalue::wasi::keyvalue::store::{self, Error, KeyResponse};
use crate::bindings::wasi_keyvalue::wasi::keyvalue::{atomics, batch};
use crate::state::GuestState;

/// The grants of an entry, and the table with its buckets.
struct KeyValueView<'a> {
    capabilities: &'a mut Capabilities,
    table: &'a mut ResourceTable,
}

struct HasKeyValue;

impl HasData for HasKeyValue {
    type Data<'a> = KeyValueView<'a>;
}

/// Links the interfaces.
pub(super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    store::add_to_linker::<_, HasKeyValue>(linker, view)?;
    atomics::add_to_linker::<_, HasKeyValue>(linker, view)?;
    batch::add_to_linker::<_, HasKeyValue>(linker, view)
}

fn view(state: &mut GuestState) -> KeyValueView<'_> {
    let (capabilities, table) = state.parts();
    KeyValueView { capabilities, table }
}

type Bucket = Resource<OpenBucket>;
/// The result of a function: an error of the interface inside, a trap outside.
type StoreResult<T> = wasmtime::Result<Result<T, Error>>;

impl KeyValueView<'_> {
    fn scope(&self, bucket: &Bucket) -> wasmtime::Result<Scope> {
        Ok(self.table.get(bucket)?.scope)
    }

    /// Converts an error. `access-denied` has no text, so the refusal is appended to the result of the call.
    fn to_wasi(&self, error: KvError) -> Error {
        Error::Other(match error {
            KvError::Denied(text) => {
                self.capabilities.grantee.append_refusal(&text);
                return Error::AccessDenied;
            }
            KvError::TooLarge(bytes) => format!("the value has {bytes} bytes, which is too large"),
            KvError::QuotaExceeded => "the quota of the plugin is used up".to_owned(),
            KvError::NotANumber => "the value is not a number".to_owned(),
            KvError::Other(text) => text,
        })
    }

    fn to_result<T>(&self, done: Result<T, KvError>) -> StoreResult<T> {
        Ok(done.map_err(|error| self.to_wasi(error)))
    }
}

impl store::Host for KeyValueView<'_> {
    async fn open(&mut self, identifier: String) -> StoreResult<Bucket> {
        let scope = match identifier.as_str() {
            "" | "default" | "plugin" => Scope::Plugin,
            "tool" => Scope::Tool,
            "session" => Scope::Session,
            "agent" => Scope::Agent,
            _ => return Ok(Err(Error::NoSuchStore)),
        };
        match self.capabilities.check_scope(scope) {
            Ok(()) => Ok(Ok(self.table.push(OpenBucket { scope, page: (0, None) })?)),
            Err(error) => Ok(Err(self.to_wasi(error))),
        }
    }
}

impl store::HostBucket for KeyValueView<'_> {
    async fn get(&mut self, bucket: Bucket, key: String) -> StoreResult<Option<Vec<u8>>> {
        let scope = self.scope(&bucket)?;
        let found = self.capabilities.get(scope, key).await;
        self.to_result(found)
    }

    async fn set(&mut self, bucket: Bucket, key: String, value: Vec<u8>) -> StoreResult<()> {
        let scope = self.scope(&bucket)?;
        let done = self.capabilities.set(scope, key, value, None).await;
        self.to_result(done)
    }

    async fn delete(&mut self, bucket: Bucket, key: String) -> StoreResult<()> {
        let scope = self.scope(&bucket)?;
        let done = self.capabilities.remove(scope, key).await;
        self.to_result(done)
    }

    async fn exists(&mut self, bucket: Bucket, key: String) -> StoreResult<bool> {
        let scope = self.scope(&bucket)?;
        let found = self.capabilities.get(scope, key).await.map(|value| value.is_some());
        self.to_result(found)
    }

    async fn list_keys(&mut self, bucket: Bucket, cursor: Option<u64>) -> StoreResult<KeyResponse> {
        let OpenBucket { scope, page: (last, after) } = self.table.get(&bucket)?;
        let (scope, last) = (*scope, *last);
        let after = match cursor {
            None => None,
            // Others would have to be kept for as long as the bucket is open.
            Some(cursor) if cursor != last || after.is_none() => {
                return Ok(Err(Error::Other("the cursor is not that of the last page".to_owned())));
            }
            Some(_) => after.clone(),
        };
        let keys = match self.capabilities.keys(scope, String::new(), after, MAX_LISTED).await {
            Ok(keys) => keys,
            Err(error) => return Ok(Err(self.to_wasi(error))),
        };
        let page = &mut self.table.get_mut(&bucket)?.page;
        let is_full = u32::try_from(keys.len()).is_ok_and(|count| count == MAX_LISTED);
        *page = (last + 1, keys.last().filter(|_| is_full).cloned());
        Ok(Ok(KeyResponse { cursor: is_full.then_some(page.0), keys }))
    }

    async fn drop(&mut self, bucket: Bucket) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for KeyValueView<'_> {
    async fn increment(&mut self, bucket: Bucket, key: String, delta: u64) -> StoreResult<u64> {
        let scope = self.scope(&bucket)?;
        let out_of_range = || Ok(Err(Error::Other("the number does not fit in 63 bits".to_owned())));
        let Ok(delta) = i64::try_from(delta) else { return out_of_range() };
        match self.capabilities.increment(scope, key, delta).await {
            Ok(sum) => u64::try_from(sum).map_or_else(|_| out_of_range(), |sum| Ok(Ok(sum))),
            Err(error) => Ok(Err(self.to_wasi(error))),
        }
    }
}

impl batch::Host for KeyValueView<'_> {
    async fn get_many(
        &mut self,
        bucket: Bucket,
        keys: Vec<String>,
    ) -> StoreResult<Vec<Option<(String, Vec<u8>)>>> {
        let scope = self.scope(&bucket)?;
        let (mut found, mut bytes) = (Vec::new(), 0_u64);
        for key in keys {
            let value = match self.capabilities.get(scope, key.clone()).await {
                Ok(value) => value,
                Err(error) => return Ok(Err(self.to_wasi(error))),
            };
            // The host holds all of them at once; the guest names a key as often as it likes.
            bytes += value.as_ref().map_or(0, |value| value.len() as u64);
            if bytes > self.capabilities.grantee.limits.host_call_bytes {
                return Ok(Err(Error::Other(
                    "the values are larger than `host_call_bytes`: ask for fewer keys".to_owned(),
                )));
            }
            found.push(value.map(|value| (key, value)));
        }
        Ok(Ok(found))
    }

    async fn set_many(&mut self, bucket: Bucket, entries: Vec<(String, Vec<u8>)>) -> StoreResult<()> {
        let scope = self.scope(&bucket)?;
        for (key, value) in entries {
            if let Err(error) = self.capabilities.set(scope, key, value, None).await {
                return Ok(Err(self.to_wasi(error)));
            }
        }
        Ok(Ok(()))
    }

    async fn delete_many(&mut self, bucket: Bucket, keys: Vec<String>) -> StoreResult<()> {
        let scope = self.scope(&bucket)?;
        for key in keys {
            if let Err(error) = self.capabilities.remove(scope, key).await {
                return Ok(Err(self.to_wasi(error)));
            }
        }
        Ok(Ok(()))
    }
}
