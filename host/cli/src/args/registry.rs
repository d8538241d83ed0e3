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
    /// Add a plugin that no `[[trust]]` rule covers, without a signature. The lock records it.
    #[arg(long)]
    pub(crate) unsigned: bool,
    /// Replace the locked version of the plugin.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Replace it even with an older version.
    #[arg(long, requires = "replace")]
    pub(crate) downgrade: bool,
    /// Download and check the plugin, and lock nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
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
    /// Sign the component with the private key in this file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) sign: Option<PathBuf>,
    /// Attach a signature that another program made of this component: a sigstore bundle.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) bundle: Option<PathBuf>,
    /// Check the component and show its digest, and send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The arguments of `toolbay update`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// The plugins. Default: all of the lock.
    #[arg(value_name = "PLUGIN", value_parser = PluginId::new)]
    pub(crate) ids: Vec<PluginId>,
    /// Download and compare, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The arguments of `toolbay export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The archive to write (`.tar`).
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The plugins. Default: all of the lock.
    #[arg(value_name = "PLUGIN", value_parser = PluginId::new)]
    pub(crate) ids: Vec<PluginId>,
}

/// The arguments of `toolbay import`.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// An archive that `toolbay export` wrote.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Add the archive's `[[trust]]` rules to the policy first, with their keys, unless the policy has the scope.
    #[arg(long)]
    pub(crate) trust: bool,
    /// Also lock plugins that no `[[trust]]` rule covers, without a signature.
    #[arg(long)]
    pub(crate) unsigned: bool,
    /// Check and compare, and change nothing.
    #[arg(long, conflicts_with = "trust")]
    pub(crate) dry_run: bool,
}

/// The commands below `toolbay key`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key (P-256): the private one into this file, the public one beside it.
    New {
        /// The file of the private key. The public key gets the extension `.pub`.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Print the public key of a file, and its id.
    Show {
        /// A file with a private or a public key.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}
