//! A loaded plugin: its description, and its code, which is mapped or compiled when the first call needs it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::Guard;
use toolbay_capabilities::files::{FolderHandles, ReadLog};
use toolbay_capabilities::state::{GuestEngine, GuestEngines, GuestState};
use toolbay_core::tool::{PluginOrigin, ToolSource};
use toolbay_policy::name::PluginId;
use toolbay_sandbox::admission::ConcurrencyLimiter;
use toolbay_sandbox::compile::cache::CachedMetadata;
use toolbay_sandbox::compile::compiler::{CompiledComponent, Compiler};
use toolbay_sandbox::engine::{ByMetering, EngineKind, Metering};
use toolbay_sandbox::idle_instances::IdleInstances;
use toolbay_state::digest::Digest;

use crate::error::LoadError;
use crate::plugins::code::Code;
use crate::plugins::descriptor::{Descriptor, DescriptorCache};
use crate::plugins::loading::{CompileProgress, LoadListener};
use crate::plugins::resident_code::{CodeSlot, ResidentCode};
use crate::plugins::run_blocking;

/// The resources that all plugins of a host share.
pub(crate) struct HostResources {
    pub(crate) engines: GuestEngines,
    pub(crate) compiler: Compiler,
    pub(crate) listener: Option<LoadListener>,
    pub(crate) descriptors: DescriptorCache,
    pub(crate) resident_code: Arc<ResidentCode>,
    pub(crate) idle_instances: Arc<IdleInstances<GuestState>>,
    pub(crate) concurrency: ConcurrencyLimiter,
    pub(crate) folders: FolderHandles,
    pub(crate) reads: Arc<ReadLog>,
}

/// One plugin. Calls in flight hold it, also after a reload replaced it.
pub(crate) struct Plugin {
    pub(crate) shared: Arc<HostResources>,
    pub(crate) id: PluginId,
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) file: Option<Arc<Path>>,
    /// The registry that it comes from, if a lock names it.
    pub(crate) origin: Option<Arc<PluginOrigin>>,
    pub(crate) descriptor: Arc<Descriptor>,
    pub(crate) from_cache: bool,
    component_bytes: Option<Arc<[u8]>>,
    code_slots: ByMetering<Arc<CodeSlot>>,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The origin of a component.
#[derive(Clone)]
pub(crate) struct ComponentOrigin {
    pub(crate) id: PluginId,
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) file: Option<Arc<Path>>,
    /// The registry that it comes from, if a lock names it.
    pub(crate) registry: Option<Arc<PluginOrigin>>,
    /// A component that was loaded from bytes. Kept because a later policy may need it compiled for the other engine.
    pub(crate) component_bytes: Option<Arc<[u8]>>,
}

impl ComponentOrigin {
    /// A component that no lock names, and whose file the plugin can be compiled from again.
    pub(crate) fn new(id: PluginId, digest: Digest, bytes: u64, file: Option<Arc<Path>>) -> Self {
        Self { id, digest, bytes, file, registry: None, component_bytes: None }
    }
}

impl Plugin {
    /// Creates a plugin whose code is not loaded yet.
    pub(crate) fn new(
        shared: Arc<HostResources>,
        origin: ComponentOrigin,
        descriptor: Arc<Descriptor>,
        from_cache: bool,
    ) -> Arc<Self> {
        let ComponentOrigin { id, digest, bytes, file, registry, component_bytes } = origin;
        let code_slots = ByMetering::default();
        Arc::new(Self {
            shared,
            id,
            digest,
            bytes,
            file,
            origin: registry,
            descriptor,
            from_cache,
            component_bytes,
            code_slots,
        })
    }

    /// The version that the plugin claims.
    pub(crate) fn version(&self) -> Option<&str> {
        self.descriptor.about.as_ref().map(|about| about.version.as_str())
    }

    /// The source of the plugin's tools.
    pub(crate) fn source(&self) -> Arc<ToolSource> {
        let (version, digest) = (self.version().map(Arc::from), Arc::from(&*self.digest.hex()));
        let origin = self.origin.clone();
        Arc::new(ToolSource::Plugin { id: self.id.clone(), version, digest, origin })
    }

    /// The kind of engine that runs the component with this metering.
    fn engine_kind(&self, metering: Metering) -> EngineKind {
        EngineKind { metering, async_support: self.descriptor.async_support }
    }

    /// The slot for the code of one engine. Few plugins have code for both.
    fn code_slot(&self, metering: Metering) -> &Arc<CodeSlot> {
        self.code_slots.cell(metering).get_or_init(|| self.shared.resident_code.slot(self.file.is_some()))
    }

    /// The code for an engine, if it is in memory.
    pub(crate) fn loaded_code(&self, metering: Metering) -> Guard<Option<Arc<Code>>> {
        self.code_slot(metering).code()
    }

    /// Records a use of the code.
    pub(crate) fn mark_used(&self, metering: Metering, now: Instant) {
        self.code_slot(metering).mark_used(now);
    }

    /// Keeps the code in memory, because the file has other content now.
    pub(crate) fn pin_code(&self, metering: Metering) {
        self.code_slot(metering).pin();
    }

    /// The code for an engine, from memory, from the cache, or compiled again.
    ///
    /// # Errors
    /// The cache does not have the code, and the file is gone or changed.
    pub(crate) async fn code(self: &Arc<Self>, metering: Metering) -> Result<Arc<Code>, LoadError> {
        self.mark_used(metering, Instant::now());
        if let Some(code) = &*self.loaded_code(metering) {
            return Ok(Arc::clone(code));
        }
        let _guard = self.code_slot(metering).loading.lock().await;
        if let Some(code) = &*self.loaded_code(metering) {
            return Ok(Arc::clone(code));
        }
        self.load_code(metering).await
    }

    async fn load_code(self: &Arc<Self>, metering: Metering) -> Result<Arc<Code>, LoadError> {
        let plugin = Arc::clone(self);
        let cached = run_blocking(move || {
            let linked = plugin.shared.engine(plugin.engine_kind(metering))?;
            let cached = linked.cache.as_ref().and_then(|cache| {
                let hit: CachedMetadata<Descriptor> = cache.get(&plugin.digest)?;
                let component = cache.code(&linked.engine, &plugin.digest, &hit)?;
                Some((component, cache.code_file(&plugin.digest)))
            });
            let Some((component, file)) = cached else { return Ok(None) };
            let code = Arc::new(Code::link(linked, &component)?);
            plugin.code_slot(metering).put(Arc::clone(&code), Some(file));
            Ok(Some(code))
        });
        match cached.await? {
            Some(code) => Ok(code),
            None => self.recompile(metering).await,
        }
    }

    async fn recompile(self: &Arc<Self>, metering: Metering) -> Result<Arc<Code>, LoadError> {
        let plugin = Arc::clone(self);
        let read = run_blocking(move || {
            if let Some(bytes) = &plugin.component_bytes {
                return Ok(bytes.to_vec());
            }
            let Some(file) = &plugin.file else {
                return Err(LoadError::Host("its compiled code is gone from the cache".to_owned()));
            };
            let (bytes, _) = crate::plugins::file::read_component(file)?;
            if Digest::of(&bytes) != plugin.digest {
                return Err(LoadError::Host(format!("`{}` changed since it was loaded", file.display())));
            }
            Ok(bytes)
        });
        let (shared, bytes) = (&self.shared, read.await?);
        let linked = Arc::clone(shared.engine(self.engine_kind(metering))?);
        let progress = CompileProgress::start(shared.listener.as_ref(), &self.id, self.bytes);
        let compiled = shared.compiler.compile(&linked.engine, linked.cache.as_ref(), bytes).await?;
        drop(progress);
        let plugin = Arc::clone(self);
        let store = run_blocking(move || {
            let code = Arc::new(Code::link(&linked, &compiled.component)?);
            plugin.store_code(compiled, Arc::clone(&code));
            Ok(code)
        });
        store.await
    }

    /// Caches compiled code, if there is a cache, and keeps it in memory. Blocks.
    pub(crate) fn store_code(&self, compiled: CompiledComponent, code: Arc<Code>) {
        let cached = code.linked().cache.as_ref().and_then(|cache| {
            let stored =
                compiled.serialized().and_then(|code| cache.put(&self.digest, &code, &*self.descriptor));
            stored
                .inspect_err(|error| {
                    cache.warn_once("compiled code could not be cached: each start compiles it", error);
                })
                .ok()
                .map(|()| cache.code_file(&self.digest))
        });
        self.code_slot(code.engine().kind.metering).put(code, cached);
    }
}

impl HostResources {
    /// The engine of this kind. Blocks for a moment on first use.
    pub(crate) fn engine(&self, kind: EngineKind) -> Result<&Arc<GuestEngine>, LoadError> {
        self.engines.get_or_create(kind).map_err(|error| LoadError::Host(error.to_string()))
    }
}
