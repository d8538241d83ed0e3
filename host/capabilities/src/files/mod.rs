//! `files`: reading and writing below the folders that the operator granted.
//!
//! A folder is opened once, when the plugin is loaded. Every later operation uses that handle, so moving or replacing
//! the folder has no effect. The host normalises a guest's path as text, checks the text against the grants, and
//! opens it below the handle without following links. If a component is a symbolic link, the host reads it, checks
//! its target against the grants, and opens the target in the same way. A link out of the folder is refused, and so
//! is a link to a path that the patterns do not match or exclude.
//!
//! Relative paths resolve against the workspace; absolute paths are those of the host.

mod beneath;
mod contract;
mod grants;
mod locks;
mod mounts;
mod opened_folder;
mod operations;
mod protected;
mod quota;
mod reads;
#[cfg_attr(target_os = "linux", path = "system/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "system/macos.rs")]
mod system;
pub(crate) mod wasi;

pub(crate) use beneath::Beneath;
pub use beneath::PathResolution;
pub use grants::{FileAccess, FileGrants, FolderHandles};
pub use protected::SharedProtectedPaths;
pub(crate) use quota::FileUsage;
pub use reads::ReadLog;

use toolbay_policy::GrantKey;
use toolbay_policy::limits::CallLimits;
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use crate::HasCapabilities;
use crate::bindings::host;
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};

/// Files below the granted folders.
#[derive(Debug)]
pub struct Files;

impl Capability for Files {
    const KEYS: &'static [GrantKey] = &[GrantKey::FsRead, GrantKey::FsWrite];

    type State = Option<FileGrants>;

    fn begin(_: &CallLimits) -> Option<FileGrants> {
        None
    }

    fn link(linker: &mut Linker<GuestState>, async_support: AsyncSupport) -> wasmtime::Result<()> {
        host::files::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)?;
        wasi::shadow_filesystem(linker)?;
        match async_support {
            AsyncSupport::Off => Ok(()),
            AsyncSupport::On => wasi::link_async(linker),
        }
    }
}
