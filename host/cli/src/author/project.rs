//! The project that a command is about, and the component that comes of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use toolbay::PluginId;

use super::language::Language;

/// A folder with the sources of one plugin.
#[derive(Debug)]
pub(crate) struct Project {
    /// Where it is, absolute.
    pub(crate) folder: PathBuf,
    /// What it is written in.
    pub(crate) language: Language,
}

/// What was built.
#[derive(Debug)]
pub(crate) struct Component {
    /// Under which id it is to run.
    pub(crate) id: PluginId,
    /// Where it is.
    pub(crate) file: PathBuf,
}

/// What a project's manifest says of it; empty where it says nothing.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    /// Version.
    pub(crate) version: String,
    /// What it is for.
    pub(crate) description: String,
    /// Who wrote it.
    pub(crate) authors: String,
    /// Its licence, an SPDX expression.
    pub(crate) licenses: String,
    /// Where to read about it.
    pub(crate) homepage: String,
    /// Where its source is.
    pub(crate) source: String,
    /// What it is made of, itself first.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A part of a plugin that others wrote, or the plugin itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Where it comes from: `crates.io`, `git`, `local`, …
    pub(crate) source: &'static str,
    /// The places of its own dependencies in the list.
    pub(crate) dependencies: Vec<usize>,
}

impl Project {
    /// The project in a folder that was named; without one, in the current directory or the nearest above it.
    pub(crate) fn find(named: Option<&Path>) -> Result<Self> {
        let start = named.unwrap_or(Path::new("."));
        let start =
            start.canonicalize().with_context(|| format!("there is no folder `{}`", start.display()))?;
        let above = if named.is_some() { 1 } else { usize::MAX };
        let found = start.ancestors().take(above).find_map(|folder| {
            let language = Language::of(folder)?;
            Some(Self { folder: folder.to_path_buf(), language })
        });
        found.ok_or_else(|| {
            let markers = Language::ALL.map(|language| format!("`{}`", language.marker())).join(", ");
            anyhow!(
                "`{}` is no project of a plugin: it has none of {markers}. Go into one, name one, or make one with \
                 `toolbay new NAME`",
                start.display()
            )
        })
    }
}
