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
//! | the directory's path, its length first | 4, … |
//! | the number of files | 4 |
//! | each: name with its length, SHA-256, size of the component, stamp, whether there is one beside it, its stamp | 4, …, 32, 8, 64, 1, 64 |
//! | SHA-256 of all this | 32 |

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::plugins::digest::{Digest, Raw, raw_sha256};
use crate::plugins::file::Stamp;

const MAGIC: &[u8; 8] = b"toolbay\0";
/// Grows when what is stored changes its meaning.
const FORMAT: u32 = 1;
/// Largest index that is read, in bytes: as many files as a directory may have, with the longest names.
pub(super) const MAX_INDEX: u64 = 8 << 20;

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
    pub(super) fn to_bytes(&self, dir: &Path) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.0.len() * 192);
        out.extend(MAGIC);
        out.extend(FORMAT.to_le_bytes());
        put_text(&mut out, dir.as_os_str());
        put_count(&mut out, self.0.len());
        for (name, (stamp, hashed)) in &self.0 {
            let (file, beside) = stamp.numbers();
            put_text(&mut out, name);
            out.extend(hashed.digest.raw());
            put_numbers(&mut out, &[hashed.bytes]);
            put_numbers(&mut out, &file);
            out.push(u8::from(beside.is_some()));
            beside.iter().for_each(|numbers| put_numbers(&mut out, numbers));
        }
        let sum = raw_sha256(&out);
        out.extend(sum);
        out
    }

    /// From what is stored.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(bytes: &[u8], dir: &Path) -> Result<Self, &'static str> {
        let (all, sum) = bytes.split_last_chunk::<32>().ok_or("it is cut off")?;
        let mut rest = Rest(all);
        if rest.bytes() != Some(*MAGIC) {
            return Err("it is no index");
        }
        if rest.bytes().map(u32::from_le_bytes) != Some(FORMAT) {
            return Err("it is of another format");
        }
        if raw_sha256(all) != *sum {
            return Err("it is damaged");
        }
        if rest.text() != Some(dir.as_os_str()) {
            return Err("it is of another directory");
        }
        rest.files().map(Self).ok_or("it is damaged")
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &OsStr) {
    put_count(out, text.len());
    out.extend(text.as_bytes());
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.bytes()?)).ok()
    }

    fn text(&mut self) -> Option<&'a OsStr> {
        let length = self.count()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(OsStr::from_bytes(text))
    }

    fn numbers<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u64::from_le_bytes(self.bytes()?);
        }
        Some(numbers)
    }

    fn files(&mut self) -> Option<BTreeMap<OsString, (Stamp, Hashed)>> {
        // Many files can be one component.
        let mut digests: HashMap<Raw, Digest> = HashMap::new();
        let mut files = BTreeMap::new();
        for _ in 0..self.count()? {
            let name = OsString::from_vec(self.text()?.as_bytes().to_vec());
            let raw: Raw = self.bytes()?;
            let digest = digests.entry(raw).or_insert_with(|| raw.into()).clone();
            let [bytes] = self.numbers()?;
            let file = self.numbers()?;
            let beside = match self.bytes()? {
                [0] => None,
                [1] => Some(self.numbers()?),
                _ => return None,
            };
            files.insert(name, (Stamp::from_numbers(file, beside)?, Hashed { digest, bytes }));
        }
        self.0.is_empty().then_some(files)
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
        let bytes = index.to_bytes(dir);
        assert_eq!(Index::parse(&bytes, dir), Ok(index));
        assert_eq!(Index::parse(&Index::default().to_bytes(dir), dir), Ok(Index::default()));
    }

    #[test]
    fn what_is_not_as_it_was_stored_is_refused() {
        let dir = Path::new("/plugins");
        let bytes = index().to_bytes(dir);
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
        let sound = index().to_bytes(dir);
        let head = 12 + 4 + "/plugins".len();
        // More files than there are, a name that goes beyond the end, another number for yes and no.
        for (at, byte) in [(head, 200), (head + 7, 255), (head + 4 + 4 + 6 + 32 + 8 + 64, 2)] {
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
