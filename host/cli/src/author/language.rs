//! The languages that plugins are written in.
//!
//! A new one is a variant, a module beside `rust`, and an arm in each of the matches here and in `toolchain`.

use std::path::Path;

/// A language that the command knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Language {
    /// Rust, with cargo.
    Rust,
    /// JavaScript or TypeScript, with Node and npm.
    Js,
    /// Python, with componentize-py.
    Python,
    /// C, with zig or clang.
    C,
}

/// Whether a component is made to be tried or to be given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Built fast.
    Dev,
    /// Small and fast.
    Release,
}

impl Language {
    /// All of them, in the order in which a folder is asked whose it is.
    pub(crate) const ALL: [Self; 4] = [Self::Rust, Self::Js, Self::Python, Self::C];

    /// Its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Js => "JavaScript",
            Self::Python => "Python",
            Self::C => "C",
        }
    }

    /// The file by which a project is known.
    pub(crate) const fn marker(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::Js => "package.json",
            Self::Python => "pyproject.toml",
            Self::C => "plugin.c",
        }
    }

    /// The language of the project in this folder, if it is one.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        Self::ALL.into_iter().find(|language| folder.join(language.marker()).is_file())
    }
}
