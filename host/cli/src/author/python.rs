//! Plugins in Python: a module, componentize-py, and the SDK in `vendor/`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use toml_edit::{DocumentMut, Item};

use super::embedded;
use super::language::PluginLanguage;
use super::program;
use super::project::{BuiltComponent, Dependency, Project, ProjectMetadata};
use super::script;
use super::template::{TemplateFile, TemplatePlan};

/// The file that identifies a project.
const MARKER: &str = PluginLanguage::Python.marker();
/// The plugin's module.
const SOURCE: &str = "plugin.py";

/// The files of a new project, including the SDK.
pub(super) fn template(plan: &TemplatePlan<'_>) -> Vec<TemplateFile> {
    let named = |text: &str| text.replace("{{name}}", plan.name);
    let (source, test) = if plan.reducer {
        (
            include_str!("../../templates/python/reducer.py"),
            include_str!("../../templates/python/test_reducer.py"),
        )
    } else {
        (
            include_str!("../../templates/python/plugin.py"),
            include_str!("../../templates/python/test_plugin.py"),
        )
    };
    let mut files = vec![
        TemplateFile::new(MARKER, named(include_str!("../../templates/python/pyproject.toml"))),
        TemplateFile::new(SOURCE, source),
        TemplateFile::new("test_plugin.py", test),
        TemplateFile::new("README.md", named(include_str!("../../templates/python/README.md"))),
        TemplateFile::new(".gitignore", "/.venv\n/target\n__pycache__/\n"),
    ];
    files.extend(script::vendored("vendor", embedded::PYTHON));
    files
}

/// Builds the component.
pub(super) fn build(project: &Project) -> Result<Option<BuiltComponent>> {
    let manifest = manifest(project)?;
    let id = script::id(&project.folder.join(MARKER), text(&manifest, "name"))?;
    script::build(project, id, python(project)?.args(["-m", "toolbay.build", SOURCE]))
}

/// Runs the project's tests.
pub(super) fn test(project: &Project) -> Result<bool> {
    script::run(project, python(project)?.args(["-m", "unittest", "discover"]))
}

/// The metadata of the manifest.
pub(super) fn metadata(project: &Project) -> Result<ProjectMetadata> {
    let manifest = manifest(project)?;
    let owned = |key: &str| text(&manifest, key).unwrap_or_default().to_owned();
    let authors = manifest.get("project").and_then(|table| table.get("authors")).and_then(Item::as_array);
    let authors =
        authors.into_iter().flatten().filter_map(|one| one.as_inline_table()?.get("name")?.as_str());
    let own =
        Dependency { name: owned("name"), version: owned("version"), source: "local", dependencies: vec![] };
    Ok(ProjectMetadata {
        version: owned("version"),
        description: owned("description"),
        authors: authors.collect::<Vec<_>>().join(", "),
        licenses: owned("license"),
        homepage: String::new(),
        source: String::new(),
        dependencies: vec![own],
    })
}

fn manifest(project: &Project) -> Result<DocumentMut> {
    let path = project.folder.join(MARKER);
    script::read(&path)?.parse().with_context(|| format!("`{}`", path.display()))
}

fn text<'a>(manifest: &'a DocumentMut, key: &str) -> Option<&'a str> {
    manifest.get("project")?.get(key)?.as_str()
}

/// Python with the SDK on its path: that of the project's `.venv`, or the system's.
pub(super) fn python(project: &Project) -> Result<Command> {
    let own: PathBuf = project.folder.join(".venv/bin");
    let found =
        Some(own.join("python")).filter(|file| file.exists()).or_else(|| program::find("python3", &[]));
    let python = found
        .context("there is no `python3` on `PATH`; install Python 3.11 or later from https://python.org")?;
    let mut command = Command::new(python);
    command.env("PYTHONPATH", project.folder.join("vendor")).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}
