//! A loaded plugin: what it is, and its code, which is mapped or compiled when the first call needs it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::Guard;
use toolbay_core::tool::ToolSource;
use toolbay_policy::name::PluginId;

use crate::capability::files::{Folders, ReadLog};
use crate::engine::admission::Admission;
use crate::engine::engines::{Engines, Linked};
use crate::engine::warm::WarmInstances;
use crate::engine::{ByMetering, Metering};
use crate::error::LoadError;
use crate::plugins::cache::Hit;
use crate::plugins::code::Code;
use crate::plugins::compiler::{Compiled, Compiler, off_the_async_threads};
use crate::plugins::descriptor::{Descriptor, Descriptors};
use crate::plugins::digest::Digest;
use crate::plugins::loading::{CompileProgress, LoadListener};
use crate::plugins::resident::{Resident, Slot};

/// What all plugins of a host share.
pub(crate) struct Shared {
    pub(crate) engines: Engines,
    pub(crate) compiler: Compiler,
    pub(crate) listener: Option<LoadListener>,
    pub(crate) descriptors: Descriptors,
    pub(crate) resident: Arc<Resident>,
    pub(crate) warm: Arc<WarmInstances>,
    pub(crate) admission: Admission,
    pub(crate) folders: Folders,
    pub(crate) reads: Arc<ReadLog>,
}

/// One plugin. Calls in flight hold it; a reload replaces it and leaves them to their end.
pub(crate) struct Plugin {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: PluginId,
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) file: Option<Arc<Path>>,
    pub(crate) descriptor: Arc<Descriptor>,
    pub(crate) from_cache: bool,
    given: Option<Arc<[u8]>>,
    slots: ByMetering<Arc<Slot>>,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Where a plugin comes from.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) id: PluginId,
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) file: Option<Arc<Path>>,
    /// A component that came as bytes: it is kept, since a policy can ask for another engine than the one it was compiled
    /// for.
    pub(crate) given: Option<Arc<[u8]>>,
}

impl Plugin {
    /// A plugin without its code.
    pub(crate) fn new(
        shared: Arc<Shared>,
        origin: Origin,
        descriptor: Arc<Descriptor>,
        from_cache: bool,
    ) -> Arc<Self> {
        let Origin { id, digest, bytes, file, given } = origin;
        let slots = ByMetering::default();
        Arc::new(Self { shared, id, digest, bytes, file, descriptor, from_cache, given, slots })
    }

    /// The version it claims.
    pub(crate) fn version(&self) -> Option<&str> {
        self.descriptor.about.as_ref().map(|about| about.version.as_str())
    }

    /// What its tools say of where they come from.
    pub(crate) fn source(&self) -> Arc<ToolSource> {
        let (version, digest) = (self.version().map(Arc::from), Arc::clone(self.digest.text()));
        Arc::new(ToolSource::Plugin { id: self.id.clone(), version, digest })
    }

    /// The place of its code for one engine. Few plugins have any for the other.
    fn slot(&self, metering: Metering) -> &Arc<Slot> {
        self.slots.of(metering).get_or_init(|| self.shared.resident.slot(self.file.is_some()))
    }

    /// The code for an engine, if it is in memory.
    pub(crate) fn loaded(&self, metering: Metering) -> Guard<Option<Arc<Code>>> {
        self.slot(metering).code()
    }

    /// Notes that it is called.
    pub(crate) fn called(&self, metering: Metering, now: Instant) {
        self.slot(metering).used(now);
    }

    /// Its code is there to stay: its file holds something else now.
    pub(crate) fn stay(&self, metering: Metering) {
        self.slot(metering).stay();
    }

    /// The code for an engine, from memory, from the cache, or compiled again.
    ///
    /// # Errors
    /// When the cache has no such code and the file is gone or not the same any more.
    pub(crate) async fn code(self: &Arc<Self>, metering: Metering) -> Result<Arc<Code>, LoadError> {
        self.called(metering, Instant::now());
        if let Some(code) = &*self.loaded(metering) {
            return Ok(Arc::clone(code));
        }
        let _alone = self.slot(metering).loading.lock().await;
        if let Some(code) = &*self.loaded(metering) {
            return Ok(Arc::clone(code));
        }
        self.load_code(metering).await
    }

    async fn load_code(self: &Arc<Self>, metering: Metering) -> Result<Arc<Code>, LoadError> {
        let plugin = Arc::clone(self);
        let cached = off_the_async_threads(move || {
            let linked = plugin.shared.engine(metering)?;
            let cached = linked.cache.as_ref().and_then(|cache| {
                let hit: Hit = cache.get(&plugin.digest)?;
                let component = cache.code(&linked.engine, &plugin.digest, &hit)?;
                Some((component, cache.code_file(&plugin.digest)))
            });
            let Some((component, file)) = cached else { return Ok(None) };
            let code = Arc::new(Code::link(linked, &component)?);
            plugin.slot(metering).put(Arc::clone(&code), Some(file));
            Ok(Some(code))
        });
        match cached.await? {
            Some(code) => Ok(code),
            None => self.compile_again(metering).await,
        }
    }

    async fn compile_again(self: &Arc<Self>, metering: Metering) -> Result<Arc<Code>, LoadError> {
        let plugin = Arc::clone(self);
        let read = off_the_async_threads(move || {
            if let Some(bytes) = &plugin.given {
                return Ok(bytes.to_vec());
            }
            let Some(file) = &plugin.file else {
                return Err(LoadError::Host("its compiled code is gone from the cache".to_owned()));
            };
            let (bytes, _) = crate::plugins::file::read_component(file)?;
            if crate::plugins::digest::sha256(&bytes) != plugin.digest {
                return Err(LoadError::Host(format!("`{}` changed since it was loaded", file.display())));
            }
            Ok(bytes)
        });
        let (shared, bytes) = (&self.shared, read.await?);
        let linked = Arc::clone(shared.engine(metering)?);
        let progress = CompileProgress::begin(shared.listener.as_ref(), &self.id, self.bytes);
        let compiled = shared.compiler.compile(&linked.engine, bytes).await?;
        drop(progress);
        let plugin = Arc::clone(self);
        let store = off_the_async_threads(move || {
            let code = Arc::new(Code::link(&linked, &compiled.component)?);
            plugin.keep(compiled, Arc::clone(&code));
            Ok(code)
        });
        store.await
    }

    /// Stores what was compiled, where there is a cache, and keeps its code in memory. Blocks.
    pub(crate) fn keep(&self, compiled: Compiled, code: Arc<Code>) {
        let cached = code.linked().cache.as_ref().and_then(|cache| {
            let stored =
                compiled.serialized().and_then(|code| cache.put(&self.digest, &code, &self.descriptor));
            stored
                .inspect_err(|error| {
                    cache.tell_once("compiled code is not stored: it is compiled at each start", error);
                })
                .ok()
                .map(|()| cache.code_file(&self.digest))
        });
        self.slot(code.engine().metering).put(code, cached);
    }
}

impl Shared {
    /// An engine, with what guests in it may import. Blocks for a moment the first time.
    pub(crate) fn engine(&self, metering: Metering) -> Result<&Arc<Linked>, LoadError> {
        self.engines.of(metering).map_err(|error| LoadError::Host(error.to_string()))
    }
}
