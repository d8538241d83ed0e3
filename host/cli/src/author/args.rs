//! The command line of those who write plugins.

use std::path::PathBuf;

use clap::ValueHint;

use crate::author::language::Language;

/// What is made.
#[derive(Debug, clap::Args)]
pub(crate) struct NewArgs {
    /// The plugin's name, which is its id and its folder; a path makes the folder elsewhere.
    #[arg(value_name = "NAME", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// The language it is written in.
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value_t = Language::Rust)]
    pub(crate) lang: Language,
    /// Begin with a reducer, which makes results of other tools shorter, instead of a tool.
    #[arg(long)]
    pub(crate) reducer: bool,
}

/// What is built, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildArgs {
    /// The project's folder. Default: the current directory, or the nearest project above it.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// Build it small and fast, to be given away.
    #[arg(long, short)]
    pub(crate) release: bool,
    /// Only build it: the plugin directory stays as it is.
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Take the place of another project's plugin of the same id.
    #[arg(long, conflicts_with = "no_install")]
    pub(crate) replace: bool,
}

/// What is tested.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    /// The project's folder. Default: the current directory, or the nearest project above it.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// Only the examples of the tools.
    #[arg(long)]
    pub(crate) examples: bool,
    /// Call the examples on the component that is to be given away.
    #[arg(long, short)]
    pub(crate) release: bool,
}

/// What is built again and again.
#[derive(Debug, clap::Args)]
pub(crate) struct DevArgs {
    /// The project's folder. Default: the current directory, or the nearest project above it.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// Build what is to be given away; slower.
    #[arg(long, short)]
    pub(crate) release: bool,
}

/// What is packed, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct PackArgs {
    /// The project's folder. Default: the current directory, or the nearest project above it.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) project: Option<PathBuf>,
    /// The file to write. Default: the plugin's id and `.wasm`, here.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
}
