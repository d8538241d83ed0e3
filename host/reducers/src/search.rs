//! `search`: search results grouped by file.
//!
//! ```text
//! src/main.rs:12:fn main() {        src/main.rs (14 matches)
//! src/main.rs:30:main();        ->    12: fn main() {
//! … (400 more)                        30: main();
//!                                     … 12 more
//!                                   …
//!                                   [402 matches in 31 files, 97 of them shown: search in one directory or for more to see the others]
//! ```
//!
//! Lines are `path:line:text`, as the plugin `files`, `grep -n` and `rg -n` print them. A list of paths is grouped like a
//! directory listing. A text with context lines or other lines is unchanged.

use std::collections::BTreeMap;

use crate::cut::{chars, clip, count};
use crate::shape::digits;
use crate::{ReducerInput, law, listing, pointer};

/// Fewer matches are unchanged.
const FEW: usize = 50;

/// The most characters of the result.
const MOST_CHARS: usize = 8192;

/// How many files, and lines of each file, are shown.
const FILES: usize = 30;
const LINES: usize = 5;

/// The most characters of a line.
const LINE_CHARS: usize = 160;

/// Groups search results by file.
#[must_use]
pub fn search(text: &str, ctx: &ReducerInput<'_>) -> Option<String> {
    law::apply(text, ctx, |text, ctx| {
        let most = MOST_CHARS.min(ctx.budget_chars);
        let found = SearchMatches::read(text)?;
        if found.matches == 0 {
            return listing::group(text, most);
        }
        if found.matches <= FEW && chars(text) <= ctx.budget_chars {
            return None;
        }
        // Shows as many of each as fit.
        [(FILES, LINES), (FILES, 2), (20, 1), (8, 1), (3, 1)]
            .into_iter()
            .map(|(files, lines)| found.show(files, lines))
            .find(|shown| chars(shown) <= most)
    })
}

#[derive(Debug, Default)]
struct SearchMatches<'a> {
    files: Vec<FileMatches<'a>>,
    /// Other lines of the tool.
    notes: Vec<&'a str>,
    matches: usize,
}

#[derive(Debug)]
struct FileMatches<'a> {
    path: &'a str,
    number: usize,
    /// Line number and text, of the lines that may be shown.
    lines: Vec<(&'a str, &'a str)>,
}

impl<'a> SearchMatches<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut found = Self::default();
        let mut place: BTreeMap<&str, usize> = BTreeMap::new();
        let mut others = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if pointer::is_note(line) {
                found.notes.push(line);
            } else if let Some((path, number, text)) = split(line) {
                found.matches += 1;
                let index = *place.entry(path).or_insert_with(|| {
                    found.files.push(FileMatches { path, number: 0, lines: Vec::new() });
                    found.files.len() - 1
                });
                if let Some(file) = found.files.get_mut(index) {
                    file.number += 1;
                    if file.lines.len() < LINES {
                        file.lines.push((number, text));
                    }
                }
            } else {
                others += 1;
            }
        }
        (found.matches == 0 || others == 0).then_some(found)
    }

    fn show(&self, files: usize, lines: usize) -> String {
        let mut text = String::new();
        let mut shown = 0;
        for file in self.files.iter().take(files) {
            text.push_str(&format!("{} ({})\n", clip(file.path, LINE_CHARS), count(file.number, "match")));
            for (number, line) in file.lines.iter().take(lines) {
                text.push_str(&format!("  {number}: {}\n", clip(line.trim(), LINE_CHARS)));
                shown += 1;
            }
            if file.number > lines {
                text.push_str(&format!("  … {} more\n", file.number - lines));
            }
        }
        if self.files.len() > files {
            let rest: usize = self.files.iter().skip(files).map(|file| file.number).sum();
            text.push_str(&format!(
                "… {} more in {}\n",
                count(rest, "match"),
                count(self.files.len() - files, "other file")
            ));
        }
        text.push_str(&format!(
            "[{} in {}, {shown} of them shown: search in one directory, or for more, to see the others]\n",
            count(self.matches, "match"),
            count(self.files.len(), "file"),
        ));
        for note in &self.notes {
            text.push_str(&clip(note, LINE_CHARS));
            text.push('\n');
        }
        text
    }
}

/// `path:line:text`, or `path:line:column:text`, whose text then begins with the column.
fn split(line: &str) -> Option<(&str, &str, &str)> {
    // `C:\a.rs:1:x`
    let drive = line.get(1..3) == Some(":\\") && line.starts_with(|c: char| c.is_ascii_alphabetic());
    let mut from = if drive { 2 } else { 0 };
    loop {
        let colon = from + line.get(from..)?.find(':')?;
        let rest = line.get(colon + 1..)?;
        if let Some((number, text)) =
            digits(rest).and_then(|(number, rest)| Some((number, rest.strip_prefix(':')?)))
        {
            let path = line.get(..colon).filter(|path| !path.trim().is_empty())?;
            return Some((path, number, text));
        }
        from = colon + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: ReducerInput<'_> = ReducerInput { args: "{}", turn: 0, budget_chars: 80_000 };

    fn matches(files: usize, lines: usize) -> String {
        let line =
            |file: usize, line: usize| format!("src/deep/f{file}.rs:{line}:    let x = {line}; // a: b\n");
        (0..files).flat_map(|file| (1..=lines).map(move |n| line(file, n))).collect()
    }

    #[test]
    fn matches_are_grouped_by_file_and_counted() {
        let text = format!("{}[there are more than 100 results: narrow the search]\n", matches(2, 40));
        let reduced = search(&text, &CTX).unwrap();
        assert!(reduced.starts_with("src/deep/f0.rs (40 matches)\n  1: let x = 1; // a: b\n"), "{reduced}");
        assert!(
            reduced.contains("  5: let x = 5; // a: b\n  … 35 more\nsrc/deep/f1.rs (40 matches)\n"),
            "{reduced}"
        );
        assert!(reduced.contains("\n[80 matches in 2 files, 10 of them shown: "), "{reduced}");
        assert!(reduced.ends_with("[there are more than 100 results: narrow the search]\n"), "{reduced}");
        let many = search(&matches(100, 3), &CTX).unwrap();
        assert!(
            many.contains("… 210 matches more in 70 other files") || many.contains("… 210 matches"),
            "{many}"
        );
    }

    #[test]
    fn few_matches_and_other_texts_are_left_alone() {
        assert_eq!(search(&matches(1, 50), &CTX), None);
        assert!(search(&matches(1, 51), &CTX).is_some());
        let context = matches(1, 60).replace("f0.rs:7:", "f0.rs-7-");
        assert_eq!(search(&context, &CTX), None, "lines of context");
        assert_eq!(search("Nothing found.\n", &CTX), None);
    }

    #[test]
    fn lines_are_split_at_the_number() {
        for (line, expected) in [
            ("a.rs:1:x", Some(("a.rs", "1", "x"))),
            ("a.rs:1:2:x", Some(("a.rs", "1", "2:x"))),
            ("a:b.rs:1:x:3:y", Some(("a:b.rs", "1", "x:3:y"))),
            ("C:\\a.rs:1:x", Some(("C:\\a.rs", "1", "x"))),
            ("é.rs:1:", Some(("é.rs", "1", ""))),
            (":1:x", None),
            ("a.rs:x", None),
            ("a.rs:12", None),
            ("", None),
        ] {
            assert_eq!(split(line), expected, "{line}");
        }
    }

    #[test]
    fn long_lines_and_small_budgets() {
        let text = format!("a.min.js:1:{}\n", "é".repeat(100_000)).repeat(3);
        let ctx = ReducerInput { budget_chars: 2000, ..CTX };
        let reduced = search(&text, &ctx).unwrap();
        assert!(chars(&reduced) <= 2000 && reduced.contains("é…\n"), "{reduced}");
    }

    #[test]
    fn paths_alone_are_grouped_as_a_directory_is() {
        let text: String = (0..300).map(|n| format!("src/f{n}.rs\n")).collect();
        assert!(search(&text, &CTX).unwrap().starts_with("300 entries"));
    }
}
