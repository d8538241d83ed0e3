//! Files and folders as an archive has them: sorted, with an owner, a mode and one time, so that the same files give the same
//! bytes.

use std::collections::BTreeMap;
use std::io::{Cursor, Write as _};

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The owner of files that nobody else may change.
pub(super) const ROOT: u64 = 0;

/// A file or a folder.
#[derive(Debug, Clone)]
enum Node {
    Folder,
    File(Vec<u8>),
}

/// What an archive says about a path.
#[derive(Debug, Clone)]
struct Entry {
    node: Node,
    mode: u32,
    owner: u64,
}

/// The files and folders of an archive, by path.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    /// Adds a file that everybody may read.
    pub(super) fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.add(path, Entry { node: Node::File(bytes.into()), mode: 0o644, owner: ROOT });
    }

    /// Adds a program.
    pub(super) fn program(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.add(path, Entry { node: Node::File(bytes.into()), mode: 0o755, owner: ROOT });
    }

    /// Adds a folder.
    pub(super) fn folder(&mut self, path: &str, mode: u32, owner: u64) {
        self.add(path, Entry { node: Node::Folder, mode, owner });
    }

    /// Adds all of another tree below a folder.
    pub(super) fn graft(&mut self, folder: &str, other: &Self) {
        for (path, entry) in &other.entries {
            self.add(&format!("{folder}/{path}"), entry.clone());
        }
    }

    fn add(&mut self, path: &str, entry: Entry) {
        let above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        for folder in above {
            let folder = folder.to_owned();
            self.entries.entry(folder).or_insert(Entry { node: Node::Folder, mode: 0o755, owner: ROOT });
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// The paths and contents of all files.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().filter_map(|(path, entry)| match &entry.node {
            Node::File(bytes) => Some((path.as_str(), bytes.as_slice())),
            Node::Folder => None,
        })
    }

    /// A tar archive.
    pub(super) fn tar(&self, time: u64) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_mtime(time);
            header.set_uid(entry.owner);
            header.set_gid(entry.owner);
            let (kind, bytes, end) = match &entry.node {
                Node::Folder => (tar::EntryType::Directory, [].as_slice(), "/"),
                Node::File(bytes) => (tar::EntryType::Regular, bytes.as_slice(), ""),
            };
            header.set_entry_type(kind);
            header.set_size(bytes.len().try_into()?);
            archive.append_data(&mut header, format!("{path}{end}"), bytes)?;
        }
        Ok(archive.into_inner()?)
    }

    /// A compressed tar archive.
    pub(super) fn gzipped(&self, time: u64, compression: Compression) -> Result<Vec<u8>> {
        gzip(&self.tar(time)?, compression)
    }

    /// A ZIP archive of the files, without folders. Its format knows no time zone, so it has the same time always.
    pub(super) fn zipped(&self, compression: Compression) -> Result<Vec<u8>> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().last_modified_time(zip::DateTime::default());
        let options = match compression.level() {
            0 => options.compression_method(CompressionMethod::Stored),
            level => {
                options.compression_method(CompressionMethod::Deflated).compression_level(Some(level.into()))
            }
        };
        for (path, entry) in &self.entries {
            if let Node::File(bytes) = &entry.node {
                archive.start_file(path, options.unix_permissions(entry.mode))?;
                archive.write_all(bytes)?;
            }
        }
        Ok(archive.finish()?.into_inner())
    }
}

/// Compresses without a name and a time.
pub(super) fn gzip(bytes: &[u8], compression: Compression) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), compression);
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_additions_does_not_change_an_archive() {
        let mut one = Tree::default();
        one.file("a/b", "1");
        one.program("c", "2");
        let mut other = Tree::default();
        other.program("c", "2");
        other.file("a/b", "1");
        let gzipped = |tree: &Tree, time| tree.gzipped(time, Compression::default()).unwrap();
        assert_eq!(gzipped(&one, 7), gzipped(&other, 7));
        assert_ne!(gzipped(&one, 7), gzipped(&one, 8));
        let zipped = |tree: &Tree| tree.zipped(Compression::default()).unwrap();
        assert_eq!(zipped(&one), zipped(&other));
        assert_eq!(one.files().map(|(path, _)| path).collect::<Vec<_>>(), ["a/b", "c"]);
    }
}
