//! The names of plugins and tools for completions: one file in the cache for each plugin directory.
//!
//! A load writes the file if the names changed. Components choose the names, so a text with other characters is dropped, also
//! when the file is read: a shell inserts a candidate into the line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use toolbay::{Host, read_regular_text};
use toolbay_state::digest::Digest;
use toolbay_state::private;

/// The folder in the cache.
const FOLDER: &str = "names";
/// Increased when the meaning of the file changes.
const FORMAT: u32 = 1;
/// Most bytes of a file: ten thousand tools with the longest names.
const MAX_BYTES: u64 = 1 << 20;
/// Most names of one kind. People do not choose among more.
const MAX_NAMES: usize = 10_000;
/// Most files: those of the plugin directories that changed last.
const MAX_FILES: usize = 64;
/// Longest name, in bytes.
const MAX_NAME: usize = 128;

/// The names of one plugin directory.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CachedNames {
    format: u32,
    /// The ids of the plugins.
    pub(crate) plugins: Vec<String>,
    /// The qualified names of the tools.
    pub(crate) tools: Vec<String>,
}

impl CachedNames {
    fn new(plugins: impl IntoIterator<Item = String>, tools: impl IntoIterator<Item = String>) -> Self {
        Self { format: FORMAT, plugins: sorted(plugins), tools: sorted(tools) }
    }
}

/// Records the names of the loaded plugins. Completions are a convenience, so a failure is only logged.
pub(crate) fn record(cache: &Path, plugins: &Path, host: &Host) {
    let ids = host.plugins().into_iter().map(|plugin| plugin.id.to_string());
    let catalog = host.registry().snapshot();
    let tools = catalog.tools().map(|entry| entry.def.name.to_string());
    if let Err(error) = write(cache, plugins, &CachedNames::new(ids, tools)) {
        tracing::debug!(%error, "the names for completions were not recorded");
    }
}

/// The recorded names of a plugin directory; `None`: there are none.
pub(crate) fn read(cache: &Path, plugins: &Path) -> Option<CachedNames> {
    let text = read_regular_text(&file_for(cache, plugins).ok()?, MAX_BYTES).ok()?;
    let names: CachedNames = serde_json::from_str(&text).ok()?;
    (names.format == FORMAT).then(|| CachedNames::new(names.plugins, names.tools))
}

fn sorted(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().filter(|name| is_name(name)).take(MAX_NAMES).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    // A word that begins with `-` is an option.
    text.len() <= MAX_NAME
        && text.starts_with(|c: char| is_plain(c) && c != '-')
        && text.chars().all(is_plain)
}

fn write(cache: &Path, plugins: &Path, names: &CachedNames) -> io::Result<()> {
    // The host creates the cache, for this user only. Without one there are no names.
    if !cache.is_dir() || read(cache, plugins).as_ref() == Some(names) {
        return Ok(());
    }
    let folder = cache.join(FOLDER);
    fs::create_dir_all(&folder)?;
    private::replace_unsynced(&file_for(cache, plugins)?, &[&serde_json::to_vec(names)?])?;
    remove_oldest(&folder)
}

fn file_for(cache: &Path, plugins: &Path) -> io::Result<PathBuf> {
    let digest = Digest::of(plugins.canonicalize()?.as_os_str().as_encoded_bytes());
    Ok(cache.join(FOLDER).join(format!("{:.32}.json", digest.hex())))
}

/// Removes files until [`MAX_FILES`] are left, the oldest first.
fn remove_oldest(folder: &Path) -> io::Result<()> {
    let modified = |entry: &fs::DirEntry| entry.metadata().and_then(|meta| meta.modified());
    let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().and_then(|entry| Some((modified(&entry).ok()?, entry.path()))))
        .collect();
    files.sort_unstable();
    let excess = files.len().saturating_sub(MAX_FILES);
    // Another process may have removed it already.
    files.iter().take(excess).for_each(|(_, file)| drop(fs::remove_file(file)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tool: &str) -> CachedNames {
        CachedNames::new(["a".to_owned()], [tool.to_owned()])
    }

    #[test]
    fn only_names_are_candidates() {
        let hostile = ["a__b", "-rf", "$(id)", "a b", "a\nb", "", "a`id`", "größe"].map(ToOwned::to_owned);
        assert_eq!(CachedNames::new(hostile, ["x".repeat(MAX_NAME + 1)]).plugins, ["a__b"]);
        let many = (0..MAX_NAMES + 5).map(|number| format!("a__{number}"));
        assert_eq!(CachedNames::new([], many).tools.len(), MAX_NAMES);
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(FOLDER)).unwrap();
        let file = file_for(dir.path(), dir.path()).unwrap();
        for (text, expected) in [
            (r#"{"format": 1, "plugins": ["a;b", "c"], "tools": ["c__d"]}"#, Some(vec!["c__d".to_owned()])),
            (r#"{"format": 2, "plugins": [], "tools": ["c__d"]}"#, None),
            ("nonsense", None),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(read(dir.path(), dir.path()).map(|names| names.tools), expected, "{text}");
        }
        fs::write(&file, " ".repeat(usize::try_from(MAX_BYTES).unwrap() + 1)).unwrap();
        assert_eq!(read(dir.path(), dir.path()), None);
    }

    #[test]
    fn each_plugin_directory_has_its_names_and_old_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: usize| dir.path().join(format!("plugins-{name}"));
        for name in 0..MAX_FILES + 3 {
            fs::create_dir(at(name)).unwrap();
            write(dir.path(), &at(name), &names(&format!("a__{name}"))).unwrap();
        }
        assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), MAX_FILES);
        let last = MAX_FILES + 2;
        assert_eq!(read(dir.path(), &at(last)), Some(names(&format!("a__{last}"))));
        assert_eq!(read(dir.path(), &dir.path().join("none")), None);
        assert!(write(&dir.path().join("no-cache"), &at(0), &names("a__b")).is_ok());
        assert!(!dir.path().join("no-cache").exists());
    }
}
