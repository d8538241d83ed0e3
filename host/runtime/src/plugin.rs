//! A loaded plugin: what it is, and its code, which is mapped or compiled when the first call needs it.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::OnceCell;
use toolbay_core::name::PluginId;
use wasmtime::component::Linker;

use crate::admission::Admission;
use crate::cache::{Cache, Hit};
use crate::capability::files::{Folders, ReadLog};
use crate::code::Code;
use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::state::GuestState;

/// What all plugins of a host share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<GuestState>,
    pub(crate) cache: Option<Cache>,
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
    pub(crate) file: Option<PathBuf>,
    pub(crate) descriptor: Descriptor,
    pub(crate) from_cache: bool,
    code: OnceCell<Arc<Code>>,
}

/// Where a plugin comes from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) id: PluginId,
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) file: Option<PathBuf>,
}

impl Plugin {
    pub(crate) fn new(
        shared: Arc<Shared>,
        origin: Origin,
        descriptor: Descriptor,
        code: Option<Arc<Code>>,
    ) -> Self {
        let Origin { id, digest, bytes, file } = origin;
        let from_cache = code.is_none();
        Self { shared, id, digest, bytes, file, descriptor, from_cache, code: OnceCell::new_with(code) }
    }

    /// The code, from memory, from the cache, or compiled again from the file.
    ///
    /// # Errors
    /// When the cache lost the code and the file is gone or not the same any more.
    pub(crate) async fn code(self: &Arc<Self>) -> Result<Arc<Code>, LoadError> {
        let plugin = Arc::clone(self);
        let load = || async move {
            let load = tokio::task::spawn_blocking(move || plugin.load_code().map(Arc::new));
            load.await.unwrap_or_else(|e| Err(LoadError::Host(e.to_string())))
        };
        self.code.get_or_try_init(load).await.cloned()
    }

    fn load_code(&self) -> Result<Code, LoadError> {
        let shared = &self.shared;
        let cached = shared.cache.as_ref().and_then(|cache| {
            let hit: Hit = cache.get(&self.digest)?;
            cache.code(&shared.engine, &self.digest, &hit)
        });
        let component = match cached {
            Some(component) => component,
            None => self.compile_again()?,
        };
        Code::link(&shared.engine, &shared.linker, &component)
    }

    fn compile_again(&self) -> Result<wasmtime::component::Component, LoadError> {
        let Some(file) = &self.file else {
            return Err(LoadError::Host("its compiled code is gone from the cache".to_owned()));
        };
        let bytes = crate::file::read_component(file)?;
        let found = crate::digest::sha256(&bytes);
        if found != self.digest {
            return Err(LoadError::Host(format!("`{}` changed since it was loaded", file.display())));
        }
        let component = crate::code::compile(&self.shared.engine, &bytes)?;
        if let Some(cache) = &self.shared.cache
            && let Err(error) = cache.put(&self.digest, &component, &self.descriptor)
        {
            tracing::warn!(plugin = %self.id, error, "compiled code was not stored");
        }
        Ok(component)
    }
}
