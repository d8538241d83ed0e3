//! Reads the files of an audit as one stream of lines, across rotation and packing.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::iter::Peekable;
use std::path::PathBuf;

use flate2::bufread::MultiGzDecoder;

use super::archive::{self, Archive, ArchiveFile, ArchiveOrder};
use super::file::{open_to_read, same_file};

/// Stands for the unreadable rest of a packed file. It is not a valid line, so readers count it as broken.
const DAMAGED: &str = "(the rest of this file is damaged)";
/// How often the files are listed again because another process packed or removed one.
const MAX_ATTEMPTS: u32 = 16;

/// Receives one line.
type LineSink<'a> = &'a mut dyn FnMut(&str) -> io::Result<()>;

/// Reads the existing lines of an audit, oldest first, and then new lines.
#[derive(Debug)]
pub struct AuditReader {
    path: PathBuf,
    /// The newest archive that was read completely.
    done: Option<ArchiveOrder>,
    /// The current file, at the position of the next line.
    current: Option<BufReader<File>>,
    /// The start of an incomplete line.
    partial_line: Vec<u8>,
}

impl AuditReader {
    /// Creates a reader at the first line of the audit.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), done: None, current: None, partial_line: Vec::new() }
    }

    /// Passes all new lines to `on_line`.
    ///
    /// # Errors
    /// A file cannot be read, or `on_line` fails.
    pub fn read(&mut self, on_line: &mut dyn FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            self.read_current(on_line)?;
            if self.is_current() {
                return Ok(());
            }
            self.close_current(on_line)?;
            match self.read_archives(on_line) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read?,
            }
            let file = match open_to_read(&self.path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            // Files that were renamed in between are read first.
            if self.next_archive().is_none() {
                self.current = Some(BufReader::new(file));
                return self.read_current(on_line);
            }
        }
        Ok(())
    }

    /// Whether the last line is incomplete.
    #[must_use]
    pub fn has_partial_line(&self) -> bool {
        !self.partial_line.is_empty()
    }

    /// Whether the open file is still the current one.
    fn is_current(&self) -> bool {
        let open = self.current.as_ref().and_then(|open| open.get_ref().metadata().ok());
        let now = fs::symlink_metadata(&self.path).ok();
        open.zip(now).is_some_and(|(open, now)| same_file(&open, &now))
    }

    fn next_archive(&self) -> Option<(ArchiveOrder, Archive)> {
        archive::list(&self.path).into_iter().find(|(order, _)| self.done.is_none_or(|done| done < *order))
    }

    /// Closes the open file. Text without a line break at its end counts as a line.
    fn close_current(&mut self, on_line: LineSink<'_>) -> io::Result<()> {
        let Some(open) = self.current.take() else { return Ok(()) };
        // The file is the next archive now, unless it was removed.
        if let Some((order, archive)) = self.next_archive() {
            let meta = |part: &ArchiveFile| fs::symlink_metadata(&part.path).ok();
            let is_other = match (archive.plain.as_ref().and_then(meta), open.get_ref().metadata()) {
                (Some(plain), Ok(open)) => !same_file(&plain, &open),
                _ => false,
            };
            if !is_other {
                self.done = Some(order);
            }
        }
        let rest = std::mem::take(&mut self.partial_line);
        if rest.is_empty() { Ok(()) } else { on_line(&String::from_utf8_lossy(&rest)) }
    }

    fn read_current(&mut self, on_line: LineSink<'_>) -> io::Result<()> {
        let Some(reader) = &mut self.current else { return Ok(()) };
        while reader.read_until(b'\n', &mut self.partial_line)? > 0 && self.partial_line.ends_with(b"\n") {
            emit_line(&self.partial_line, on_line)?;
            self.partial_line.clear();
        }
        Ok(())
    }

    fn read_archives(&mut self, on_line: LineSink<'_>) -> io::Result<()> {
        while let Some((order, archive)) = self.next_archive() {
            read_archive(&archive, on_line)?;
            self.done = Some(order);
        }
        Ok(())
    }
}

/// Passes on the lines of an archive, in the order of their times.
fn read_archive(archive: &Archive, on_line: LineSink<'_>) -> io::Result<()> {
    // Opened before the first line is passed on: if a file was renamed, the caller lists the files again.
    if let Some(plain) = &archive.plain {
        for line in lines(open_to_read(&plain.path)?) {
            emit_line(&line, on_line)?;
        }
        return Ok(());
    }
    let (mut ran, mut refused) = (unpack(archive.packed.as_ref())?, unpack(archive.refused.as_ref())?);
    loop {
        let is_refused_next = match (ran.peek(), refused.peek()) {
            (None, None) => return Ok(()),
            (Some(ran), Some(refused)) => line_time(refused) < line_time(ran),
            (ran, _) => ran.is_none(),
        };
        let next = if is_refused_next { refused.next() } else { ran.next() };
        if let Some(line) = next {
            emit_line(&line, on_line)?;
        }
    }
}

/// The lines of a packed file; none without a file.
fn unpack(part: Option<&ArchiveFile>) -> io::Result<Peekable<impl Iterator<Item = Vec<u8>>>> {
    let file = part.map(|part| open_to_read(&part.path)).transpose()?;
    let unpacked = file.map(|file| lines(MultiGzDecoder::new(BufReader::new(file))));
    Ok(unpacked.into_iter().flatten().peekable())
}

/// The lines of a file up to the first error, for which [`DAMAGED`] stands.
fn lines(inner: impl Read) -> impl Iterator<Item = Vec<u8>> {
    let mut is_damaged = false;
    BufReader::new(inner).split(b'\n').map_while(move |line| match line {
        Ok(line) => Some(line),
        Err(_) if is_damaged => None,
        Err(_) => {
            is_damaged = true;
            Some(DAMAGED.into())
        }
    })
}

/// The start of a line, up to the end of its time.
fn line_time(line: &[u8]) -> &[u8] {
    let length = r#"{"time":"0000-00-00T00:00:00.000000Z"#.len();
    line.get(..length).unwrap_or(line)
}

fn emit_line(line: &[u8], on_line: LineSink<'_>) -> io::Result<()> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    if text.is_empty() { Ok(()) } else { on_line(text) }
}
