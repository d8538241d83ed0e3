//! Opens regular files by path without blocking on a FIFO, a socket or a device.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file for reading without blocking. The file type is checked before and after the file is opened, in
/// case the file is swapped in between.
///
/// # Errors
/// The path is not a regular file, or it cannot be opened.
pub fn open_regular(path: &Path) -> std::io::Result<File> {
    let refused = || Error::new(ErrorKind::InvalidInput, "it is not a regular file");
    if !std::fs::metadata(path)?.is_file() {
        return Err(refused());
    }
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}

/// Reads a regular file of at most `most` bytes. See [`open_regular`].
///
/// # Errors
/// Fails if the file cannot be opened, or is larger.
pub fn read_regular(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `most` bytes as text.
///
/// # Errors
/// Fails if the file cannot be read, or is not UTF-8.
pub fn read_regular_text(path: &Path, most: u64) -> std::io::Result<String> {
    String::from_utf8(read_regular(path, most)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(read_regular_text(&at("file"), 4).unwrap(), "text");
        assert_eq!(read_regular(&at("file"), 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_regular(&at("absent"), 3).unwrap_err().kind(), ErrorKind::NotFound);
        for special in [at("fifo"), at("socket"), at(""), "/dev/null".into()] {
            let error = open_regular(&special).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{}: {error}", special.display());
        }
    }
}
