//! Writes a new project to disk atomically.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::Path;

/// The project to create.
#[derive(Debug)]
pub(crate) struct TemplatePlan<'a> {
    /// The plugin's name, which is also its id.
    pub(crate) name: &'a str,
    /// Whether it starts with a reducer instead of a tool.
    pub(crate) reducer: bool,
}

/// A file of a template.
#[derive(Debug)]
pub(crate) struct TemplateFile {
    /// The path relative to the project, with `/`.
    pub(crate) path: String,
    /// The content.
    pub(crate) text: Cow<'static, str>,
}

impl TemplateFile {
    /// A file with this text.
    pub(crate) fn new(path: impl Into<String>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

/// Writes the files into a new folder.
///
/// A temporary folder is renamed at the end, so that a full disk leaves nothing behind.
pub(crate) fn write(folder: &Path, files: &[TemplateFile]) -> io::Result<()> {
    let name = folder.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    let part = folder.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    fs::create_dir(&part)?;
    let written = files.iter().try_for_each(|file| {
        let path = part.join(&file.path);
        fs::create_dir_all(path.parent().unwrap_or(&part))?;
        fs::write(path, file.text.as_bytes())
    });
    let done = written.and_then(|()| fs::rename(&part, folder));
    if done.is_err() {
        // The first error is returned; a failed clean-up would hide it.
        fs::remove_dir_all(&part).ok();
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("größe 1");
        let good = TemplateFile::new("a/b.txt", "text");
        write(&folder, std::slice::from_ref(&good)).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a/b.txt")).unwrap(), "text");

        let other = dir.path().join("other");
        let bad = [good, TemplateFile::new("a", "a file where a folder is")];
        assert!(write(&other, &bad).is_err());
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["größe 1"]);
    }
}
