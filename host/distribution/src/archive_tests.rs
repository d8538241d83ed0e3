use std::path::PathBuf;

use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};
use toolbay_policy::name::PluginId;

use super::*;
use crate::lock::{LockedPlugin, LockedPlugins, Signer};
use crate::store::BlobStore;

/// A store with one signed plugin.
struct ArchiveFixture {
    dir: tempfile::TempDir,
    store: BlobStore,
    plugins: LockedPlugins,
}

impl ArchiveFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::new(dir.path().join("store"));
        let put = |bytes: &[u8]| store.put(bytes).unwrap();
        let plugin = LockedPlugin {
            source: "oci://registry.example/acme/hash".to_owned(),
            tag: Some("1.0".to_owned()),
            manifest: put(b"manifest"),
            layer: put(b"component"),
            size: 9,
            signer: Signer::Key(BlobDigest::of(b"key")),
            bundle: Some(put(b"bundle")),
            signed_at: None,
        };
        // Two ids of one component share its blobs.
        let ids = ["hash", "other"].map(|id| (PluginId::new(id).unwrap(), plugin.clone()));
        Self { store, plugins: LockedPlugins::from(ids), dir }
    }

    fn archive(&self) -> Vec<u8> {
        let rules = [ArchivedRule {
            scope: "registry.example/".to_owned(),
            keys: vec!["PEM".to_owned()],
            keyless: None,
        }];
        let mut bytes = Vec::new();
        let summary = write(&self.store, &self.plugins, &rules, &mut bytes).unwrap();
        assert_eq!(summary, ArchiveSummary { plugins: 2, blobs: 5 });
        bytes
    }

    /// Writes a file, and opens it as an archive.
    fn open(&self, bytes: &[u8]) -> Result<PluginArchive, ArchiveError> {
        let file: PathBuf = self.dir.path().join("plugins.tar");
        std::fs::write(&file, bytes).unwrap();
        PluginArchive::open(&file)
    }

    /// Imports an archive into an empty store.
    fn import(&self, bytes: &[u8]) -> Result<BlobStore, ArchiveError> {
        let store = BlobStore::new(tempfile::tempdir_in(self.dir.path()).unwrap().keep());
        self.open(bytes)?.store_blobs(&store).map(|()| store)
    }
}

type TarEntry = (String, EntryType, Vec<u8>);

/// The entries of an archive.
fn entries(bytes: &[u8]) -> Vec<TarEntry> {
    let mut archive = tar::Archive::new(bytes);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let (name, kind) = (entry.path().unwrap().to_str().unwrap().to_owned(), entry.header().entry_type());
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        (name, kind, content)
    };
    archive.entries().unwrap().map(read).collect()
}

/// An archive with these entries. Their names may be such that a careful writer refuses them.
fn archive_of(entries: &[TarEntry]) -> Vec<u8> {
    let mut out = Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        out.append(&header, content.as_slice()).unwrap();
    }
    out.into_inner().unwrap()
}

#[test]
fn an_archive_holds_what_the_lock_names_and_is_the_same_each_time() {
    let fixture = ArchiveFixture::new();
    let bytes = fixture.archive();
    assert_eq!(bytes, fixture.archive());
    let archive = fixture.open(&bytes).unwrap();
    assert_eq!(archive.plugins(), &fixture.plugins);
    assert_eq!(archive.trust()[0].keys, ["PEM"]);
    let store = fixture.import(&bytes).unwrap();
    let mut again = Vec::new();
    write(&store, &fixture.plugins, archive.trust(), &mut again).unwrap();
    assert_eq!(bytes, again);
    // Twice into one store.
    fixture.open(&bytes).unwrap().store_blobs(&store).unwrap();

    // Other tools find the signature by its subject.
    let all = entries(&bytes);
    let content = |name: &str| &all.iter().find(|(found, ..)| found == name).unwrap().2;
    let index: Value = serde_json::from_slice(content("index.json")).unwrap();
    assert_eq!(index["manifests"].as_array().unwrap().len(), 2);
    let name = &index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"];
    assert_eq!(name, "registry.example/acme/hash:1.0");
    let signature = index["manifests"][1]["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    let signature: Value = serde_json::from_slice(content(&signature)).unwrap();
    assert_eq!(signature["subject"]["digest"], json!(BlobDigest::of(b"manifest")));
}

#[test]
fn a_store_without_a_blob_is_not_exported() {
    let fixture = ArchiveFixture::new();
    for content in [&b"manifest"[..], b"component", b"bundle"] {
        let path = fixture.store.path(&BlobDigest::of(content));
        for broken in [Some("x"), None] {
            match broken {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let written = write(&fixture.store, &fixture.plugins, &[], &mut Vec::new());
            assert!(
                matches!(written, Err(ArchiveError::Missing(digest)) if digest == BlobDigest::of(content))
            );
        }
        fixture.store.put(content).unwrap();
    }
}

#[test]
fn an_archive_that_is_not_ours_is_refused() {
    let fixture = ArchiveFixture::new();
    let good = entries(&fixture.archive());
    let refused = |entries: &[TarEntry], part: &str| {
        let error = fixture.import(&archive_of(entries)).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    };
    let file = |name: &str| (name.to_owned(), EntryType::Regular, b"x".to_vec());
    let blob = format!("blobs/sha256/{}", BlobDigest::of(b"component").hex());
    for (entry, part) in [
        (file("../../etc/passwd"), "does not belong into it"),
        (file("/etc/passwd"), "does not belong into it"),
        (file("blobs/sha256/../x"), "does not belong into it"),
        (file("blobs/sha512/00"), "does not belong into it"),
        ((blob.clone(), EntryType::Symlink, Vec::new()), "is not a plain file"),
        ((blob.clone(), EntryType::Link, Vec::new()), "is not a plain file"),
        (("toolbay".to_owned(), EntryType::Directory, Vec::new()), "is not a plain file"),
        (("x".to_owned(), EntryType::Char, Vec::new()), "is not a plain file"),
        // Extensions of the format could give the next entry another name or size.
        (("x".to_owned(), EntryType::GNULongName, b"../x".to_vec()), "is not a plain file"),
        (("x".to_owned(), EntryType::XHeader, b"18 path=../../x\n".to_vec()), "is not a plain file"),
        (file(&blob), "is there twice"),
        (file("index.json"), "is there twice"),
    ] {
        refused(&[&good[..], &[entry]].concat(), part);
    }
    for (name, part) in [
        ("oci-layout", "it has no"),
        ("toolbay/toolbay.lock", "it has no"),
        (&*blob, "does not have the blob"),
    ] {
        let rest: Vec<TarEntry> = good.iter().filter(|(found, ..)| found != name).cloned().collect();
        refused(&rest, part);
    }
    for (name, content, part) in [
        ("toolbay/toolbay.lock", &b"version = 9"[..], "version 1"),
        ("toolbay/trust.json", b"{}", "toolbay/trust.json"),
        (&*blob, b"componenT", "its digest is"),
        (&*blob, b"component of ten", "the limit is 9"),
        (&*blob, b"compo", "its digest is"),
    ] {
        let mut changed = good.clone();
        changed.iter_mut().find(|(found, ..)| found == name).unwrap().2 = content.to_vec();
        refused(&changed, part);
    }
    let large = vec![b' '; usize::try_from(MAX_DOCUMENT).unwrap() + 1];
    refused(&[("index.json".to_owned(), EntryType::Regular, large)], "the limit is 4194304");
}

#[test]
fn an_archive_beyond_the_limits_is_refused() {
    let fixture = ArchiveFixture::new();
    let many = |count: usize| -> Vec<TarEntry> {
        let name = |number: usize| format!("blobs/sha256/{number:064x}");
        (0..count).map(|number| (name(number), EntryType::Regular, Vec::new())).collect()
    };
    let error = fixture.open(&archive_of(&many(MAX_ENTRIES + 1))).unwrap_err().to_string();
    assert!(error.contains("more than 8192 entries"), "{error}");
    // A size that the file does not have.
    let mut header = Header::new_ustar();
    header.set_path(format!("blobs/sha256/{:064x}", 1)).unwrap();
    header.set_entry_type(EntryType::Regular);
    header.set_size(MAX_TOTAL + 1);
    header.set_cksum();
    let error = fixture.open(header.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("more than 4294967296 bytes"), "{error}");
}

#[test]
fn a_truncated_archive_stores_no_half_blob() {
    let fixture = ArchiveFixture::new();
    let bytes = fixture.archive();
    // The last two blocks are empty and only mark the end.
    for length in (0..bytes.len() - 1024).step_by(97) {
        match fixture.import(&bytes[..length]) {
            Err(error) => assert!(matches!(error, ArchiveError::Refused(_)), "{length}: {error:?}"),
            // Other tools write the parts that are missing.
            Ok(store) => {
                assert!(length > bytes.len() - 4096 && store.verify(&BlobDigest::of(b"component"), 9));
            }
        }
    }
    for length in [1, 100, 511] {
        fixture.import(&vec![b'x'; length]).unwrap_err();
    }
}
