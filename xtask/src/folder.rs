//! A folder for one run of a task.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Makes a folder, in place of one that an earlier run left.
pub(crate) fn emptied(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove `{}`", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))
}
