//! Full audit files: naming, packing and removal.
//!
//! ```text
//! audit.jsonl                      the current file
//! audit.jsonl.00000007             full; a process may still have it open
//! audit.jsonl.00000006.gz          packed: calls that ran, and decisions
//! audit.jsonl.00000006.refused.gz  packed: refused calls and requests of the same time
//! audit.jsonl.3                    written by a version before 0.2, which numbered from the newest
//! ```
//!
//! Refused calls are packed separately and removed first, so that a refused client cannot push out the records of other
//! clients.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;

use super::file::{open_to_read, try_lock, with_suffix};
use super::{Retention, file};

/// Digits of an archive's number. Older versions used the numbers 1 to 7.
const DIGITS: usize = 8;
const PACKED: &str = ".gz";
const REFUSED: &str = ".refused.gz";

/// The age order of archives. Those of older versions come first, in descending order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ArchiveOrder {
    Numbered(Reverse<u32>),
    Sequence(u64),
}

/// A file of an archive.
#[derive(Debug, Clone)]
pub(super) struct ArchiveFile {
    pub(super) path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

/// The files of one archive.
#[derive(Debug, Clone, Default)]
pub(super) struct Archive {
    pub(super) plain: Option<ArchiveFile>,
    pub(super) packed: Option<ArchiveFile>,
    pub(super) refused: Option<ArchiveFile>,
}

impl Archive {
    pub(super) fn files(&self) -> impl Iterator<Item = &ArchiveFile> {
        [&self.plain, &self.packed, &self.refused].into_iter().flatten()
    }
}

/// The existing archives, oldest first.
pub(super) fn list(path: &Path) -> BTreeMap<ArchiveOrder, Archive> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut archives: BTreeMap<ArchiveOrder, Archive> = BTreeMap::new();
    // Lists the folder instead of counting up, because numbers may be missing.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let rest = file_name.to_str().and_then(|file| file.strip_prefix(&*name)?.strip_prefix('.'));
        let Some((order, suffix)) = rest.and_then(parse_name) else { continue };
        let Ok(meta) = entry.metadata() else { continue };
        let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let part = ArchiveFile { path: entry.path(), bytes: meta.len(), modified };
        let archive = archives.entry(order).or_default();
        match suffix {
            "" => archive.plain = Some(part),
            PACKED => archive.packed = Some(part),
            _ => archive.refused = Some(part),
        }
    }
    archives
}

/// Parses the number and the suffix of a file name.
fn parse_name(rest: &str) -> Option<(ArchiveOrder, &str)> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, suffix) = rest.split_at_checked(end)?;
    if number.len() < DIGITS {
        return suffix.is_empty().then_some((ArchiveOrder::Numbered(Reverse(number.parse().ok()?)), suffix));
    }
    let known = ["", PACKED, REFUSED].contains(&suffix);
    known.then_some((ArchiveOrder::Sequence(number.parse().ok()?), suffix))
}

/// Renames the current file to the next number. The caller holds the lock.
pub(super) fn rotate(path: &Path) -> io::Result<()> {
    let newest = list(path).into_keys().next_back();
    let next = match newest {
        Some(ArchiveOrder::Sequence(number)) => number.saturating_add(1),
        Some(ArchiveOrder::Numbered(_)) | None => 1,
    };
    fs::rename(path, with_suffix(path, &format!(".{next:0DIGITS$}")))
}

/// Packs full files, and removes files beyond the retention. Returns whether records of calls were removed. Does
/// nothing if another process holds the lock.
pub(super) fn maintain(path: &Path, retention: Retention) -> io::Result<bool> {
    let Some(_lock) = try_lock(path)? else { return Ok(false) };
    for (order, archive) in list(path) {
        let (ArchiveOrder::Sequence(_), Some(plain)) = (order, &archive.plain) else { continue };
        // On a full disk, packing fails, too, and the file stays as it is.
        if let Err(error) = pack(&plain.path) {
            tracing::debug!(file = %plain.path.display(), %error, "an audit file could not be packed");
        }
    }
    Ok(remove_old(path, retention))
}

/// The members that decide whether a line is a refusal.
#[derive(Deserialize)]
struct LineHead<'a> {
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    began: Option<bool>,
    #[serde(borrow, default)]
    outcome: std::borrow::Cow<'a, str>,
}

/// Whether a line records a refused call or request. Unknown lines are kept with the calls.
fn is_refusal(line: &[u8]) -> bool {
    serde_json::from_slice::<LineHead<'_>>(line).is_ok_and(|head| match &*head.kind {
        "call" => head.began == Some(false) && head.outcome != "ok",
        kind => kind == "refused" || kind == "request",
    })
}

/// Packs one file, unless a process may still write to it.
fn pack(plain: &Path) -> io::Result<()> {
    let file = open_to_read(plain)?;
    if file.try_lock().is_err() {
        return Ok(());
    }
    let modified = file.metadata()?.modified()?;
    let mut ran = PackedFileWriter::new(&with_suffix(plain, PACKED))?;
    let mut refused = PackedFileWriter::new(&with_suffix(plain, REFUSED))?;
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        let to = if is_refusal(&line) { &mut refused } else { &mut ran };
        to.write(&line)?;
        line.clear();
    }
    // Removed last: while the plain file exists, readers ignore the packed ones.
    refused.finish(modified)?;
    ran.finish(modified)?;
    fs::remove_file(plain)
}

/// Writes a packed file under a temporary name, which is removed unless `finish` succeeds.
struct PackedFileWriter {
    path: PathBuf,
    temporary: PathBuf,
    encoder: Option<GzEncoder<BufWriter<File>>>,
    is_empty: bool,
}

impl PackedFileWriter {
    fn new(path: &Path) -> io::Result<Self> {
        let temporary = with_suffix(path, ".tmp");
        // Left by a killed process. Only the lock holder gets here.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        // Fast compression: the text is so regular that more effort saves little.
        let encoder = GzEncoder::new(BufWriter::new(file), Compression::fast());
        Ok(Self { path: path.to_path_buf(), temporary, encoder: Some(encoder), is_empty: true })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.is_empty = false;
        self.encoder.as_mut().map_or(Ok(()), |encoder| encoder.write_all(line))
    }

    /// Syncs and renames the file, and sets its time to that of its last line. An empty file is removed.
    fn finish(mut self, modified: SystemTime) -> io::Result<()> {
        let Some(encoder) = self.encoder.take() else { return Ok(()) };
        let file = encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        if self.is_empty {
            return Ok(());
        }
        file.set_modified(modified)?;
        file.sync_all()?;
        fs::rename(&self.temporary, &self.path)
    }
}

impl Drop for PackedFileWriter {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.temporary));
    }
}

/// Removes expired files, then the oldest files until the rest fits. Refusals are removed first. The current file
/// stays. Returns whether records of calls were removed.
fn remove_old(path: &Path, retention: Retention) -> bool {
    let archives = list(path);
    let oldest = retention.age.and_then(|age| SystemTime::now().checked_sub(age));
    // Leaves room for the current file and for one that is not packed yet.
    let room = retention.bytes.saturating_sub(retention.file_bytes.saturating_mul(2));
    let mut total: u64 = archives.values().flat_map(Archive::files).map(|part| part.bytes).sum();
    let mut removed_calls = false;
    let mut remove = |part: &ArchiveFile, is_refusal: bool| {
        let is_old = oldest.is_some_and(|oldest| part.modified < oldest);
        if (is_old || total > room) && fs::remove_file(&part.path).is_ok() {
            total = total.saturating_sub(part.bytes);
            removed_calls |= !is_refusal;
        }
    };
    archives.values().filter_map(|archive| archive.refused.as_ref()).for_each(|part| remove(part, true));
    for archive in archives.values() {
        [&archive.plain, &archive.packed].into_iter().flatten().for_each(|part| remove(part, false));
    }
    removed_calls
}

/// The time of the current file's first line.
pub(super) fn first_line_time(file: &File) -> Option<SystemTime> {
    use std::os::unix::fs::FileExt;
    let mut head = [0; 64];
    let read = file.read_at(&mut head, 0).ok()?;
    let text = std::str::from_utf8(head.get(..read)?).ok()?;
    let time = text.strip_prefix("{\"time\":\"")?.split('"').next()?;
    let micros = toolbay_core::audit::timestamp::parse(time)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(micros))
}

/// Whether a file is full: it has reached its size, or its first line is older than an eighth of the retention age.
pub(super) fn is_full(meta: &fs::Metadata, file: &File, retention: Retention) -> bool {
    if !meta.is_file() || meta.len() == 0 {
        return false;
    }
    let is_old = |age: Duration| {
        let limit = SystemTime::now().checked_sub(age / 8);
        first_line_time(file).zip(limit).is_some_and(|(begun, limit)| begun < limit)
    };
    meta.len() >= retention.file_bytes || retention.age.is_some_and(is_old)
}

/// Refuses an audit if one of its archives is a link.
pub(super) fn refuse_links(path: &Path) -> io::Result<()> {
    let archives = list(path);
    let parts = archives.values().flat_map(Archive::files).map(|part| part.path.as_path());
    file::refuse_links(parts)
}
