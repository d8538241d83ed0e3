//! How each language creates, builds, tests and describes a project.

use anyhow::Result;

use super::language::BuildProfile;
use super::project::{BuiltComponent, Project, ProjectMetadata};
use super::template::{TemplateFile, TemplatePlan};
use super::{c, javascript, python, rust};
use crate::args::PluginLanguage;

impl PluginLanguage {
    /// Why a valid plugin ID cannot name a project in this language; `None` if it can.
    pub(crate) fn check_name(self, name: &str) -> Result<(), String> {
        match self {
            Self::Rust => rust::check_name(name),
            Self::Js | Self::Ts => javascript::check_name(name),
            Self::Python | Self::C => Ok(()),
        }
    }

    /// The files of a new project.
    pub(crate) fn template(self, plan: &TemplatePlan<'_>) -> Result<Vec<TemplateFile>> {
        match self {
            Self::Rust => rust::template(plan),
            Self::Js | Self::Ts => Ok(javascript::template(self, plan)),
            Self::Python => Ok(python::template(plan)),
            Self::C => Ok(c::template(plan)),
        }
    }

    /// Builds the component of a project; `None`: the build failed, and the compiler wrote why to stderr.
    pub(crate) fn build(self, project: &Project, profile: BuildProfile) -> Result<Option<BuiltComponent>> {
        match self {
            Self::Rust => rust::build(project, profile),
            Self::Python => python::build(project, profile),
            // These builds have one profile.
            Self::Js | Self::Ts => javascript::build(project),
            Self::C => c::build(project),
        }
    }

    /// Runs the project's tests with their output on stderr. Returns whether they passed.
    pub(crate) fn test(self, project: &Project) -> Result<bool> {
        match self {
            Self::Rust => rust::test(project),
            Self::Js | Self::Ts => javascript::test(project),
            Self::Python => python::test(project),
            // C projects have no tests on the host; their examples are called instead.
            Self::C => Ok(true),
        }
    }

    /// The metadata of a project for distribution.
    pub(crate) fn metadata(self, project: &Project) -> Result<ProjectMetadata> {
        match self {
            Self::Rust => rust::metadata(project),
            Self::Js | Self::Ts => javascript::metadata(project),
            Self::Python => python::metadata(project),
            Self::C => Ok(c::metadata()),
        }
    }
}
