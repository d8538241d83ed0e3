//! The languages that plugins are written in.
//!
//! A new one is a variant, a module beside `rust` with these functions, and an arm in each of the matches below.

use std::path::Path;

use super::pack::Metadata;
use super::project::{Component, Project};
use super::template::{Plan, TemplateFile};
use super::{c, javascript, python, rust};
use crate::Stop;

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
    pub(crate) fn marker(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::Js => javascript::MARKER,
            Self::Python => python::MARKER,
            Self::C => c::MARKER,
        }
    }

    /// Why a name that can be a plugin's id can not name a project in this language.
    pub(crate) fn check_name(self, name: &str) -> Result<(), String> {
        match self {
            Self::Rust => rust::check_name(name),
            Self::Js => javascript::check_name(name),
            Self::Python | Self::C => Ok(()),
        }
    }

    /// The files of a new project.
    pub(crate) fn template(self, plan: &Plan<'_>) -> Result<Vec<TemplateFile>, Stop> {
        match self {
            Self::Rust => rust::template(plan),
            Self::Js => Ok(javascript::template(plan)),
            Self::Python => Ok(python::template(plan)),
            Self::C => Ok(c::template(plan)),
        }
    }

    /// Builds the component of a project; `None`: it does not compile, and stderr has the reason.
    pub(crate) fn build(self, project: &Project, profile: Profile) -> Result<Option<Component>, Stop> {
        match self {
            Self::Rust => rust::build(project, profile),
            // Their builds know one profile.
            Self::Js => javascript::build(project),
            Self::Python => python::build(project),
            Self::C => c::build(project),
        }
    }

    /// Runs the project's own tests; tells whether they passed. What they say goes to the terminal.
    pub(crate) fn test(self, project: &Project) -> Result<bool, Stop> {
        match self {
            Self::Rust => rust::test(project),
            Self::Js => javascript::test(project),
            Self::Python => python::test(project),
            // No C runs here: its tools are tried by calling them.
            Self::C => Ok(true),
        }
    }

    /// What a project says of itself, for whom it is given to.
    pub(crate) fn metadata(self, project: &Project) -> Result<Metadata, Stop> {
        match self {
            Self::Rust => rust::metadata(project),
            Self::Js => javascript::metadata(project),
            Self::Python => python::metadata(project),
            Self::C => Ok(c::metadata()),
        }
    }

    /// The language of the project in this folder, if it is one.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        Self::ALL.into_iter().find(|language| folder.join(language.marker()).is_file())
    }
}
