//! Folders of components: what is in one, and how one is written.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::Component;

/// Copies components into a folder as `<name>.wasm`, each atomically, and removes components with other names.
///
/// # Errors
/// A file cannot be read or written.
pub fn place(built: &[Component], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    for Component { name, file } in built {
        let target = folder.join(format!("{name}.wasm"));
        // A host that watches the folder must never see half a component.
        let part = folder.join(format!(".{name}.{}", std::process::id()));
        fs::copy(file, &part)
            .and_then(|_| fs::rename(&part, &target))
            .with_context(|| format!("cannot write `{}`", target.display()))?;
    }
    for name in component_names(folder)? {
        if built.iter().all(|component| component.name != name) {
            let old = folder.join(format!("{name}.wasm"));
            fs::remove_file(&old).with_context(|| format!("cannot remove `{}`", old.display()))?;
        }
    }
    Ok(())
}

/// Names of the components in a folder, sorted.
///
/// # Errors
/// The folder cannot be read.
pub fn component_names(folder: &Path) -> Result<Vec<String>> {
    stems(folder, "wasm")
}

/// Names of the files in a folder with this extension, sorted.
pub(crate) fn stems(folder: &Path, extension: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new(extension)) {
            names.extend(path.file_stem().and_then(OsStr::to_str).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

/// Names of the packages in a folder, sorted.
pub(crate) fn packages(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_only_what_was_built() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let file = folder.join("built");
        fs::write(&file, "new").unwrap();
        for (name, text) in [("gone.wasm", "old"), ("kept.wasm", "old"), ("notes.txt", "old")] {
            fs::write(folder.join(name), text).unwrap();
        }
        place(&[Component { name: "kept".to_owned(), file }], folder).unwrap();
        assert_eq!(component_names(folder).unwrap(), ["kept"]);
        assert_eq!(fs::read_to_string(folder.join("kept.wasm")).unwrap(), "new");
        assert!(folder.join("notes.txt").is_file());
    }
}
