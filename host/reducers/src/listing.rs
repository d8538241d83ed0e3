//! `list_dir`: a long directory listing, grouped by directory and extension.
//!
//! ```text
//! a/            412 entries: 12 directories, 400 files
//! b/            directories: a/, b/, …
//! x1.rs     ->  *.rs (380): x1.rs, x2.rs, x3.rs, x4.rs, x5.rs, …
//! x2.rs         *.md (20): …
//! …             [412 entries, grouped: list one directory, or search by name, to see the others]
//! ```
//!
//! Each line is an entry. Directories end with `/`. Entries of a list of paths are grouped by directory, too.

use std::collections::BTreeMap;

use crate::cut::{chars, clip, count};
use crate::pointer::is_note;
use crate::{ReducerInput, law};

/// Shorter listings are unchanged.
const FEW: usize = 100;

/// The most characters of the result.
const MOST_CHARS: usize = 8192;

/// How many groups, names of each group, and directories are shown.
const GROUPS: usize = 40;
const NAMES: usize = 5;
const DIRECTORIES: usize = 40;

/// The most groups that are distinguished. A hostile listing could have one for each file.
const MOST_GROUPS: usize = 4096;

/// Longer lines are not entries.
const ENTRY_CHARS: usize = 1024;

/// Groups a long listing by directory and extension.
#[must_use]
pub fn list_dir(text: &str, ctx: &ReducerInput<'_>) -> Option<String> {
    law::apply(text, ctx, |text, ctx| group(text, MOST_CHARS.min(ctx.budget_chars)))
}

/// Groups entries in at most `most` characters.
pub(crate) fn group(text: &str, most: usize) -> Option<String> {
    let (notes, entries): (Vec<&str>, Vec<&str>) =
        text.lines().filter(|line| !line.trim().is_empty()).partition(|line| is_note(line));
    let json = text.trim_start().starts_with(['{', '[']) && notes.is_empty();
    let is_entry = |entry: &&str| entry.len() <= ENTRY_CHARS && !entry.starts_with([' ', '\t']);
    if json
        || is_grouped(&notes)
        || (entries.len() <= FEW && chars(text) <= most)
        || !entries.iter().all(is_entry)
    {
        return None;
    }
    let mut listing = DirectoryListing { notes, entries: entries.len(), ..DirectoryListing::default() };
    let mut place: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for entry in entries {
        if entry.ends_with('/') {
            listing.directories.push(entry);
        } else {
            listing.add(entry, &mut place);
        }
    }
    // A stable sort keeps groups of the same size in listing order.
    listing.groups.sort_by_key(|group| std::cmp::Reverse(group.number));
    // Shows as many of each as fit.
    [(DIRECTORIES, GROUPS, NAMES), (20, 20, 3), (10, 10, 1), (3, 3, 1)]
        .into_iter()
        .map(|(directories, groups, names)| listing.show(directories, groups, names))
        .find(|shown| chars(shown) <= most)
}

#[derive(Debug, Default)]
struct DirectoryListing<'a> {
    directories: Vec<&'a str>,
    groups: Vec<EntryGroup<'a>>,
    /// Files beyond the distinguished groups.
    others: usize,
    notes: Vec<&'a str>,
    entries: usize,
}

/// The files of one directory with one extension.
#[derive(Debug)]
struct EntryGroup<'a> {
    directory: &'a str,
    extension: &'a str,
    number: usize,
    /// The names that may be shown.
    names: Vec<&'a str>,
}

impl<'a> DirectoryListing<'a> {
    fn add(&mut self, path: &'a str, place: &mut BTreeMap<(&'a str, &'a str), usize>) {
        let (directory, extension) = (directory(path), extension(path));
        let index = match place.get(&(directory, extension)) {
            Some(index) => *index,
            None if self.groups.len() >= MOST_GROUPS => {
                self.others += 1;
                return;
            }
            None => {
                place.insert((directory, extension), self.groups.len());
                self.groups.push(EntryGroup { directory, extension, number: 0, names: Vec::new() });
                self.groups.len() - 1
            }
        };
        if let Some(group) = self.groups.get_mut(index) {
            group.number += 1;
            if group.names.len() < NAMES {
                group.names.push(path.rsplit('/').next().unwrap_or(path));
            }
        }
    }
}

impl DirectoryListing<'_> {
    fn show(&self, directories: usize, groups: usize, most: usize) -> String {
        let files = self.entries - self.directories.len();
        let mut text = format!("{}: ", entries(self.entries));
        if !self.directories.is_empty() {
            text.push_str(&format!("{}, ", count(self.directories.len(), "directory")));
        }
        text.push_str(&format!("{}\n", count(files, "file")));
        if !self.directories.is_empty() {
            let shown: Vec<String> =
                self.directories.iter().take(directories).map(|name| clip(name, 100)).collect();
            let more = if self.directories.len() > directories { ", …" } else { "" };
            text.push_str(&format!(
                "directories: {}{more}
",
                shown.join(", ")
            ));
        }
        for EntryGroup { directory, extension, number, names } in self.groups.iter().take(groups) {
            let pattern =
                if extension.is_empty() { "(no extension)".to_owned() } else { format!("*.{extension}") };
            let place =
                if directory.is_empty() { String::new() } else { format!("{}/", clip(directory, 200)) };
            let shown: Vec<String> = names.iter().take(most).map(|name| clip(name, 100)).collect();
            let more = if *number > shown.len() { ", …" } else { "" };
            text.push_str(&format!("{place}{pattern} ({number}): {}{more}\n", shown.join(", ")));
        }
        let rest = self.groups.iter().skip(groups).map(|group| group.number).sum::<usize>() + self.others;
        if rest > 0 {
            text.push_str(&format!("… {} of other kinds\n", count(rest, "file")));
        }
        for note in &self.notes {
            text.push_str(&clip(note, 200));
            text.push('\n');
        }
        text.push_str(&format!("[{}{GROUPED}\n", entries(self.entries)));
        text
    }
}

/// The end of the last note of a grouped listing.
const GROUPED: &str = ", grouped: list one directory, or search by name, to see the others]";

fn is_grouped(notes: &[&str]) -> bool {
    notes.iter().any(|note| note.ends_with(GROUPED))
}

fn entries(number: usize) -> String {
    count(number, "entry")
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The part after the last dot of a name, unless the name begins with it. The mark of a symbolic link is not part of it.
fn extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.strip_suffix(['@', '*']).unwrap_or(name);
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && extension.len() <= 12 && !extension.contains(' ') => {
            extension
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: ReducerInput<'_> = ReducerInput { args: "{}", turn: 0, budget_chars: 80_000 };

    #[test]
    fn a_long_listing_is_grouped() {
        let mut text: String = (0..12).map(|n| format!("dir{n}/\n")).collect();
        text.extend((0..200).map(|n| format!("mod{n}.rs\n")));
        text.push_str("README.md\nLICENSE\n.gitignore\nlink.rs@\n");
        let reduced = list_dir(&text, &CTX).unwrap();
        assert_eq!(
            reduced,
            "216 entries: 12 directories, 204 files\n\
             directories: dir0/, dir1/, dir2/, dir3/, dir4/, dir5/, dir6/, dir7/, dir8/, dir9/, dir10/, dir11/\n\
             *.rs (201): mod0.rs, mod1.rs, mod2.rs, mod3.rs, mod4.rs, …\n(no extension) (2): LICENSE, .gitignore\n\
             *.md (1): README.md\n\
             [216 entries, grouped: list one directory, or search by name, to see the others]\n"
        );
    }

    #[test]
    fn a_hundred_entries_are_left_alone() {
        let listing = |number: usize| (0..number).map(|n| format!("f{n}\n")).collect::<String>();
        assert_eq!(list_dir(&listing(100), &CTX), None);
        assert!(list_dir(&listing(101), &CTX).is_some());
        assert!(list_dir(&listing(100), &ReducerInput { budget_chars: 200, ..CTX }).is_some());
        assert_eq!(list_dir("The directory is empty.", &CTX), None);
    }

    #[test]
    fn paths_are_grouped_by_directory_and_notes_stay() {
        let mut text: String = (0..80).map(|n| format!("src/a{n}.rs\ndocs/b{n}.md\n")).collect();
        text.push_str("[160 of 900 entries shown; raise max_entries or use search_files]\n");
        let reduced = list_dir(&text, &CTX).unwrap();
        assert!(
            reduced.contains("src/*.rs (80): a0.rs, a1.rs, ") && reduced.contains("docs/*.md (80): "),
            "{reduced}"
        );
        assert!(reduced.contains("[160 of 900 entries shown; "), "{reduced}");
    }

    #[test]
    fn what_is_no_listing_is_left_alone() {
        let json = format!("[\n{}]", "\"a\",\n".repeat(200));
        assert_eq!(list_dir(&json, &CTX), None);
        assert_eq!(list_dir(&"  indented\n".repeat(200), &CTX), None);
        assert_eq!(list_dir(&format!("{}\n", "x".repeat(2000)).repeat(200), &CTX), None);
    }
}
