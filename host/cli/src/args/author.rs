//! The arguments of the commands for plugin authors.

use std::path::PathBuf;

use clap::ValueHint;

use crate::author::language::PluginLanguage;

/// The arguments of `toolbay new`.
#[derive(Debug, clap::Args)]
pub(crate) struct NewArgs {
    /// The plugin's name: its id and its folder. A path creates the folder elsewhere.
    #[arg(value_name = "NAME", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// The plugin's language.
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value_t = PluginLanguage::Rust)]
    pub(crate) lang: PluginLanguage,
    /// Start with a reducer, which shortens results of other tools, instead of a tool.
    #[arg(long)]
    pub(crate) reducer: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `toolbay build`.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildArgs {
    /// The project's folder. Default: the current directory, or the nearest project above it.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// Build the release: small and fast.
    #[arg(long, short)]
    pub(crate) release: bool,
    /// Build only, and leave the plugin directory unchanged.
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Replace another project's plugin of the same id.
    #[arg(long, conflicts_with = "no_install")]
    pub(crate) replace: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `toolbay test`.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    /// The project's folder. Default: the current directory, or the nearest project above it.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// Run only the examples of the tools.
    #[arg(long)]
    pub(crate) examples: bool,
    /// Call the examples on the release.
    #[arg(long, short)]
    pub(crate) release: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `toolbay dev`.
#[derive(Debug, clap::Args)]
pub(crate) struct DevArgs {
    /// The project's folder. Default: the current directory, or the nearest project above it.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// Build the release, which takes longer.
    #[arg(long, short)]
    pub(crate) release: bool,
}

/// The arguments of `toolbay pack`.
#[derive(Debug, clap::Args)]
pub(crate) struct PackArgs {
    /// The project's folder. Default: the current directory, or the nearest project above it.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// The file to write. Default: `ID.wasm` in the current directory.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
