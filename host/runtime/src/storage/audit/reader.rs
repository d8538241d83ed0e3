//! The files of an audit as one stream of lines, over rotation and packing.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::PathBuf;

use flate2::bufread::MultiGzDecoder;

use super::archive::{self, Archive, Order, Part};
use super::file::{open_to_read, same_file};

/// Stands for what cannot be read of a packed file: no line of an audit, so it is counted as a broken one.
const DAMAGED: &str = "(the rest of this file is damaged)";
/// How often the files are listed anew because another process packed or removed one meanwhile.
const TRIES: u32 = 16;

/// Takes one line.
type Take<'a> = &'a mut dyn FnMut(&str) -> io::Result<()>;

/// Reads the lines of an audit that are there, the oldest first, and then those that come.
#[derive(Debug)]
pub struct AuditReader {
    path: PathBuf,
    /// The newest archive that was read.
    done: Option<Order>,
    /// The file that is written to, where the next line will be.
    open: Option<BufReader<File>>,
    /// The start of a line that is not whole yet.
    rest: Vec<u8>,
}

impl AuditReader {
    /// A reader of the audit at this path, before its first line.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), done: None, open: None, rest: Vec::new() }
    }

    /// Hands over all lines that came since the last time.
    ///
    /// # Errors
    /// When a file cannot be read, or `take` fails.
    pub fn read(&mut self, take: &mut dyn FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        for _ in 0..TRIES {
            self.read_open(take)?;
            if self.is_current() {
                return Ok(());
            }
            self.leave(take)?;
            match self.read_archives(take) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read?,
            }
            let file = match open_to_read(&self.path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            // What was renamed meanwhile is read first.
            if self.next_archive().is_none() {
                self.open = Some(BufReader::new(file));
                return self.read_open(take);
            }
        }
        Ok(())
    }

    /// Whether what came last is no whole line.
    #[must_use]
    pub fn rest_is_broken(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Whether the open file is the one that is written to.
    fn is_current(&self) -> bool {
        let open = self.open.as_ref().and_then(|open| open.get_ref().metadata().ok());
        let now = fs::symlink_metadata(&self.path).ok();
        open.zip(now).is_some_and(|(open, now)| same_file(&open, &now))
    }

    fn next_archive(&self) -> Option<(Order, Archive)> {
        archive::list(&self.path).into_iter().find(|(order, _)| self.done.is_none_or(|done| done < *order))
    }

    /// Leaves the open file. What stands at its end without a line break is a line.
    fn leave(&mut self, take: Take<'_>) -> io::Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        // It is the next archive now, unless somebody removed it.
        if let Some((order, archive)) = self.next_archive() {
            let meta = |part: &Part| fs::symlink_metadata(&part.path).ok();
            let is_other = match (archive.plain.as_ref().and_then(meta), open.get_ref().metadata()) {
                (Some(plain), Ok(open)) => !same_file(&plain, &open),
                _ => false,
            };
            if !is_other {
                self.done = Some(order);
            }
        }
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() { Ok(()) } else { take(&String::from_utf8_lossy(&rest)) }
    }

    fn read_open(&mut self, take: Take<'_>) -> io::Result<()> {
        let Some(reader) = &mut self.open else { return Ok(()) };
        while reader.read_until(b'\n', &mut self.rest)? > 0 && self.rest.ends_with(b"\n") {
            tell(&self.rest, take)?;
            self.rest.clear();
        }
        Ok(())
    }

    fn read_archives(&mut self, take: Take<'_>) -> io::Result<()> {
        while let Some((order, archive)) = self.next_archive() {
            read_archive(&archive, take)?;
            self.done = Some(order);
        }
        Ok(())
    }
}

/// Hands over the lines of an archive, in the order of their times.
fn read_archive(archive: &Archive, take: Take<'_>) -> io::Result<()> {
    // Before a line is handed over: what was renamed meanwhile is looked for anew.
    let open = |part: &Part| open_to_read(&part.path).map(BufReader::new);
    if let Some(plain) = &archive.plain {
        let mut lines = Lines::new(open(plain)?);
        while let Some(line) = lines.pop() {
            tell(&line, take)?;
        }
        return Ok(());
    }
    let unpacked = |part: &Option<Part>| {
        part.as_ref().map(|part| Ok::<_, io::Error>(Lines::new(MultiGzDecoder::new(open(part)?)))).transpose()
    };
    let (mut ran, mut refused) = (unpacked(&archive.packed)?, unpacked(&archive.refused)?);
    loop {
        let [first, second] = [&mut ran, &mut refused].map(|lines| lines.as_mut().and_then(Lines::time));
        let next = match (first, second) {
            (None, None) => return Ok(()),
            (Some(first), Some(second)) if second < first => &mut refused,
            (None, Some(_)) => &mut refused,
            (Some(_), _) => &mut ran,
        };
        if let Some(line) = next.as_mut().and_then(Lines::pop) {
            tell(&line, take)?;
        }
    }
}

fn tell(line: &[u8], take: Take<'_>) -> io::Result<()> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    if text.is_empty() { Ok(()) } else { take(text) }
}

/// Lines, of which the next can be looked at.
struct Lines<R> {
    reader: BufReader<R>,
    next: Option<Vec<u8>>,
}

impl<R: Read> Lines<R> {
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

    /// How the next line begins, which is with its time.
    fn time(&mut self) -> Option<Vec<u8>> {
        let length = r#"{"time":"0000-00-00T00:00:00.000000Z"#.len();
        self.next.as_ref().map(|line| line.iter().copied().take(length).collect())
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let read = self.read();
        std::mem::replace(&mut self.next, read)
    }
}
