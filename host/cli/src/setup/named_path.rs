//! Paths that the command line names: what a command reads as a whole, and where it writes.
//!
//! A path that is not there, or that cannot be written, is the operator's to change: exit code 1. Any other I/O error is a
//! failure of the host.

use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Context as _, Error, Result};

use crate::output::{CommandError, host_failure};

/// The error of a command for a path that its command line names.
pub(crate) fn path_failure(error: impl Into<Error>) -> Error {
    let error = error.into();
    if error.is::<CommandError>() {
        return error;
    }
    let is_of_path = error.chain().filter_map(|one| one.downcast_ref::<io::Error>()).any(is_of_path);
    if is_of_path {
        CommandError::new("unusable_path", format!("{error:#}")).into()
    } else {
        host_failure(error)
    }
}

/// Whether another path, or another owner or mode of it, would help.
fn is_of_path(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::AlreadyExists
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidFilename
            | ErrorKind::InvalidInput
    )
}

/// Creates a folder for files, and checks that files can be created in it.
pub(crate) fn create_folder(dir: &Path) -> Result<()> {
    let created = std::fs::create_dir_all(dir).and_then(|()| check_writable(dir));
    created.with_context(|| cannot_be_written(dir)).map_err(path_failure)
}

/// Writes a temporary file and renames it, so that a watching host never reads half a file.
pub(crate) fn replace_atomically<T, E: From<io::Error>>(
    target: &Path,
    write: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<T, E> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let part = target.with_file_name(format!(".{name}.{}", std::process::id()));
    let done = write(&part).and_then(|written| {
        std::fs::rename(&part, target)?;
        Ok(written)
    });
    if done.is_err() {
        std::fs::remove_file(&part).ok();
    }
    done
}

/// The folder of a file.
pub(crate) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a path that exists, with what to do instead.
pub(crate) fn check_is_new(path: &Path, help: &str) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let why = format!("`{}` already exists", path.display());
    Err(CommandError::new("exists", why).with_help(help).into())
}

/// Checks that a file can be created in the folder of a new file.
pub(crate) fn check_folder_of(file: &Path) -> Result<()> {
    check_writable(folder_of(file)).with_context(|| cannot_be_written(file)).map_err(path_failure)
}

fn check_writable(folder: &Path) -> io::Result<()> {
    tempfile::tempfile_in(folder).map(drop)
}

fn cannot_be_written(path: &Path) -> String {
    format!("`{}` cannot be written", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::error::HostFailure;

    #[test]
    fn only_errors_of_the_path_are_the_operators() {
        for (kind, is_of_host) in [
            (ErrorKind::NotFound, false),
            (ErrorKind::PermissionDenied, false),
            (ErrorKind::NotADirectory, false),
            (ErrorKind::StorageFull, true),
            (ErrorKind::Other, true),
        ] {
            let failed = path_failure(Error::from(io::Error::from(kind)).context("`a` cannot be written"));
            assert_eq!(failed.is::<HostFailure>(), is_of_host, "{kind}");
            assert_eq!(failed.is::<CommandError>(), !is_of_host, "{kind}");
        }
    }

    #[test]
    fn a_place_is_checked_before_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        create_folder(&dir.path().join("a/b")).unwrap();
        check_folder_of(&dir.path().join("new")).unwrap();
        for bad in [create_folder(&file), create_folder(&file.join("a")), check_folder_of(&file.join("a"))] {
            assert!(bad.unwrap_err().is::<CommandError>());
        }
    }
}
