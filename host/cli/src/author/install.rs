//! A built component in the plugin directory, where `call` and `serve` find it.
//!
//! The id is what an operator writes grants for. So a component never takes the place of another project's without a
//! word: a hidden file beside it says which project it was built from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::project::{Component, Project};
use crate::command::args::SetupArgs;
use crate::command::setup;

/// Puts a component into the plugin directory, whole or not at all, and returns where it is.
pub(crate) fn install(
    setup: &SetupArgs,
    project: &Project,
    component: &Component,
    replace: bool,
) -> Result<PathBuf> {
    let folder = setup::plugin_place(setup)?;
    let target = folder.join(format!("{}.wasm", component.id));
    let origin = folder.join(format!(".{}.built-from", component.id));
    let here = project.folder.display().to_string();
    if target.symlink_metadata().is_ok() && !replace {
        let other = fs::read_to_string(&origin).ok().map(|text| text.trim_end().to_owned());
        if other.as_deref() != Some(here.as_str()) {
            let from = other.map(|other| format!(", built from `{other}`")).unwrap_or_default();
            bail!(
                "`{}` is another plugin{from}: put this one in its place with --replace, or give it another id",
                target.display()
            );
        }
    }
    let put = fs::create_dir_all(&folder)
        .and_then(|()| replace_file(&origin, |part| fs::write(part, format!("{here}\n"))))
        .and_then(|()| replace_file(&target, |part| fs::copy(&component.file, part).map(drop)));
    put.with_context(|| {
        format!(
            "`{}` cannot be written: name a plugin directory of yours with --plugins DIR, or only build with \
             --no-install",
            target.display()
        )
    })?;
    Ok(target)
}

/// Writes a file beside its place and renames it: a host that watches the directory never sees half of it.
pub(super) fn replace_file(target: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let part = target.with_file_name(format!(".{name}.{}", std::process::id()));
    let done = write(&part).and_then(|()| fs::rename(&part, target));
    if done.is_err() {
        fs::remove_file(&part).ok();
    }
    done
}
