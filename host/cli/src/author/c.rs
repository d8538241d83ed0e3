//! Plugins in C: one file, a compiler for WebAssembly, and the SDK in `vendor/`.

use anyhow::Result;
use toolbay::PluginId;

use super::embedded;
use super::language::Language;
use super::project::{Component, Metadata, Project};
use super::python::python;
use super::script;
use super::template::{Plan, TemplateFile};

/// The file by which a project is known, and the plugin itself.
const MARKER: &str = Language::C.marker();

/// The files of a new project, with the SDK it is written against.
pub(super) fn template(plan: &Plan<'_>) -> Vec<TemplateFile> {
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

/// Builds the component, whose id is the folder's name.
pub(super) fn build(project: &Project) -> Result<Option<Component>> {
    let name = project.folder.file_name().and_then(|name| name.to_str());
    let id: PluginId = script::id(&project.folder, name)?;
    script::build(project, id, python(project)?.args(["vendor/toolbay/build.py", MARKER]))
}

/// There is no manifest: what it says of itself is in the source, and in the component.
pub(super) fn metadata() -> Metadata {
    Metadata::default()
}
