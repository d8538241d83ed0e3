//! The files of an audit as one stream of lines, over rotation.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use toolbay::FileAudit;

/// What identifies a file, whatever its name is by now.
type Id = (u64, u64);

/// Reads what is there, and then what comes.
pub(super) struct Tail {
    path: PathBuf,
    /// The file that was read last, where the next line will be.
    open: Option<(Id, BufReader<File>)>,
    /// Files that are read to their end. They stay open for as long as they have a name, so that no other file can
    /// come by their number.
    done: Vec<(Id, File)>,
    /// The start of a line that is not whole yet.
    rest: Vec<u8>,
}

impl Tail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, open: None, done: Vec::new(), rest: Vec::new() }
    }

    /// Hands over all lines that came since the last time.
    pub(super) fn read(&mut self, line: &mut dyn FnMut(&str) -> std::io::Result<()>) -> std::io::Result<()> {
        // First the new files, then the end of the old one: what was written to it before the new ones were made is
        // read before them.
        let new = self.new_files()?;
        self.done.retain(|(_, file)| file.metadata().is_ok_and(|meta| meta.nlink() > 0));
        self.read_open(line)?;
        for (id, file) in new {
            self.end(line)?;
            self.open = Some((id, BufReader::new(file)));
            self.read_open(line)?;
        }
        Ok(())
    }

    /// Whether what came last is no whole line.
    pub(super) fn rest_is_broken(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The files that were not read yet, the oldest first. They are opened from the newest on: names are given on in
    /// that direction, so a rotation meanwhile shows a file twice and hides none.
    fn new_files(&self) -> std::io::Result<Vec<(Id, File)>> {
        let mut new: Vec<(Id, File)> = Vec::new();
        for path in FileAudit::files(&self.path).into_iter().rev() {
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let meta = file.metadata()?;
            let id = (meta.dev(), meta.ino());
            if self.open.as_ref().is_some_and(|(open, _)| *open == id) {
                break;
            }
            if !self.done.iter().chain(&new).any(|(known, _)| *known == id) {
                new.push((id, file));
            }
        }
        new.reverse();
        Ok(new)
    }

    fn read_open(&mut self, line: &mut dyn FnMut(&str) -> std::io::Result<()>) -> std::io::Result<()> {
        let Some((_, reader)) = &mut self.open else { return Ok(()) };
        while reader.read_until(b'\n', &mut self.rest)? > 0 && self.rest.ends_with(b"\n") {
            let text = String::from_utf8_lossy(&self.rest);
            if !text.trim().is_empty() {
                line(text.trim_end())?;
            }
            self.rest.clear();
        }
        Ok(())
    }

    /// Leaves the open file; what stands at its end without a line break is a line.
    fn end(&mut self, line: &mut dyn FnMut(&str) -> std::io::Result<()>) -> std::io::Result<()> {
        if let Some((id, reader)) = self.open.take() {
            self.done.push((id, reader.into_inner()));
        }
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() { Ok(()) } else { line(&String::from_utf8_lossy(&rest)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn lines(tail: &mut Tail) -> Vec<String> {
        let mut found = Vec::new();
        tail.read(&mut |line| {
            found.push(line.to_owned());
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn lines_are_read_once_in_order_over_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let at = |n: u32| dir.path().join(format!("a.{n}"));
        let append = |text: &str| {
            let file = fs::OpenOptions::new().append(true).create(true).open(&path);
            file.unwrap().write_all(text.as_bytes()).unwrap();
        };
        fs::write(at(2), "1\n").unwrap();
        fs::write(at(1), "2\n\n3").unwrap();
        append("4\n5");
        let mut tail = Tail::new(path.clone());
        assert_eq!(lines(&mut tail), ["1", "2", "3", "4"]);
        assert!(tail.rest_is_broken());
        append("5\n6\n");
        assert_eq!(lines(&mut tail), ["55", "6"]);
        append("7\n");
        fs::rename(at(1), at(3)).unwrap();
        fs::rename(&path, at(2)).unwrap();
        fs::write(at(1), "8\n").unwrap();
        append("9\n");
        assert_eq!(lines(&mut tail), ["7", "8", "9"]);
        assert_eq!(lines(&mut tail), [""; 0]);
        fs::remove_file(&path).unwrap();
        assert_eq!(lines(&mut tail), [""; 0]);
        append("10\n");
        assert_eq!(lines(&mut tail), ["10"]);
    }
}
