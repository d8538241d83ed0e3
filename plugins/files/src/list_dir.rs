//! `list_dir`.

use toolbay_sdk::files::{self, FileKind};
use toolbay_sdk::prelude::*;

use crate::shown_name::shown_name;

/// The content of a directory.
#[data]
#[derive(Debug, PartialEq)]
pub struct DirListing {
    /// The directory.
    pub path: String,
    /// The entries, by name.
    pub entries: Vec<DirEntry>,
    /// The number of entries, shown or not.
    pub total: usize,
}

/// An entry of a directory.
#[data]
#[derive(Debug, PartialEq)]
pub struct DirEntry {
    /// Its name.
    pub name: String,
    /// `file`, `directory`, `symlink` or `other`.
    pub kind: String,
}

/// List a directory. Directories end with `/`, symbolic links with `@`.
#[tool(
    toolset = "file", tags = ["list"], read_only, idempotent, closed_world, untrusted_output,
    fs_read = "**", reason = "lists the directory you name",
)]
pub fn list_dir(
    /// Path of the directory.
    #[arg(default = ".", length(min = 1))]
    path: String,
    /// Show at most this many entries.
    #[arg(default = 500, range(min = 1, max = 10_000))]
    max_entries: usize,
) -> Result<Rendered<DirListing>> {
    let mut found = files::read_dir(&path)?;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let total = found.len();

    let mut text = String::new();
    let mut entries = Vec::new();
    for entry in found.into_iter().take(max_entries) {
        let (kind, mark) = match entry.kind {
            FileKind::File => ("file", ""),
            FileKind::Directory => ("directory", "/"),
            FileKind::Symlink => ("symlink", "@"),
            FileKind::Other => ("other", ""),
        };
        text.push_str(&format!("{}{mark}\n", shown_name(&entry.name)));
        entries.push(DirEntry { name: entry.name, kind: kind.to_owned() });
    }
    if total == 0 {
        text = "The directory is empty.".to_owned();
    } else if total > entries.len() {
        text.push_str(&format!(
            "[{} of {total} entries shown; raise max_entries or use search_files]\n",
            entries.len()
        ));
    }
    Ok(Rendered { text, data: DirListing { path, entries, total } })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    #[test]
    fn entries_come_sorted_and_marked() {
        let fake = FakeHost::new().file("b.txt", "").file("a/x", "").file("c", "");
        let output = fake.run(|| call::<list_dir>(json!({}))).unwrap();
        assert_eq!(output.value, "a/\nb.txt\nc\n");
        assert!(output.structured.unwrap().contains(r#"{"name":"a","kind":"directory"}"#));
        let output = fake.run(|| call::<list_dir>(json!({"max_entries": 1}))).unwrap();
        assert_eq!(output.value, "a/\n[1 of 3 entries shown; raise max_entries or use search_files]\n");
    }

    #[test]
    fn a_name_is_one_entry_in_the_text_and_exact_in_the_data() {
        let fake = FakeHost::new().file("a\nb/\x1b[2J\u{202e}", "");
        let output = fake.run(|| call::<list_dir>(json!({}))).unwrap();
        assert_eq!(output.value, "a\\nb/\n");
        let output = fake.run(|| call::<list_dir>(json!({"path": "a\nb"}))).unwrap();
        assert_eq!(output.value, "\\u{1b}[2J\\u{202e}\n");
        assert!(output.structured.unwrap().contains("\u{202e}"));
    }

    #[test]
    fn what_is_no_directory_is_an_error() {
        let fake = FakeHost::new().file("a", "");
        for path in ["a", "none"] {
            let error = fake.run(|| call::<list_dir>(json!({"path": path}))).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ExecutionFailed);
        }
        assert_eq!(fake.run(|| call::<list_dir>(json!({"path": "."}))).unwrap().value, "a\n");
    }
}
