//! Finds programs of the author's toolchain.

use std::path::{Path, PathBuf};

/// Finds a program on `PATH`, or in one of the folders.
pub(crate) fn find(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(folders.iter().cloned());
    folders.map(|folder| folder.join(&name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_executable_is_not_found() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("toolbay-no-such-program");
        std::fs::write(&file, "").unwrap();
        let found = || find("toolbay-no-such-program", &[dir.path().to_path_buf()]);
        assert_eq!(found(), None);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found(), Some(file));
        assert!(find("sh", &[]).is_some());
    }
}
