//! Opens the files that `[serve]` names. A FIFO, a socket or a device never blocks the server.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file for reading, without blocking. The file type is checked before opening, so that no device is
/// opened, and again afterwards, in case the file was swapped in between.
///
/// # Errors
/// The path is not a regular file, or cannot be opened.
pub(crate) fn open_regular(path: &Path) -> std::io::Result<File> {
    let refused = || Error::new(ErrorKind::InvalidInput, "is not a file");
    if !std::fs::metadata(path)?.is_file() {
        return Err(refused());
    }
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_opening_never_blocks() {
        let dir = std::env::temp_dir().join(format!("toolbay-regular-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let at = |name: &str| dir.join(name);
        std::fs::write(at("file"), "text").unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), mode).unwrap();
        assert!(open_regular(&at("file")).is_ok());
        for special in [at("fifo"), at(""), "/dev/null".into()] {
            let error = open_regular(&special).unwrap_err();
            assert!(error.to_string().contains("is not a file"), "{}: {error}", special.display());
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
