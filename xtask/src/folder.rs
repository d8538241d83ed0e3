//! The folders of tasks, and what they read.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The text of a file.
pub(crate) fn read_text(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))
}

/// The text of a page of `docs/tutorials`.
pub(crate) fn read_tutorial(workspace: &Path, name: &str) -> Result<String> {
    read_text(&workspace.join("docs/tutorials").join(name).with_extension("md"))
}

/// Makes a folder, in place of one that an earlier run left.
pub(crate) fn emptied(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove `{}`", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))
}

/// The files of a folder, without those of folders in it. A link counts as what it leads to.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}

/// Copies the files of a folder into another one.
pub(crate) fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for file in files(from)? {
        fs::copy(&file, to.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Links a large file that cargo built, in place of an earlier link, or copies it to another file system. A symbolic link would not
/// do: Node takes the name of the file that it leads to.
pub(crate) fn link_built(file: &Path, link: &Path) -> Result<()> {
    if link.exists() {
        fs::remove_file(link)?;
    }
    fs::hard_link(file, link)
        .or_else(|_| fs::copy(file, link).map(drop))
        .with_context(|| format!("cannot link `{}`; `cargo xtask test build` makes it", file.display()))
}

/// Replaces the text between two lines of a page.
pub(crate) fn write_between(page: &Path, marks: [&str; 2], text: &str) -> Result<()> {
    let [begin, end] = marks;
    let replaced = replaced_between(&read_text(page)?, marks, text)
        .with_context(|| format!("`{}` lacks the lines `{begin}` and `{end}`", page.display()))?;
    fs::write(page, replaced).with_context(|| format!("cannot write `{}`", page.display()))
}

/// The page with the text between the marks replaced. `None`: it lacks a mark.
fn replaced_between(page: &str, marks: [&str; 2], text: &str) -> Option<String> {
    let [begin, end] = marks.map(|mark| format!("{mark}\n"));
    let (above, rest) = page.split_once(&begin)?;
    let (_, below) = rest.split_once(&end)?;
    Some(format!("{above}{begin}{text}\n{end}{below}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = |inside: &str| format!("a\n<begin>\n{inside}<end>\nb\n");
        let replaced = |page: &str, text: &str| replaced_between(page, ["<begin>", "<end>"], text);
        assert_eq!(replaced(&page("old\n"), "new\n").unwrap(), page("new\n\n"));
        assert_eq!(replaced(&replaced(&page(""), "x").unwrap(), "new\n").unwrap(), page("new\n\n"));
        assert!(replaced("no marks\n", "new").is_none());
    }
}
