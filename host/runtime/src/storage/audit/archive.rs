//! Files of an audit that are full: how they are named, packed and removed.
//!
//! ```text
//! audit.jsonl                      written to
//! audit.jsonl.00000007             full; somebody may still have it open
//! audit.jsonl.00000006.gz          packed: calls that ran, and decisions
//! audit.jsonl.00000006.refused.gz  packed: refused calls and requests of the same time
//! audit.jsonl.3                    of a version before 0.2, which counted from the newest
//! ```
//!
//! Refused calls are packed apart, so that they can be removed first: a client that is refused cannot push out what other
//! clients did.

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

use super::file::{beside, open_to_read, try_lock};
use super::{Retention, file};

/// Digits of the number of an archive: older versions counted to 7.
const DIGITS: usize = 8;
const PACKED: &str = ".gz";
const REFUSED: &str = ".refused.gz";

/// The order of archives: those of older versions come first, the highest number first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    Numbered(Reverse<u32>),
    Sequence(u64),
}

/// A file of an archive.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

/// What one file of the audit became.
#[derive(Debug, Clone, Default)]
pub(super) struct Archive {
    pub(super) plain: Option<Part>,
    pub(super) packed: Option<Part>,
    pub(super) refused: Option<Part>,
}

impl Archive {
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        [&self.plain, &self.packed, &self.refused].into_iter().flatten()
    }
}

/// The archives that are there, the oldest first.
pub(super) fn list(path: &Path) -> BTreeMap<Order, Archive> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut archives: BTreeMap<Order, Archive> = BTreeMap::new();
    // By the folder and not by counting: numbers may be missing.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let rest = file_name.to_str().and_then(|file| file.strip_prefix(&*name)?.strip_prefix('.'));
        let Some((order, suffix)) = rest.and_then(read_name) else { continue };
        let Ok(meta) = entry.metadata() else { continue };
        let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let part = Part { path: entry.path(), bytes: meta.len(), modified };
        let archive = archives.entry(order).or_default();
        match suffix {
            "" => archive.plain = Some(part),
            PACKED => archive.packed = Some(part),
            _ => archive.refused = Some(part),
        }
    }
    archives
}

/// The number and what follows it.
fn read_name(rest: &str) -> Option<(Order, &str)> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, suffix) = rest.split_at_checked(end)?;
    if number.len() < DIGITS {
        return suffix.is_empty().then_some((Order::Numbered(Reverse(number.parse().ok()?)), suffix));
    }
    let known = ["", PACKED, REFUSED].contains(&suffix);
    known.then_some((Order::Sequence(number.parse().ok()?), suffix))
}

/// Gives the file that is written to the next number. Call under the lock.
pub(super) fn rotate(path: &Path) -> io::Result<()> {
    let newest = list(path).into_keys().next_back();
    let next = match newest {
        Some(Order::Sequence(number)) => number.saturating_add(1),
        Some(Order::Numbered(_)) | None => 1,
    };
    fs::rename(path, beside(path, &format!(".{next:0DIGITS$}")))
}

/// Packs what is full, and removes what there is no room for. Returns whether calls that ran were removed. Does nothing if
/// another process does the same.
pub(super) fn maintain(path: &Path, retention: Retention) -> io::Result<bool> {
    let Some(_lock) = try_lock(path)? else { return Ok(false) };
    for (order, archive) in list(path) {
        let (Order::Sequence(_), Some(plain)) = (order, &archive.plain) else { continue };
        // A disk that is full has no room for this either; the file stays as it is.
        if let Err(error) = pack(&plain.path) {
            tracing::debug!(file = %plain.path.display(), %error, "a file of the audit is not packed");
        }
    }
    Ok(remove_old(path, retention))
}

/// What decides whether a line is about a refusal.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    began: Option<bool>,
    #[serde(borrow, default)]
    outcome: std::borrow::Cow<'a, str>,
}

/// Whether a line tells of a refused call or request. What is not understood is kept with the calls that ran.
fn is_refusal(line: &[u8]) -> bool {
    serde_json::from_slice::<Head<'_>>(line).is_ok_and(|head| match &*head.kind {
        "call" => head.began == Some(false) && head.outcome != "ok",
        kind => kind == "refused" || kind == "request",
    })
}

/// Packs one file, unless somebody may still write to it.
fn pack(plain: &Path) -> io::Result<()> {
    let file = open_to_read(plain)?;
    if file.try_lock().is_err() {
        return Ok(());
    }
    let modified = file.metadata()?.modified()?;
    let mut ran = Packing::new(&beside(plain, PACKED))?;
    let mut refused = Packing::new(&beside(plain, REFUSED))?;
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        let to = if is_refusal(&line) { &mut refused } else { &mut ran };
        to.write(&line)?;
        line.clear();
    }
    // The plain one goes last: as long as it is there, it counts and these do not.
    refused.finish(modified)?;
    ran.finish(modified)?;
    fs::remove_file(plain)
}

/// A packed file that is being written, under another name. Without `finish` it is removed.
struct Packing {
    path: PathBuf,
    temporary: PathBuf,
    encoder: Option<GzEncoder<BufWriter<File>>>,
    is_empty: bool,
}

impl Packing {
    fn new(path: &Path) -> io::Result<Self> {
        let temporary = beside(path, ".tmp");
        // Left by a process that was killed; only the holder of the lock is here.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        // Fast: the text is so regular that more effort saves little.
        let encoder = GzEncoder::new(BufWriter::new(file), Compression::fast());
        Ok(Self { path: path.to_path_buf(), temporary, encoder: Some(encoder), is_empty: true })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.is_empty = false;
        self.encoder.as_mut().map_or(Ok(()), |encoder| encoder.write_all(line))
    }

    /// Puts it on the disk and in its place, with the time of its last line; an empty one is removed.
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

impl Drop for Packing {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.temporary));
    }
}

/// Removes what is too old, and then what there is no room for: refusals first, each time the oldest. The file that is
/// written to stays. Returns whether calls that ran were removed.
fn remove_old(path: &Path, retention: Retention) -> bool {
    let archives = list(path);
    let oldest = retention.age.and_then(|age| SystemTime::now().checked_sub(age));
    // Room for the file that is written to, and for one that is full and not packed yet.
    let room = retention.bytes.saturating_sub(retention.file_bytes.saturating_mul(2));
    let mut total: u64 = archives.values().flat_map(Archive::parts).map(|part| part.bytes).sum();
    let mut forgot = false;
    let mut go = |part: &Part, is_refusal: bool| {
        let is_old = oldest.is_some_and(|oldest| part.modified < oldest);
        if (is_old || total > room) && fs::remove_file(&part.path).is_ok() {
            total = total.saturating_sub(part.bytes);
            forgot |= !is_refusal;
        }
    };
    archives.values().filter_map(|archive| archive.refused.as_ref()).for_each(|part| go(part, true));
    for archive in archives.values() {
        [&archive.plain, &archive.packed].into_iter().flatten().for_each(|part| go(part, false));
    }
    forgot
}

/// When the first line of the file that is written to was written.
pub(super) fn begun(file: &File) -> Option<SystemTime> {
    use std::os::unix::fs::FileExt;
    let mut head = [0; 64];
    let read = file.read_at(&mut head, 0).ok()?;
    let text = std::str::from_utf8(head.get(..read)?).ok()?;
    let time = text.strip_prefix("{\"time\":\"")?.split('"').next()?;
    let micros = toolbay_core::audit::timestamp::parse(time)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(micros))
}

/// Whether a file is full: by its size, or because its first line is so old that the file would keep lines for much longer
/// than it may.
pub(super) fn is_full(meta: &fs::Metadata, file: &File, retention: Retention) -> bool {
    if !meta.is_file() || meta.len() == 0 {
        return false;
    }
    let is_old = |age: Duration| {
        let limit = SystemTime::now().checked_sub(age / 8);
        begun(file).zip(limit).is_some_and(|(begun, limit)| begun < limit)
    };
    meta.len() >= retention.file_bytes || retention.age.is_some_and(is_old)
}

/// The files beside an audit that must not be links.
pub(super) fn refuse_links(path: &Path) -> io::Result<()> {
    let archives = list(path);
    let parts = archives.values().flat_map(Archive::parts).map(|part| part.path.as_path());
    file::refuse_links(parts)
}
