//! What a guest can ask of the host. One file for each interface of the contract; each is implemented on
//! [`Capabilities`], which holds what one guest entry was granted and nothing else.
//!
//! All interfaces are always linked (components built from JavaScript or Python import every one of them); what was
//! not granted answers `denied` with the reason.

mod config;
mod context;
mod denied;
pub(crate) mod files;
mod log;

use std::collections::BTreeMap;
use std::sync::Arc;

use toolbay_core::call::CallContext;
use toolbay_core::limits::Limits;
use toolbay_core::name::PluginId;
use wasmtime::component::{HasData, Linker};

use crate::bindings::host;
use files::FileGrants;

/// The grants of one guest entry.
#[derive(Debug)]
pub(crate) struct Capabilities {
    /// The plugin.
    pub(crate) plugin: PluginId,
    /// The running call; `None` for metadata queries and reductions, which run sealed.
    pub(crate) call: Option<RunningCall>,
    /// Files; `None` when nothing was granted.
    pub(crate) files: Option<FileGrants>,
    /// The operator's settings.
    pub(crate) config: Arc<BTreeMap<String, String>>,
    /// Log lines that may still be written.
    pub(crate) log_lines_left: u32,
    /// Progress events that may be passed on.
    pub(crate) progress_events: u32,
}

/// What the interfaces know of a running call.
#[derive(Debug)]
pub(crate) struct RunningCall {
    pub(crate) ctx: Arc<CallContext>,
    pub(crate) deadline: std::time::Instant,
}

impl Capabilities {
    /// No authority at all.
    pub(crate) fn sealed(plugin: PluginId, limits: &Limits) -> Self {
        Self {
            plugin,
            call: None,
            files: None,
            config: Arc::default(),
            log_lines_left: limits.log_lines,
            progress_events: 0,
        }
    }
}

/// Tells wasmtime how an interface finds its state in the store's.
pub(crate) struct HasCapabilities;

impl HasData for HasCapabilities {
    type Data<'a> = &'a mut Capabilities;
}

/// Links every interface of the contract.
pub(crate) fn link<T: Send + 'static>(
    linker: &mut Linker<T>,
    project: fn(&mut T) -> &mut Capabilities,
) -> wasmtime::Result<()> {
    host::context::add_to_linker::<T, HasCapabilities>(linker, project)?;
    host::log::add_to_linker::<T, HasCapabilities>(linker, project)?;
    host::config::add_to_linker::<T, HasCapabilities>(linker, project)?;
    host::files::add_to_linker::<T, HasCapabilities>(linker, project)?;
    host::kv::add_to_linker::<T, HasCapabilities>(linker, project)?;
    host::secrets::add_to_linker::<T, HasCapabilities>(linker, project)?;
    host::http_client::add_to_linker::<T, HasCapabilities>(linker, project)?;
    host::process::add_to_linker::<T, HasCapabilities>(linker, project)?;
    host::attachments::add_to_linker::<T, HasCapabilities>(linker, project)
}
