//! A loaded plugin: what it is, and its code, which is mapped or compiled when the first call needs it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::Guard;
use toolbay_core::name::PluginId;
use toolbay_core::tool::ToolSource;
use wasmtime::component::{Component, Linker};

use crate::admission::Admission;
use crate::cache::{Cache, Hit};
use crate::capability::files::{Folders, ReadLog};
use crate::code::Code;
use crate::compiler::{Compiled, Compiler};
use crate::descriptor::{Descriptor, Descriptors};
use crate::digest::Digest;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::loading::{LoadListener, Told};
use crate::resident::{Resident, Slot};
use crate::state::GuestState;
use crate::warm::WarmInstances;

/// What all plugins of a host share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<GuestState>,
    pub(crate) cache: Option<Cache>,
    pub(crate) compiler: Compiler,
    pub(crate) listener: Option<LoadListener>,
    pub(crate) descriptors: Descriptors,
    pub(crate) resident: Arc<Resident>,
    pub(crate) warm: Arc<WarmInstances>,
    pub(crate) admission: Admission,
    pub(crate) folders: Folders,
    pub(crate) reads: Arc<ReadLog>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// One plugin. Calls in flight hold it; a reload replaces it and leaves them to their end.
#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: PluginId,
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) file: Option<Arc<Path>>,
    pub(crate) descriptor: Arc<Descriptor>,
    pub(crate) from_cache: bool,
    code: Arc<Slot>,
}

/// Where a plugin comes from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) id: PluginId,
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) file: Option<Arc<Path>>,
}

impl Plugin {
    /// A plugin without its code.
    pub(crate) fn new(
        shared: Arc<Shared>,
        origin: Origin,
        descriptor: Arc<Descriptor>,
        from_cache: bool,
    ) -> Arc<Self> {
        let Origin { id, digest, bytes, file } = origin;
        let code = shared.resident.slot(file.is_some());
        Arc::new(Self { shared, id, digest, bytes, file, descriptor, from_cache, code })
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

    /// The code, if it is in memory.
    pub(crate) fn loaded(&self) -> Guard<Option<Arc<Code>>> {
        self.code.code()
    }

    /// Notes that it is called.
    pub(crate) fn called(&self, now: Instant) {
        self.code.used(now);
    }

    /// Its code is there to stay: its file holds something else now.
    pub(crate) fn stay(&self) {
        self.code.stay();
    }

    /// The code, from memory, from the cache, or compiled again from the file.
    ///
    /// # Errors
    /// When the cache lost the code and the file is gone or not the same any more.
    pub(crate) async fn code(self: &Arc<Self>) -> Result<Arc<Code>, LoadError> {
        self.called(Instant::now());
        if let Some(code) = &*self.loaded() {
            return Ok(Arc::clone(code));
        }
        let _alone = self.code.loading.lock().await;
        if let Some(code) = &*self.loaded() {
            return Ok(Arc::clone(code));
        }
        self.load_code().await
    }

    async fn load_code(self: &Arc<Self>) -> Result<Arc<Code>, LoadError> {
        let plugin = Arc::clone(self);
        let cached = self.off_the_async_threads(move || {
            let shared = &plugin.shared;
            let cached = shared.cache.as_ref().and_then(|cache| {
                let hit: Hit = cache.get(&plugin.digest)?;
                let component = cache.code(&shared.engine, &plugin.digest, &hit)?;
                Some((component, cache.code_file(&plugin.digest)))
            });
            let Some((component, file)) = cached else { return Ok(None) };
            let code = shared.link(&component)?;
            plugin.code.put(Arc::clone(&code), Some(file));
            Ok(Some(code))
        });
        match cached.await? {
            Some(code) => Ok(code),
            None => self.compile_again().await,
        }
    }

    async fn compile_again(self: &Arc<Self>) -> Result<Arc<Code>, LoadError> {
        let plugin = Arc::clone(self);
        let read = self.off_the_async_threads(move || {
            let Some(file) = &plugin.file else {
                return Err(LoadError::Host("its compiled code is gone from the cache".to_owned()));
            };
            let (bytes, _) = crate::file::read_component(file)?;
            if crate::digest::sha256(&bytes) != plugin.digest {
                return Err(LoadError::Host(format!("`{}` changed since it was loaded", file.display())));
            }
            Ok(bytes)
        });
        let (shared, bytes) = (&self.shared, read.await?);
        let told = Told::begin(shared.listener.as_ref(), &self.id, self.bytes);
        let compiled = shared.compiler.compile(&shared.engine, bytes).await?;
        drop(told);
        let plugin = Arc::clone(self);
        let store = self.off_the_async_threads(move || {
            let code = plugin.shared.link(&compiled.component)?;
            plugin.keep(compiled, Arc::clone(&code));
            Ok(code)
        });
        store.await
    }

    /// Stores what was compiled, where there is a cache, and keeps its code in memory. Blocks.
    pub(crate) fn keep(&self, compiled: Compiled, code: Arc<Code>) {
        let cached = self.shared.cache.as_ref().and_then(|cache| {
            let stored =
                compiled.serialized().and_then(|code| cache.put(&self.digest, &code, &self.descriptor));
            stored
                .inspect_err(|error| {
                    cache.tell_once("compiled code is not stored: it is compiled at each start", error);
                })
                .ok()
                .map(|()| cache.code_file(&self.digest))
        });
        self.code.put(code, cached);
    }

    async fn off_the_async_threads<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
    ) -> Result<T, LoadError> {
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(LoadError::Host(e.to_string())))
    }
}

impl Shared {
    /// Links a component with what guests may import.
    pub(crate) fn link(&self, component: &Component) -> Result<Arc<Code>, LoadError> {
        Code::link(&self.engine, &self.linker, component).map(Arc::new)
    }
}
