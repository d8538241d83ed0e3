//! The folders of tasks, and what they read.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The text of a file.
pub(crate) fn read_text(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))
}

/// The text of a page of `docs/tutorials`.
pub(crate) fn read_tutorial(workspace: &Path, name: &str) -> Result<String> {
    read_text(&workspace.join("docs/tutorials").join(name).with_extension("md"))
}

/// Makes a folder, in place of one that an earlier run left.
pub(crate) fn emptied(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove `{}`", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))
}
