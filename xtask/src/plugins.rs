//! `plugins` and `guests`: build components on request.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// The folder that [`run`] writes the plugins to.
pub(crate) fn folder(workspace: &Path) -> PathBuf {
    wasm::target_dir(workspace).join("plugins")
}

/// Builds the first-party plugins into one folder as `<id>.wasm` and prints their sizes.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    wasm::ensure_target()?;
    let built = wasm::plugins(workspace)?;
    let folder = folder(workspace);
    wasm::place(&built, &folder)?;
    for plugin in &built {
        let bytes = std::fs::metadata(&plugin.file)?.len();
        println!("{:>8} KiB  {}.wasm", bytes.div_ceil(1024), plugin.name);
    }
    println!("in {}", shown(workspace, &folder));
    Ok(())
}

/// Builds guests and plugins into a folder that `TOOLBAY_GUESTS` can name.
pub(crate) fn guests(workspace: &Path, folder: &Path) -> Result<()> {
    wasm::bundle(workspace, folder)?;
    let guests = wasm::component_names(folder)?.len();
    let plugins = wasm::component_names(&folder.join("plugins"))?.len();
    println!("{guests} guests and {plugins} plugins in {}", shown(workspace, folder));
    Ok(())
}

fn shown(workspace: &Path, folder: &Path) -> String {
    folder.strip_prefix(workspace).unwrap_or(folder).display().to_string()
}
