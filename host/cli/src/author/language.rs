//! The languages of plugins.
//!
//! A new language takes a variant, a module like `rust`, and an arm in each match here and in `toolchain`.

use std::path::Path;

use crate::args::PluginLanguage;

/// The profile of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildProfile {
    /// Fast to build.
    Dev,
    /// Small and fast.
    Release,
}

impl PluginLanguage {
    /// All languages, in the order of detection.
    ///
    /// A project in TypeScript has a `package.json`, too.
    pub(crate) const ALL: [Self; 5] = [Self::Rust, Self::Ts, Self::Js, Self::Python, Self::C];

    /// The name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Js => "JavaScript",
            Self::Ts => "TypeScript",
            Self::Python => "Python",
            Self::C => "C",
        }
    }

    /// The file that identifies a project.
    pub(crate) const fn marker(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::Js => "package.json",
            Self::Ts => "plugin.ts",
            Self::Python => "pyproject.toml",
            Self::C => "plugin.c",
        }
    }

    /// The language of the project in a folder; `None`: the folder is not a project.
    pub(crate) fn detect(folder: &Path) -> Option<Self> {
        Self::ALL.into_iter().find(|language| folder.join(language.marker()).is_file())
    }
}
