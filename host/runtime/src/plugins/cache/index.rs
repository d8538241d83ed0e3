//! What the files of a plugin directory were hashed to: as long as a file is what it was, it is neither opened nor hashed.
//!
//! An index is believed about a file only if all that the file system says of it is as it was when it was read: device,
//! inode, mode, size, and the times of its last writing and its last change, to the nanosecond; and only if the file had
//! been so for a while by then (`file::Stamp::stands_since`), as in git's index. What is believed is a digest, no more: the
//! code that runs is what the cache keeps for this digest.
//!
//! | part | bytes |
//! |---|---|
//! | `MAGIC` and `FORMAT` | 8, 4 |
//! | [`Stored`] in the encoding of `postcard` | … |
//! | SHA-256 of all this | 32 |

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::plugins::digest::{Digest, Raw, raw_sha256};
use crate::plugins::file::Stamp;

const MAGIC: &[u8; 8] = b"toolbay\0";
/// Grows when what is stored changes its meaning.
const FORMAT: u32 = 2;
/// Largest index that is read, in bytes: as many files as a directory may have, with the longest names.
pub(super) const MAX_INDEX: u64 = 8 << 20;

/// An index as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    /// The path of the directory.
    #[serde(borrow)]
    dir: &'a [u8],
    #[serde(borrow)]
    files: Vec<StoredFile<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredFile<'a> {
    name: &'a [u8],
    digest: Raw,
    bytes: u64,
    stamp: Stamp,
}

/// What a file was hashed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hashed {
    /// The digest of the component, with what stands beside it.
    pub(crate) digest: Digest,
    /// Its size in bytes.
    pub(crate) bytes: u64,
}

/// What the files of one directory were hashed to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Index(BTreeMap<OsString, (Stamp, Hashed)>);

impl Index {
    /// What a file was hashed to, if it is what it was then.
    pub(crate) fn of(&self, name: &OsStr, stamp: Option<Stamp>) -> Option<&Hashed> {
        let (was, hashed) = self.0.get(name)?;
        (stamp == Some(*was)).then_some(hashed)
    }

    /// Notes what a file was hashed to.
    pub(crate) fn put(&mut self, name: OsString, stamp: Stamp, hashed: Hashed) {
        self.0.insert(name, (stamp, hashed));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As it is stored.
    ///
    /// # Errors
    /// None that is known: what it consists of can be encoded.
    pub(super) fn to_bytes(&self, dir: &Path) -> Result<Vec<u8>, postcard::Error> {
        let mut files = Vec::with_capacity(self.0.len());
        for (name, (stamp, hashed)) in &self.0 {
            let (name, digest) = (name.as_bytes(), hashed.digest.raw());
            files.push(StoredFile { name, digest, bytes: hashed.bytes, stamp: *stamp });
        }
        let stored = Stored { dir: dir.as_os_str().as_bytes(), files };
        let mut out = [&MAGIC[..], &FORMAT.to_le_bytes()].concat();
        out = postcard::to_extend(&stored, out)?;
        let sum = raw_sha256(&out);
        out.extend(sum);
        Ok(out)
    }

    /// From what is stored.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(bytes: &[u8], dir: &Path) -> Result<Self, &'static str> {
        let (all, sum) = bytes.split_last_chunk::<32>().ok_or("it is cut off")?;
        let rest = all.strip_prefix(MAGIC).ok_or("it is no index")?;
        let rest = rest.strip_prefix(&FORMAT.to_le_bytes()).ok_or("it is of another format")?;
        if raw_sha256(all) != *sum {
            return Err("it is damaged");
        }
        let (stored, rest) = postcard::take_from_bytes::<Stored<'_>>(rest).map_err(|_| "it is damaged")?;
        if stored.dir != dir.as_os_str().as_bytes() {
            return Err("it is of another directory");
        }
        if !rest.is_empty() {
            return Err("it is damaged");
        }
        // Many files can be one component.
        let mut digests: HashMap<Raw, Digest> = HashMap::new();
        let file = |file: StoredFile<'_>| {
            let digest = digests.entry(file.digest).or_insert_with(|| file.digest.into()).clone();
            let name = OsString::from_vec(file.name.to_vec());
            (name, (file.stamp, Hashed { digest, bytes: file.bytes }))
        };
        Ok(Self(stored.files.into_iter().map(file).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::digest::sha256;

    fn index() -> Index {
        let dir = tempfile::tempdir().unwrap();
        let mut index = Index::default();
        for (name, beside) in [("a.wasm", false), ("b \u{e9}.wasm", true), ("c.wasm", false)] {
            let file = dir.path().join(name);
            std::fs::write(&file, name).unwrap();
            std::fs::write(file.with_extension("plugin.toml"), "").unwrap();
            let stamp = Stamp::of_component(&file, beside).unwrap();
            index.put(name.into(), stamp, Hashed { digest: sha256(name.as_bytes()), bytes: 7 });
        }
        index
    }

    #[test]
    fn what_was_stored_comes_back() {
        let (index, dir) = (index(), Path::new("/plugins"));
        let bytes = index.to_bytes(dir).unwrap();
        assert_eq!(Index::parse(&bytes, dir), Ok(index));
        assert_eq!(Index::parse(&Index::default().to_bytes(dir).unwrap(), dir), Ok(Index::default()));
    }

    #[test]
    fn what_is_not_as_it_was_stored_is_refused() {
        let dir = Path::new("/plugins");
        let bytes = index().to_bytes(dir).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(Index::parse(&flipped, dir).is_err(), "byte {at}");
            assert!(Index::parse(&bytes[..at], dir).is_err(), "cut at {at}");
        }
        assert_eq!(Index::parse(&bytes, Path::new("/other")), Err("it is of another directory"));
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(Index::parse(&longer, dir), Err("it is damaged"));
    }

    #[test]
    fn a_sum_that_fits_makes_no_sense_of_nonsense() {
        let dir = Path::new("/plugins");
        let index = index();
        let sound = index.to_bytes(dir).unwrap();
        let head = 12 + 1 + "/plugins".len();
        // More files than there are, a name that goes beyond the end, another number for yes and no.
        let stamp = postcard::to_allocvec(&index.0[OsStr::new("a.wasm")].0).unwrap();
        let beside = head + 1 + 1 + "a.wasm".len() + 32 + stamp.len();
        for (at, byte) in [(head, 200), (head + 1, 255), (beside, 2)] {
            let mut bad = sound[..sound.len() - 32].to_vec();
            bad[at] = byte;
            bad.extend(raw_sha256(&bad));
            assert_eq!(Index::parse(&bad, dir), Err("it is damaged"), "byte {at}");
        }
    }

    #[test]
    fn a_file_that_is_another_one_is_not_known() {
        let index = index();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.wasm"), "a.wasm").unwrap();
        let other = Stamp::of_component(&dir.path().join("a.wasm"), false);
        assert_eq!(index.of("a.wasm".as_ref(), other), None);
        assert_eq!(index.of("a.wasm".as_ref(), None), None);
        let (was, hashed) = &index.0[OsStr::new("a.wasm")];
        assert_eq!(index.of("a.wasm".as_ref(), Some(*was)), Some(hashed));
        assert_eq!(index.of("c.wasm".as_ref(), Some(*was)), None);
    }
}
