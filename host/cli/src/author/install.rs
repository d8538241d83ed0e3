//! Installs a built component into the plugin directory, where `call` and `serve` find it.
//!
//! An operator writes grants for an id, so a component must not silently replace another project's. A hidden file
//! beside the component names its project.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::project::{BuiltComponent, Project};
use crate::setup::named_path::{path_failure, replace_atomically};
use crate::setup::{self, SetupArgs};

/// Installs a component atomically and returns its path.
pub(crate) fn install(
    setup: &SetupArgs,
    project: &Project,
    component: &BuiltComponent,
    replace: bool,
) -> Result<PathBuf> {
    let folder = setup::plugin_folder(setup)?;
    let target = folder.join(format!("{}.wasm", component.id));
    let origin = folder.join(format!(".{}.built-from", component.id));
    let project_folder = project.folder.display().to_string();
    if target.symlink_metadata().is_ok() && !replace {
        let other = fs::read_to_string(&origin).ok().map(|text| text.trim_end().to_owned());
        if other.as_deref() != Some(project_folder.as_str()) {
            let from = other.map(|other| format!(", built from `{other}`")).unwrap_or_default();
            bail!(
                "`{}` is another plugin{from}; replace it with `--replace`, or choose another id",
                target.display()
            );
        }
    }
    let put = fs::create_dir_all(&folder)
        .and_then(|()| replace_atomically(&origin, |part| fs::write(part, format!("{project_folder}\n"))))
        .and_then(|()| replace_atomically(&target, |part| fs::copy(&component.file, part).map(drop)));
    let put = put.with_context(|| {
        format!(
            "`{}` cannot be written; name a plugin directory with `--plugins DIR`, or build with `--no-install`",
            target.display()
        )
    });
    put.map_err(path_failure)?;
    Ok(target)
}
