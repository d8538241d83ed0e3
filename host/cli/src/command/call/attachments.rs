//! `--attach` and `--save-attachments`.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result};
use toolbay::open_regular;
use toolbay_core::session::attachment::{Attachments, MemoryAttachments, check_name};
use toolbay_policy::capability::attachment::UNKNOWN_MEDIA_TYPE;

use crate::args::AttachmentArgs;
use crate::output::{Printer, count_noun};
use crate::setup::named_path::{self, path_failure};

/// Most bytes of an attached file. They are held in memory.
const MAX_BYTES: u64 = 64 << 20;
/// Most names that are tried for a saved file.
const MAX_TRIES: u32 = 1000;
/// Bytes of a name that are kept, which leaves room for a number.
const NAME_BYTES: usize = 200;

/// Media types by file extension; every other file is `application/octet-stream`.
const MEDIA: [(&str, &str); 21] = [
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("log", "text/plain"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("toml", "application/toml"),
    ("txt", "text/plain"),
    ("wav", "audio/wav"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

/// The attachments of one call.
#[derive(Debug)]
pub(super) struct CallAttachments<'a> {
    kept: Arc<MemoryAttachments>,
    save: Option<&'a Path>,
}

impl<'a> CallAttachments<'a> {
    /// Reads the attached files, and creates the folder for those that the tool creates: after the call it is too late
    /// to name another one.
    pub(super) fn read(args: &'a AttachmentArgs) -> Result<Self> {
        let kept = Arc::new(MemoryAttachments::new());
        for path in &args.attach {
            let read = || {
                let name = path.file_name().context("it has no name")?.to_string_lossy();
                check_name(&name).map_err(Error::msg)?;
                let data = read_file(path)?;
                anyhow::Ok((name.into_owned(), data))
            };
            let read = read().with_context(|| format!("--attach `{}`", path.display()));
            let (name, data) = read?;
            kept.add(&name, media_of(&name), data);
        }
        let save = args.save_attachments.as_deref();
        if let Some(dir) = save {
            named_path::create_folder(dir)?;
        }
        Ok(Self { kept, save })
    }

    /// The attachments for the turn of the call.
    pub(super) fn for_turn(&self) -> Arc<dyn Attachments> {
        Arc::clone(&self.kept) as _
    }

    /// Writes the attachments that the tool created, or reports how to keep them.
    pub(super) fn save(&self, printer: Printer) -> Result<()> {
        let created = self.kept.created();
        let Some(dir) = self.save else {
            if !created.is_empty() {
                let count = count_noun(created.len(), "attachment", "attachments");
                printer.note(&format!("the tool created {count}; keep them with `--save-attachments DIR`"));
            }
            return Ok(());
        };
        let saved = || {
            std::fs::create_dir_all(dir)?;
            for (about, data) in created {
                let path = write_new(dir, &safe_file_name(&about.name), &data)?;
                printer.note(&format!("attachment:{} is saved as {}", about.id, path.display()));
            }
            anyhow::Ok(())
        };
        saved().with_context(|| format!("--save-attachments `{}`", dir.display())).map_err(path_failure)
    }
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut data = Vec::new();
    open_regular(path)?.take(MAX_BYTES + 1).read_to_end(&mut data)?;
    anyhow::ensure!(data.len() as u64 <= MAX_BYTES, "it has more than {} MiB", MAX_BYTES >> 20);
    Ok(data)
}

fn media_of(name: &str) -> &'static str {
    let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase()).unwrap_or_default();
    MEDIA.iter().find(|(known, _)| *known == end).map_or(UNKNOWN_MEDIA_TYPE, |(_, media)| media)
}

/// A name that is not a path, has no invisible characters and does not look like an option.
fn safe_file_name(name: &str) -> String {
    let harmless = |c: char| c == '.' || check_name(c.encode_utf8(&mut [0; 4])).is_ok();
    let plain: String = name.chars().map(|c| if harmless(c) { c } else { '_' }).collect();
    let end = plain.floor_char_boundary(NAME_BYTES);
    let plain = plain.get(..end).unwrap_or_default();
    if plain.is_empty() || plain.starts_with(['.', '-']) { format!("_{plain}") } else { plain.to_owned() }
}

/// Writes a new file. An existing link of that name counts as a file and is not followed.
fn write_new(dir: &Path, name: &str, data: &[u8]) -> anyhow::Result<PathBuf> {
    let (stem, end) =
        name.rsplit_once('.').map_or((name, String::new()), |(stem, end)| (stem, format!(".{end}")));
    for number in 1..=MAX_TRIES {
        let name = if number == 1 { name.to_owned() } else { format!("{stem}-{number}{end}") };
        let path = dir.join(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(data)?;
                return Ok(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    anyhow::bail!("too many files have the name `{name}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_names_stay_in_the_folder_and_are_visible() {
        for (name, safe) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "_.._.._etc_passwd"),
            (".bashrc", "_.bashrc"),
            ("-rf", "_-rf"),
            ("..", "_.."),
            ("", "_"),
            ("a\u{202e}b\n", "a_b_"),
        ] {
            let made = safe_file_name(name);
            assert!(check_name(&made).is_ok(), "{name:?}: {made:?}");
            assert_eq!(made, safe, "{name:?}");
        }
        assert!(safe_file_name(&"ü".repeat(300)).len() <= NAME_BYTES + 1);
    }

    #[test]
    fn nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), "old").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("a-2.txt")).unwrap();
        let path = write_new(dir.path(), "a.txt", b"new").unwrap();
        assert_eq!(path, dir.path().join("a-3.txt"));
        assert_eq!(std::fs::read_to_string(dir.path().join("a.txt")).unwrap(), "old");
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn the_media_type_follows_the_extension() {
        for (name, media) in
            [("A.PNG", "image/png"), ("x", UNKNOWN_MEDIA_TYPE), ("a.b.json", "application/json")]
        {
            assert_eq!(media_of(name), media);
        }
    }
}
