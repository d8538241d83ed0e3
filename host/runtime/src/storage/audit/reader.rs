//! Reads the files of an audit as one stream of lines, across rotation and packing.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
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

    /// Passes all new lines to `take`.
    ///
    /// # Errors
    /// A file cannot be read, or `take` fails.
    pub fn read(&mut self, take: &mut dyn FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            self.read_current(take)?;
            if self.is_current() {
                return Ok(());
            }
            self.close_current(take)?;
            match self.read_archives(take) {
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
                return self.read_current(take);
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
    fn close_current(&mut self, take: LineSink<'_>) -> io::Result<()> {
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
        if rest.is_empty() { Ok(()) } else { take(&String::from_utf8_lossy(&rest)) }
    }

    fn read_current(&mut self, take: LineSink<'_>) -> io::Result<()> {
        let Some(reader) = &mut self.current else { return Ok(()) };
        while reader.read_until(b'\n', &mut self.partial_line)? > 0 && self.partial_line.ends_with(b"\n") {
            emit_line(&self.partial_line, take)?;
            self.partial_line.clear();
        }
        Ok(())
    }

    fn read_archives(&mut self, take: LineSink<'_>) -> io::Result<()> {
        while let Some((order, archive)) = self.next_archive() {
            read_archive(&archive, take)?;
            self.done = Some(order);
        }
        Ok(())
    }
}

/// Passes on the lines of an archive, in the order of their times.
fn read_archive(archive: &Archive, take: LineSink<'_>) -> io::Result<()> {
    // Opened before the first line is passed on: if a file was renamed, the caller lists the files again.
    let open = |part: &ArchiveFile| open_to_read(&part.path).map(BufReader::new);
    if let Some(plain) = &archive.plain {
        let mut lines = PeekableLines::new(open(plain)?);
        while let Some(line) = lines.pop() {
            emit_line(&line, take)?;
        }
        return Ok(());
    }
    let unpacked = |part: &Option<ArchiveFile>| {
        part.as_ref()
            .map(|part| Ok::<_, io::Error>(PeekableLines::new(MultiGzDecoder::new(open(part)?))))
            .transpose()
    };
    let (mut ran, mut refused) = (unpacked(&archive.packed)?, unpacked(&archive.refused)?);
    loop {
        let [first, second] =
            [&mut ran, &mut refused].map(|lines| lines.as_mut().and_then(PeekableLines::time));
        let next = match (first, second) {
            (None, None) => return Ok(()),
            (Some(first), Some(second)) if second < first => &mut refused,
            (None, Some(_)) => &mut refused,
            (Some(_), _) => &mut ran,
        };
        if let Some(line) = next.as_mut().and_then(PeekableLines::pop) {
            emit_line(&line, take)?;
        }
    }
}

fn emit_line(line: &[u8], take: LineSink<'_>) -> io::Result<()> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    if text.is_empty() { Ok(()) } else { take(text) }
}

/// Lines with one line of lookahead.
struct PeekableLines<R> {
    reader: BufReader<R>,
    next: Option<Vec<u8>>,
}

impl<R: Read> PeekableLines<R> {
    fn new(inner: R) -> Self {
        let mut lines = Self { reader: BufReader::new(inner), next: None };
        lines.next = lines.read();
        lines
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(line),
            Err(_) if self.next.as_deref() == Some(DAMAGED.as_bytes()) => None,
            Err(_) => Some(DAMAGED.into()),
        }
    }

    /// The start of the next line, up to the end of its time.
    fn time(&mut self) -> Option<Vec<u8>> {
        let length = r#"{"time":"0000-00-00T00:00:00.000000Z"#.len();
        self.next.as_ref().map(|line| line.iter().copied().take(length).collect())
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let read = self.read();
        std::mem::replace(&mut self.next, read)
    }
}
