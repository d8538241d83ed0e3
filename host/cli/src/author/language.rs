//! The languages that plugins are written in.
//!
//! A new one is a variant, a module beside `rust` with these functions, and an arm in each of the matches below.

use std::path::Path;

use super::pack::Metadata;
use super::project::{Component, Project};
use super::rust;
use super::template::{Plan, TemplateFile};
use crate::Stop;

/// A language that the command knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Language {
    /// Rust, with cargo.
    Rust,
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
    pub(crate) const ALL: [Self; 1] = [Self::Rust];

    /// Its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
        }
    }

    /// The file by which a project is known.
    pub(crate) fn marker(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
        }
    }

    /// Why a name that can be a plugin's id can not name a project in this language.
    pub(crate) fn check_name(self, name: &str) -> Result<(), String> {
        match self {
            Self::Rust => rust::check_name(name),
        }
    }

    /// The files of a new project.
    pub(crate) fn template(self, plan: &Plan<'_>) -> Result<Vec<TemplateFile>, Stop> {
        match self {
            Self::Rust => rust::template(plan),
        }
    }

    /// Builds the component of a project; `None`: it does not compile, and stderr has the reason.
    pub(crate) fn build(self, project: &Project, profile: Profile) -> Result<Option<Component>, Stop> {
        match self {
            Self::Rust => rust::build(project, profile),
        }
    }

    /// Runs the project's own tests; tells whether they passed. What they say goes to the terminal.
    pub(crate) fn test(self, project: &Project) -> Result<bool, Stop> {
        match self {
            Self::Rust => rust::test(project),
        }
    }

    /// What a project says of itself, for whom it is given to.
    pub(crate) fn metadata(self, project: &Project) -> Result<Metadata, Stop> {
        match self {
            Self::Rust => rust::metadata(project),
        }
    }

    /// The language of the project in this folder, if it is one.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        Self::ALL.into_iter().find(|language| folder.join(language.marker()).is_file())
    }
}
