//! Detects truncated files by the length in redb's header. redb would repair such a file and change the rest of it, so
//! it is not opened.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The first bytes of a redb file (file format version 3, also of the versions before).
const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
/// The part of the header that describes the layout: the magic number, the flags and five numbers.
const LAYOUT_BYTES: usize = 32;
/// How often a header that other processes change is read again.
const MAX_READS: usize = 8;

/// Whether a file is shorter than its header says. redb grows a file before its header says so, and shrinks it afterwards.
pub(super) fn is_truncated(file: &File) -> io::Result<bool> {
    for _ in 0..MAX_READS {
        let (header, read) = read_layout(file)?;
        let known = read.min(MAGIC.len());
        if header.get(..known) != MAGIC.get(..known) {
            // Another kind of file.
            return Ok(false);
        }
        if read == LAYOUT_BYTES && file.metadata()?.len() >= stored_len(&header) {
            return Ok(false);
        }
        // Another process may have written the header and shortened the file in between.
        if read_layout(file)? == (header, read) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first bytes of a file, and how many it has.
fn read_layout(file: &File) -> io::Result<([u8; LAYOUT_BYTES], usize)> {
    let mut header = [0; LAYOUT_BYTES];
    let mut read = 0;
    while let Some(rest) = header.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok((header, read))
}

/// The length in a header: the page of the header, the full regions and the last one, which may be partial.
fn stored_len(header: &[u8; LAYOUT_BYTES]) -> u64 {
    let number = |at: usize| {
        let bytes = header.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
    };
    let (page, region_header, region, full, trailing) =
        (number(12), number(16), number(20), number(24), number(28));
    let last = if trailing == 0 { 0 } else { region_header + trailing };
    let pages = full.saturating_mul(region_header + region).saturating_add(last).saturating_add(1);
    page.saturating_mul(pages)
}
