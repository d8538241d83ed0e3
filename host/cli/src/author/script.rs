//! What the languages other than Rust have in common: the SDK lies in `vendor/`, and builds the component by a script of
//! its own, which says on stderr what is wrong with the plugin.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use toolbay::PluginId;

use super::project::{Component, Project};
use super::template::TemplateFile;
use crate::host_failed;

/// The files of an SDK, below a folder of the project.
pub(super) fn vendored(folder: &str, sdk: &'static [(&'static str, &'static str)]) -> Vec<TemplateFile> {
    sdk.iter().map(|(path, text)| TemplateFile::new(format!("{folder}/{path}"), *text)).collect()
}

/// Runs the SDK's script, which is to make the component; `None`: it said why it cannot.
pub(super) fn build(project: &Project, id: PluginId, command: &mut Command) -> Result<Option<Component>> {
    let file = project.folder.join("target").join(format!("{id}.wasm"));
    command.arg("-o").arg(&file);
    Ok(run(project, command)?.then_some(Component { id, file }))
}

/// Runs a program in the project's folder; tells whether it ended well. What it says goes to the terminal.
pub(super) fn run(project: &Project, command: &mut Command) -> Result<bool> {
    let program = PathBuf::from(command.get_program());
    let status = command.current_dir(&project.folder).stdin(Stdio::null()).status();
    let status =
        status.with_context(|| format!("cannot run `{}`", program.display())).map_err(host_failed)?;
    Ok(status.success())
}

/// The id of a plugin, of the name that its manifest gives it.
pub(super) fn id(manifest: &Path, name: Option<&str>) -> Result<PluginId> {
    let shown = manifest.display();
    let name = name.with_context(|| format!("`{shown}` has no name: it is the plugin's id"))?;
    PluginId::new(name).with_context(|| format!("the name in `{shown}` is no plugin's id"))
}

/// Reads a manifest.
pub(super) fn read(manifest: &Path) -> Result<String> {
    let text = std::fs::read_to_string(manifest);
    text.with_context(|| format!("`{}` cannot be read", manifest.display()))
}
