//! The arguments of the commands for plugin authors.

use std::path::PathBuf;

use clap::ValueHint;

/// A language of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PluginLanguage {
    /// Rust, with cargo.
    Rust,
    /// JavaScript, with Node and npm.
    Js,
    /// TypeScript, with Node and npm.
    Ts,
    /// Python, with componentize-py.
    Python,
    /// C, with zig or clang.
    C,
}

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
}

/// The project that a command works on.
#[derive(Debug, clap::Args)]
pub(crate) struct ProjectArgs {
    /// The project's folder. Default: the current directory, or the nearest project above it.
    #[arg(id = "project", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: Option<PathBuf>,
}

/// The arguments of `toolbay build`.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    pub(crate) project: ProjectArgs,
    /// Build the release: small and fast.
    #[arg(long, short)]
    pub(crate) release: bool,
    /// Build only, and leave the plugin directory unchanged.
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Replace another project's plugin of the same id.
    #[arg(long, conflicts_with = "no_install")]
    pub(crate) replace: bool,
}

/// The arguments of `toolbay test`.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) project: ProjectArgs,
    /// Run only the examples of the tools.
    #[arg(long)]
    pub(crate) examples: bool,
    /// Call the examples on the release.
    #[arg(long, short)]
    pub(crate) release: bool,
}

/// The arguments of `toolbay dev`.
#[derive(Debug, clap::Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    pub(crate) project: ProjectArgs,
    /// Build the release, which takes longer.
    #[arg(long, short)]
    pub(crate) release: bool,
}

/// The arguments of `toolbay pack`.
#[derive(Debug, clap::Args)]
pub(crate) struct PackArgs {
    #[command(flatten)]
    pub(crate) project: ProjectArgs,
    /// The file to write. Default: `ID.wasm` in the current directory.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
}
