//! The arguments of the commands that use registries.

use std::path::PathBuf;

use clap::ValueHint;
use toolbay_policy::name::PluginId;

/// The arguments of `toolbay add`.
#[derive(Debug, clap::Args)]
pub(crate) struct AddPluginArgs {
    /// The plugin: `HOST/REPOSITORY:TAG`, or `HOST/REPOSITORY@DIGEST`.
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// The plugin's id. Default: the last part of the repository.
    #[arg(long = "as", value_name = "ID", value_parser = PluginId::new)]
    pub(crate) id: Option<PluginId>,
    /// Add a plugin whose signature was not checked. The lock records it.
    #[arg(long)]
    pub(crate) unsigned: bool,
    /// Replace the locked version of the plugin.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Replace it even if the new version asks for more, or describes its tools otherwise.
    #[arg(long, requires = "replace")]
    pub(crate) accept_changes: bool,
    /// Download and check the plugin, and lock nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `toolbay push`.
#[derive(Debug, clap::Args)]
pub(crate) struct PushArgs {
    /// Where it goes: `HOST/REPOSITORY:TAG`.
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// The `.wasm` file that `toolbay pack` wrote.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Check the component and show its digest, and send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `toolbay fetch`.
#[derive(Debug, clap::Args)]
pub(crate) struct FetchArgs {
    /// Show what is missing, and download nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
