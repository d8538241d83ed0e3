//! Plugins in C: one file, a compiler for WebAssembly, and the SDK in `vendor/`.

use anyhow::Result;
use toolbay::PluginId;

use super::embedded;
use super::project::{BuiltComponent, Project, ProjectMetadata};
use super::python::python;
use super::script;
use super::template::{TemplateFile, TemplatePlan};
use crate::args::PluginLanguage;

/// The file that identifies a project: the plugin's source.
const MARKER: &str = PluginLanguage::C.marker();

/// The files of a new project, including the SDK.
pub(super) fn template(plan: &TemplatePlan<'_>) -> Vec<TemplateFile> {
    let named = |text: &str| text.replace("{{name}}", plan.name);
    let source = if plan.reducer {
        include_str!("../../templates/c/reducer.c")
    } else {
        include_str!("../../templates/c/plugin.c")
    };
    let mut files = vec![
        TemplateFile::new(MARKER, named(source)),
        TemplateFile::new("README.md", named(include_str!("../../templates/c/README.md"))),
        TemplateFile::new(".gitignore", "/.venv\n/target\n"),
    ];
    files.extend(script::vendored("vendor/toolbay", embedded::C));
    files
}

/// Builds the component. Its id is the folder's name.
pub(super) fn build(project: &Project) -> Result<Option<BuiltComponent>> {
    let name = project.folder.file_name().and_then(|name| name.to_str());
    let id: PluginId = script::id(&project.folder, name)?;
    script::build(project, id, python(project)?.args(["vendor/toolbay/build.py", MARKER]))
}

/// Empty: a C project has no manifest. Its metadata is in the source and the component.
pub(super) fn metadata() -> ProjectMetadata {
    ProjectMetadata::default()
}
