//! Reads archives. Nothing is written to a path that an archive names: documents are parsed, and blobs go into the store
//! under their digests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek as _, SeekFrom};
use std::path::Path;

use tar::{Archive, EntryType};
use toolbay_policy::excerpt::one_line;
use toolbay_state::regular::open_regular;

use super::{
    ArchiveError, ArchivedRule, BLOBS, INDEX_FILE, LAYOUT, LOCK, MAX_DOCUMENT, MAX_ENTRIES, MAX_TOTAL, TRUST,
};
use crate::digest::BlobDigest;
use crate::lock::{self, LockedPlugins};
use crate::registry::{MAX_LAYER, MAX_MANIFEST};
use crate::signature::MAX_BUNDLE;
use crate::store::{BlobStore, StoreError};

/// Bytes that are copied at once.
const BUFFER: usize = 128 << 10;
/// Longest name in a message, in characters.
const MAX_SHOWN: usize = 100;

/// An archive whose names and documents were checked. Its blobs are not read yet.
#[derive(Debug)]
pub struct PluginArchive {
    file: File,
    plugins: LockedPlugins,
    trust: Vec<ArchivedRule>,
}

/// What an entry of an archive is.
enum ArchiveEntry {
    Document(String),
    Blob(BlobDigest),
}

impl PluginArchive {
    /// Opens an archive. Blocks.
    ///
    /// # Errors
    /// Fails if the archive cannot be read, has an entry that does not belong there, or has documents that are not
    /// understood.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let mut file = open_regular(path)?;
        let mut documents = BTreeMap::new();
        let (mut names, mut total) = (BTreeSet::new(), 0_u64);
        for_each_entry(&mut file, |entry, size, content| {
            total = total.saturating_add(size);
            if total > MAX_TOTAL {
                return Err(refused(format!("it has more than {MAX_TOTAL} bytes")));
            }
            let name = match entry {
                ArchiveEntry::Blob(digest) => digest.to_string(),
                ArchiveEntry::Document(name) => {
                    documents.insert(name.clone(), read_document(&name, size, content)?);
                    name
                }
            };
            if names.len() >= MAX_ENTRIES {
                return Err(refused(format!("it has more than {MAX_ENTRIES} entries")));
            }
            match names.insert(name.clone()) {
                true => Ok(()),
                false => Err(refused(format!("`{name}` is there twice"))),
            }
        })?;
        let mut take = |name: &str| {
            let missing = || refused(format!("it has no `{name}`, so `toolbay export` did not write it"));
            documents.remove(name).ok_or_else(missing)
        };
        take(LAYOUT)?;
        let plugins = lock::parse(&take(LOCK)?).map_err(|(line, why)| {
            let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
            refused(format!("`{LOCK}`{line}: {why}"))
        })?;
        let trust = serde_json::from_str(&take(TRUST)?);
        let trust = trust
            .map_err(|error| refused(format!("`{TRUST}`: {}", one_line(&error.to_string(), MAX_SHOWN))))?;
        Ok(Self { file, plugins, trust })
    }

    /// The plugins of its lock.
    #[must_use]
    pub fn plugins(&self) -> &LockedPlugins {
        &self.plugins
    }

    /// The rules that the exporting operator had. They prove nothing here.
    #[must_use]
    pub fn trust(&self) -> &[ArchivedRule] {
        &self.trust
    }

    /// Stores what the lock of the archive names, and nothing else. Blocks.
    ///
    /// # Errors
    /// A blob is missing, has another digest or size, or the store cannot be written.
    pub fn store_blobs(&mut self, store: &BlobStore) -> Result<(), ArchiveError> {
        let mut wanted = BTreeMap::new();
        for plugin in self.plugins.values() {
            wanted.insert(plugin.layer, plugin.size.min(MAX_LAYER));
            wanted.insert(plugin.manifest, MAX_MANIFEST as u64);
            wanted.extend(plugin.bundle.map(|bundle| (bundle, MAX_BUNDLE as u64)));
        }
        for_each_entry(&mut self.file, |entry, size, content| {
            let ArchiveEntry::Blob(digest) = entry else { return Ok(()) };
            match wanted.remove(&digest) {
                None => Ok(()),
                Some(most) if size > most => {
                    Err(refused(format!("the blob {digest} has {size} bytes, and the limit is {most}")))
                }
                Some(_) => store_blob(store, &digest, size, content),
            }
        })?;
        match wanted.into_keys().next() {
            None => Ok(()),
            Some(digest) => Err(refused(format!("it does not have the blob {digest}"))),
        }
    }
}

fn refused(why: String) -> ArchiveError {
    ArchiveError::Refused(why)
}

/// Calls `take` with each entry, its size and its content.
fn for_each_entry(
    file: &mut File,
    mut take: impl FnMut(ArchiveEntry, u64, &mut dyn Read) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    file.seek(SeekFrom::Start(0))?;
    let mut archive = Archive::new(&*file);
    // Raw: extensions of the format, such as long names, are entries of another type, which are refused.
    for entry in archive.entries_with_seek().map_err(unreadable)?.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let shown = one_line(&name, MAX_SHOWN);
        if entry.header().entry_type() != EntryType::Regular {
            return Err(refused(format!("`{shown}` is not a plain file")));
        }
        let known = match name.strip_prefix(BLOBS) {
            Some(hex) => BlobDigest::from_hex(hex).map(ArchiveEntry::Blob),
            None => [LAYOUT, INDEX_FILE, LOCK, TRUST]
                .contains(&name.as_str())
                .then_some(ArchiveEntry::Document(name)),
        };
        let known = known.ok_or_else(|| refused(format!("`{shown}` does not belong into it")))?;
        let size = entry.size();
        take(known, size, &mut entry)?;
    }
    Ok(())
}

/// A damaged archive is a refused one.
fn unreadable(error: std::io::Error) -> ArchiveError {
    match error.kind() {
        ErrorKind::Other | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
            refused(format!("it is not a whole tar archive: {}", one_line(&error.to_string(), MAX_SHOWN)))
        }
        _ => ArchiveError::Io(error),
    }
}

fn read_document(name: &str, size: u64, content: &mut dyn Read) -> Result<String, ArchiveError> {
    if size > MAX_DOCUMENT {
        return Err(refused(format!("`{name}` has {size} bytes, and the limit is {MAX_DOCUMENT}")));
    }
    let mut text = String::new();
    content.take(MAX_DOCUMENT).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

fn store_blob(
    store: &BlobStore,
    digest: &BlobDigest,
    size: u64,
    content: &mut dyn Read,
) -> Result<(), ArchiveError> {
    if store.reuse(digest, size) {
        return Ok(());
    }
    let failed = |error| match error {
        StoreError::Mismatch(why) => refused(format!("the blob {digest} is refused: {why}")),
        error @ (StoreError::Io { .. } | StoreError::Untrusted { .. }) => ArchiveError::Storage(error),
    };
    let mut writer = store.writer(size).map_err(failed)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        match content.read(&mut buffer).map_err(unreadable)? {
            0 => return writer.commit(digest).map_err(failed),
            read => writer.write(buffer.get(..read).unwrap_or_default()).map_err(failed)?,
        }
    }
}
