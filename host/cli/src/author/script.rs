//! Shared by the languages other than Rust: the SDK in `vendor/` has a script that builds the component and reports
//! errors on stderr.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use toolbay::PluginId;

use super::offers;
use super::project::{BuiltComponent, Project};
use super::template::TemplateFile;
use crate::output::{self, host_failure};

/// The files of an SDK in a folder of the project.
pub(super) fn vendored(folder: &str, sdk: &'static [(&'static str, &'static str)]) -> Vec<TemplateFile> {
    sdk.iter().map(|(path, text)| TemplateFile::new(format!("{folder}/{path}"), *text)).collect()
}

/// Builds the component with the SDK's script; `None`: the script reported an error.
pub(super) fn build(
    project: &Project,
    id: PluginId,
    command: &mut Command,
) -> Result<Option<BuiltComponent>> {
    let file = project.folder.join("target").join(format!("{id}.wasm"));
    command.arg("-o").arg(&file);
    if !run(project, command)? {
        return Ok(None);
    }
    let component = BuiltComponent { id, file, base: None };
    offers::embed(project, &component)?;
    Ok(Some(component))
}

/// Runs a program in the project's folder with its output on stderr. Returns whether it succeeded.
pub(super) fn run(project: &Project, command: &mut Command) -> Result<bool> {
    let program = PathBuf::from(command.get_program());
    command.stdout(output::stderr_for_program().map_err(host_failure)?);
    let status = command.current_dir(&project.folder).stdin(Stdio::null()).status();
    let status =
        status.with_context(|| format!("cannot run `{}`", program.display())).map_err(host_failure)?;
    Ok(status.success())
}

/// The plugin's id from the name in its manifest.
pub(super) fn id(manifest: &Path, name: Option<&str>) -> Result<PluginId> {
    let shown = manifest.display();
    let name = name.with_context(|| format!("`{shown}` has no name, which is the plugin's id"))?;
    PluginId::new(name).with_context(|| format!("the name in `{shown}` is not a plugin id"))
}

/// Reads a manifest.
pub(super) fn read(manifest: &Path) -> Result<String> {
    let text = std::fs::read_to_string(manifest);
    text.with_context(|| format!("`{}` cannot be read", manifest.display()))
}
