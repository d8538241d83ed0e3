//! Walks a directory tree within limits.
//!
//! Links are not followed, so a walk ends, and the operator's globs apply to real paths. Unreadable directories are
//! counted and not fatal, because an operator may grant only a part of a tree.

use std::collections::VecDeque;

use toolbay_sdk::files::{self, FileKind};
use toolbay_sdk::{Result, context};

/// Deeper trees are a mistake or an attack.
const DEPTH: usize = 32;

/// Roughly what a host looks up in one second.
const ENTRIES: usize = 50_000;

/// The reasons why a walk is incomplete.
#[derive(Debug, Default)]
pub(crate) struct SkippedEntries {
    pub(crate) unreadable_directories: usize,
    pub(crate) deeper_directories: usize,
    pub(crate) too_many_entries: bool,
}

/// Visits the files below a directory by name. The files of a directory come before those of its subdirectories.
///
/// `visit` gets the path and its part below `root`. It returns false to end the walk.
pub(crate) fn walk(root: &str, mut visit: impl FnMut(&str, &str) -> Result<bool>) -> Result<SkippedEntries> {
    let mut gaps = SkippedEntries::default();
    let mut entries_left = ENTRIES;
    let mut directories = VecDeque::from([(String::new(), 0)]);
    while let Some((directory, depth)) = directories.pop_front() {
        context::check_cancelled()?;
        let mut entries = match files::read_dir(&join(root, &directory)) {
            Ok(entries) => entries,
            // The caller handles an unreadable root.
            Err(error) if directory.is_empty() => return Err(error),
            Err(_) => {
                gaps.unreadable_directories += 1;
                continue;
            }
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let Some(left) = entries_left.checked_sub(1) else {
                gaps.too_many_entries = true;
                return Ok(gaps);
            };
            entries_left = left;
            let below = join(&directory, &entry.name);
            match entry.kind {
                FileKind::Directory if depth == DEPTH => gaps.deeper_directories += 1,
                FileKind::Directory => directories.push_back((below, depth + 1)),
                FileKind::File if !visit(&join(root, &below), &below)? => return Ok(gaps),
                FileKind::File | FileKind::Symlink | FileKind::Other => {}
            }
        }
    }
    Ok(gaps)
}

/// Returns `directory/name`, in the caller's spelling of the directory.
fn join(directory: &str, name: &str) -> String {
    match (directory, name) {
        ("" | ".", _) if !name.is_empty() => name.to_owned(),
        (_, "") => directory.to_owned(),
        _ => format!("{}/{name}", directory.trim_end_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::FakeHost;

    use super::*;

    fn paths(fake: &FakeHost, root: &str) -> (Vec<String>, SkippedEntries) {
        let mut paths = Vec::new();
        let gaps = fake.run(|| {
            walk(root, |path, _| {
                paths.push(path.to_owned());
                Ok(true)
            })
        });
        (paths, gaps.unwrap())
    }

    #[test]
    fn files_come_level_by_level_and_by_name() {
        let fake = FakeHost::new().file("b/c/d", "").file("b/a", "").file("z", "").file("a", "");
        assert_eq!(paths(&fake, ".").0, ["a", "z", "b/a", "b/c/d"]);
        assert_eq!(paths(&fake, "b/").0, ["b/a", "b/c/d"]);
    }

    #[test]
    fn what_can_not_be_read_is_counted() {
        let fake = FakeHost::new().file("a", "").file("s/b", "").deny("s");
        let (found, gaps) = paths(&fake, ".");
        assert_eq!((found.len(), gaps.unreadable_directories), (1, 1));
    }

    #[test]
    fn depth_and_number_are_bounded() {
        let (found, gaps) = paths(&FakeHost::new().file(&format!("{}x", "d/".repeat(DEPTH + 1)), ""), ".");
        assert_eq!((found.len(), gaps.deeper_directories), (0, 1));
        let (found, gaps) = paths(&FakeHost::new().file(&format!("{}x", "d/".repeat(DEPTH)), ""), ".");
        assert_eq!((found.len(), gaps.deeper_directories), (1, 0));
    }

    #[test]
    fn a_cancelled_walk_ends() {
        let fake = FakeHost::new().file("a/b/c", "").cancelled_after(1);
        assert!(fake.run(|| walk(".", |_, _| Ok(true))).is_err());
    }
}
