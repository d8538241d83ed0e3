//! What each language does to make, build, test and describe a project.

use anyhow::Result;

use super::language::{Language, Profile};
use super::project::{Component, Metadata, Project};
use super::template::{Plan, TemplateFile};
use super::{c, javascript, python, rust};

impl Language {
    /// Why a valid plugin ID cannot name a project in this language; `None` if it can.
    pub(crate) fn check_name(self, name: &str) -> Result<(), String> {
        match self {
            Self::Rust => rust::check_name(name),
            Self::Js => javascript::check_name(name),
            Self::Python | Self::C => Ok(()),
        }
    }

    /// The files of a new project.
    pub(crate) fn template(self, plan: &Plan<'_>) -> Result<Vec<TemplateFile>> {
        match self {
            Self::Rust => rust::template(plan),
            Self::Js => Ok(javascript::template(plan)),
            Self::Python => Ok(python::template(plan)),
            Self::C => Ok(c::template(plan)),
        }
    }

    /// Builds the component of a project; `None`: it does not compile, and stderr has the reason.
    pub(crate) fn build(self, project: &Project, profile: Profile) -> Result<Option<Component>> {
        match self {
            Self::Rust => rust::build(project, profile),
            // Their builds know one profile.
            Self::Js => javascript::build(project),
            Self::Python => python::build(project),
            Self::C => c::build(project),
        }
    }

    /// Runs the project's own tests; tells whether they passed. What they say goes to the terminal.
    pub(crate) fn test(self, project: &Project) -> Result<bool> {
        match self {
            Self::Rust => rust::test(project),
            Self::Js => javascript::test(project),
            Self::Python => python::test(project),
            // No C runs here: its tools are tried by calling them.
            Self::C => Ok(true),
        }
    }

    /// What a project says of itself, for whom it is given to.
    pub(crate) fn metadata(self, project: &Project) -> Result<Metadata> {
        match self {
            Self::Rust => rust::metadata(project),
            Self::Js => javascript::metadata(project),
            Self::Python => python::metadata(project),
            Self::C => Ok(c::metadata()),
        }
    }
}
