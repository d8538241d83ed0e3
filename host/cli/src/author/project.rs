//! The project of a command, and its built component.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use toolbay::{Host, PluginId, Policy};

use crate::args::PluginLanguage;
use crate::output::{Printer, host_failure};
use crate::setup::{self, HostPurpose, SetupArgs};

/// A folder with the sources of one plugin.
#[derive(Debug)]
pub(crate) struct Project {
    /// The absolute path.
    pub(crate) folder: PathBuf,
    /// The language.
    pub(crate) language: PluginLanguage,
    /// How a build reports what it changes on this machine.
    pub(crate) printer: Printer,
}

/// A built component.
#[derive(Debug)]
pub(crate) struct BuiltComponent {
    /// The id of its plugin.
    pub(crate) id: PluginId,
    /// The file.
    pub(crate) file: PathBuf,
    /// A component with the same functions and other data, from an earlier build.
    pub(crate) base: Option<PathBuf>,
}

impl BuiltComponent {
    /// A host for the component, without it. It compiles the functions of the base once.
    pub(crate) fn host(&self, setup: &SetupArgs, policy: Policy) -> Result<Host> {
        let builder = setup::builder(setup, policy, HostPurpose::Inspect)?;
        let builder = self.base.iter().fold(builder, |builder, base| builder.compile_base(base));
        builder.build().map_err(host_failure)
    }
}

/// The metadata of a project's manifest; empty texts where it has none.
#[derive(Debug, Default)]
pub(crate) struct ProjectMetadata {
    /// Version.
    pub(crate) version: String,
    /// Description.
    pub(crate) description: String,
    /// Authors.
    pub(crate) authors: String,
    /// Licence, as an SPDX expression.
    pub(crate) licenses: String,
    /// Homepage.
    pub(crate) homepage: String,
    /// URL of the source.
    pub(crate) source: String,
    /// The dependencies; the first is the project itself.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency of a plugin, or the plugin itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// The source: `crates.io`, `git`, `local`, …
    pub(crate) source: &'static str,
    /// Indexes of its own dependencies in the list.
    pub(crate) dependencies: Vec<usize>,
}

impl Project {
    /// Finds the project in the named folder; without one, in the current directory or the nearest parent.
    pub(crate) fn find(printer: Printer, named: Option<&Path>) -> Result<Self> {
        let start = named.unwrap_or(Path::new("."));
        let start =
            start.canonicalize().with_context(|| format!("there is no folder `{}`", start.display()))?;
        let above = if named.is_some() { 1 } else { usize::MAX };
        let found = start.ancestors().take(above).find_map(|folder| {
            let language = PluginLanguage::detect(folder)?;
            Some(Self { folder: folder.to_path_buf(), language, printer })
        });
        found.ok_or_else(|| {
            let markers = PluginLanguage::ALL.map(|language| format!("`{}`", language.marker())).join(", ");
            anyhow!(
                "`{}` is not a plugin project: it has none of {markers}; name a project, or create one with `toolbay new NAME`",
                start.display()
            )
        })
    }
}
