//! Writes archives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};

use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::{ArchiveError, ArchivedRule, BLOBS, INDEX_FILE, LAYOUT, LOCK, TRUST};
use crate::digest::BlobDigest;
use crate::lock::{self, LockedPlugin, LockedPlugins};
use crate::media_type::{BUNDLE, INDEX, MANIFEST};
use crate::registry::{EMPTY_CONFIG, MAX_MANIFEST, signature_manifest};
use crate::signature::MAX_BUNDLE;
use crate::store::BlobStore;

/// The mode of all entries.
const MODE: u32 = 0o644;

/// What an archive has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveSummary {
    /// The number of plugins.
    pub plugins: usize,
    /// The number of blobs.
    pub blobs: usize,
}

/// The content of a blob.
enum BlobContent {
    Bytes(Vec<u8>),
    /// In the store, with its size.
    Stored(u64),
}

/// The blobs and the index of an archive.
#[derive(Default)]
struct ArchiveContent {
    /// By digest, so that the order does not depend on the plugins.
    blobs: BTreeMap<BlobDigest, BlobContent>,
    manifests: Vec<Value>,
}

/// Writes plugins with what the store has of them. Blocks.
///
/// # Errors
/// The store does not have a blob, or the archive cannot be written.
pub fn write(
    store: &BlobStore,
    plugins: &LockedPlugins,
    trust: &[ArchivedRule],
    out: impl Write,
) -> Result<ArchiveSummary, ArchiveError> {
    let mut content = ArchiveContent::default();
    for plugin in plugins.values() {
        content.add(store, plugin)?;
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": content.manifests});
    let lock = lock::to_text(plugins).map_err(ArchiveError::Refused)?;
    let mut out = Builder::new(out);
    for (name, text) in [
        (LAYOUT, json!({"imageLayoutVersion": "1.0.0"}).to_string()),
        (INDEX_FILE, index.to_string()),
        (LOCK, lock),
        (TRUST, json!(trust).to_string()),
    ] {
        append(&mut out, name, text.len() as u64, text.as_bytes())?;
    }
    for (digest, blob) in &content.blobs {
        let name = format!("{BLOBS}{}", digest.hex());
        match blob {
            BlobContent::Bytes(bytes) => append(&mut out, &name, bytes.len() as u64, bytes.as_slice())?,
            BlobContent::Stored(size) => {
                let file = File::open(store.path(digest))?;
                append(&mut out, &name, *size, WholeRead { content: file, left: *size })?;
            }
        }
    }
    out.into_inner()?.flush()?;
    Ok(ArchiveSummary { plugins: plugins.len(), blobs: content.blobs.len() })
}

impl ArchiveContent {
    fn add(&mut self, store: &BlobStore, plugin: &LockedPlugin) -> Result<(), ArchiveError> {
        let read = |digest: &BlobDigest, most| store.read(digest, most).ok_or(ArchiveError::Missing(*digest));
        let manifest = read(&plugin.manifest, MAX_MANIFEST)?;
        if !store.verify(&plugin.layer, plugin.size) {
            return Err(ArchiveError::Missing(plugin.layer));
        }
        let name = format!(
            "{}{}",
            plugin.source,
            plugin.tag.iter().map(|tag| format!(":{tag}")).collect::<String>()
        );
        self.list(json!({
            "mediaType": MANIFEST,
            "digest": plugin.manifest,
            "size": manifest.len(),
            "annotations": {"org.opencontainers.image.ref.name": name.trim_start_matches("oci://")},
        }));
        if let Some(digest) = &plugin.bundle {
            let bundle = read(digest, MAX_BUNDLE)?;
            let signature = signature_manifest((&plugin.manifest, manifest.len()), (digest, bundle.len()));
            self.list(json!({
                "mediaType": MANIFEST,
                "digest": BlobDigest::of(&signature),
                "size": signature.len(),
                "artifactType": BUNDLE,
            }));
            for bytes in [bundle, signature, EMPTY_CONFIG.to_vec()] {
                self.blobs.insert(BlobDigest::of(&bytes), BlobContent::Bytes(bytes));
            }
        }
        self.blobs.insert(plugin.layer, BlobContent::Stored(plugin.size));
        self.blobs.insert(plugin.manifest, BlobContent::Bytes(manifest));
        Ok(())
    }

    /// Lists a manifest once.
    fn list(&mut self, descriptor: Value) {
        if !self.manifests.contains(&descriptor) {
            self.manifests.push(descriptor);
        }
    }
}

/// Reads exactly `left` bytes. A file that has become shorter is an error, and not a damaged archive.
struct WholeRead<R> {
    content: R,
    left: u64,
}

impl<R: Read> Read for WholeRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.by_ref().take(self.left).read(buffer)?;
        if read == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

fn append<W: Write>(
    out: &mut Builder<W>,
    name: &str,
    size: u64,
    content: impl Read,
) -> Result<(), ArchiveError> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(MODE);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    Ok(out.append(&header, content)?)
}
