//! Plugins in Python: a module, componentize-py, and the SDK in `vendor/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use toml_edit::{DocumentMut, Item};

use super::embedded;
use super::language::BuildProfile;
use super::program;
use super::project::{BuiltComponent, Dependency, Project, ProjectMetadata};
use super::script;
use super::template::{TemplateFile, TemplatePlan};
use crate::args::PluginLanguage;

/// The file that identifies a project.
const MARKER: &str = PluginLanguage::Python.marker();
/// The plugin's module.
const SOURCE: &str = "plugin.py";
/// A list of packages, which replaces the dependencies of the project file.
const REQUIREMENTS: &str = "requirements.txt";
/// The folder of the vendored packages.
const PACKAGES: &str = "target/packages";
/// The folder of the interpreter that development builds share, and its file.
const INTERPRETER: [&str; 2] = ["target/python", "interpreter.wasm"];

/// The folder of an SDK whose module was still `toolbay`, as the host's is.
const FORMER_SDK: &str = "vendor/toolbay";

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

/// Builds the component. A development build writes the modules into an interpreter that was built before.
pub(super) fn build(project: &Project, profile: BuildProfile) -> Result<Option<BuiltComponent>> {
    check_sdk(project)?;
    let manifest = manifest(project)?;
    let id = script::id(&project.folder.join(MARKER), text(&manifest, "name"))?;
    if !vendor_packages(project, &manifest)? {
        return Ok(None);
    }
    let mut command = python(project)?;
    command.args(["-m", "toolbay_sdk.build", SOURCE, "--path", PACKAGES]);
    let [folder, file] = INTERPRETER;
    let base = match profile {
        BuildProfile::Dev => Some(project.folder.join(folder).join(file)),
        BuildProfile::Release => None,
    };
    if base.is_some() {
        command.args(["--dev", folder]);
    }
    let built = script::build(project, id, &mut command)?;
    Ok(built.map(|built| BuiltComponent { base, ..built }))
}

/// Runs the project's tests.
pub(super) fn test(project: &Project) -> Result<bool> {
    check_sdk(project)?;
    let tested = || script::run(project, python(project)?.args(["-m", "toolbay_sdk.testing"]));
    Ok(vendor_packages(project, &manifest(project)?)? && tested()?)
}

/// Refuses the SDK under its former name, even beside the present one: the plugin would import it. The SDK for C has the
/// same folder, and is no module.
fn check_sdk(project: &Project) -> Result<()> {
    ensure!(
        !project.folder.join(FORMER_SDK).join("__init__.py").exists(),
        "`{FORMER_SDK}` is the SDK under its former name: replace it with `vendor/toolbay_sdk` of a new project, and import \
         `toolbay_sdk` in place of `toolbay`"
    );
    Ok(())
}

/// Puts the packages that the project needs into their folder. Returns `false` after an error of the SDK's script.
fn vendor_packages(project: &Project, manifest: &DocumentMut) -> Result<bool> {
    let listed = project.folder.join(REQUIREMENTS).is_file();
    let dependencies = manifest.get("project").and_then(|table| table.get("dependencies"));
    let folder = project.folder.join(PACKAGES);
    if !listed && dependencies.is_none() && !folder.exists() {
        return Ok(true);
    }
    let list = if listed { REQUIREMENTS } else { MARKER };
    script::run(project, python(project)?.args(["-m", "toolbay_sdk.packages", list, PACKAGES]))
}

/// The metadata of the manifest.
pub(super) fn metadata(project: &Project) -> Result<ProjectMetadata> {
    let manifest = manifest(project)?;
    let owned = |key: &str| text(&manifest, key).unwrap_or_default().to_owned();
    let authors = manifest.get("project").and_then(|table| table.get("authors")).and_then(Item::as_array);
    let authors =
        authors.into_iter().flatten().filter_map(|one| one.as_inline_table()?.get("name")?.as_str());
    let packages = packages(&project.folder.join(PACKAGES));
    let own = Dependency {
        name: owned("name"),
        version: owned("version"),
        source: "local",
        dependencies: (1..=packages.len()).collect(),
    };
    Ok(ProjectMetadata {
        version: owned("version"),
        description: owned("description"),
        authors: authors.collect::<Vec<_>>().join(", "),
        licenses: owned("license"),
        homepage: String::new(),
        source: String::new(),
        dependencies: std::iter::once(own).chain(packages).collect(),
    })
}

/// The vendored packages, by their `NAME-VERSION.dist-info`. Which of them needs which is not known.
fn packages(folder: &Path) -> Vec<Dependency> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.collect();
    names.sort();
    let parts = names.iter().filter_map(|name| name.strip_suffix(".dist-info")?.split_once('-'));
    let package = |(name, version): (&str, &str)| Dependency {
        name: name.to_owned(),
        version: version.to_owned(),
        source: "pypi",
        dependencies: vec![],
    };
    parts.map(package).collect()
}

fn manifest(project: &Project) -> Result<DocumentMut> {
    let path = project.folder.join(MARKER);
    script::read(&path)?.parse().with_context(|| format!("`{}`", path.display()))
}

fn text<'a>(manifest: &'a DocumentMut, key: &str) -> Option<&'a str> {
    manifest.get("project")?.get(key)?.as_str()
}

/// Python with the SDK and the packages on its path: that of the project's `.venv`, or the system's.
pub(super) fn python(project: &Project) -> Result<Command> {
    let own: PathBuf = project.folder.join(".venv/bin");
    let found =
        Some(own.join("python")).filter(|file| file.exists()).or_else(|| program::find("python3", &[]));
    let python = found
        .context("there is no `python3` on `PATH`; install Python 3.11 or later from https://python.org")?;
    let modules = [project.folder.join("vendor"), project.folder.join(PACKAGES)];
    let mut command = Command::new(python);
    let path = std::env::join_paths(modules).context("the path of the project contains `:`")?;
    command.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}
