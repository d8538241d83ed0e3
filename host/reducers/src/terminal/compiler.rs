//! `cargo build` and similar commands, and `tsc`.

use std::collections::BTreeMap;

use super::noise::{ClassifiedLines, LineAction};
use crate::cut::{chars, count, ends};
use crate::shape::digits;

/// Progress lines of cargo, right-aligned to twelve columns.
const PROGRESS: &[&str] = &[
    "Adding",
    "Blocking",
    "Building",
    "Checking",
    "Compiling",
    "Creating",
    "Dirty",
    "Documenting",
    "Downgrading",
    "Downloaded",
    "Downloading",
    "Finished",
    "Fresh",
    "Generated",
    "Locking",
    "Packaging",
    "Running",
    "Scraping",
    "Unpacking",
    "Updating",
    "Upgrading",
    "Verifying",
];

/// How many errors of `tsc` are shown for each file if there are too many.
const ERRORS_A_FILE: usize = 3;

/// Returns whether a line is a progress line of cargo.
pub(super) fn is_progress(line: &str) -> bool {
    let trimmed = line.trim_start();
    let word = trimmed.split(' ').next().unwrap_or_default();
    // `Doc-tests` and `Running` start a suite, which is judged by its result.
    word != "Running"
        && PROGRESS.contains(&word)
        && line.len() - trimmed.len() == 12usize.saturating_sub(word.len())
}

/// Keeps errors and warnings of cargo, and the final line.
pub(super) fn cargo(text: &str, most: usize) -> Option<String> {
    let is_finding = |line: &str| {
        ["error", "warning"]
            .iter()
            .any(|kind| line.strip_prefix(kind).is_some_and(|rest| rest.starts_with([':', '['])))
    };
    let known = text.lines().any(|line| is_progress(line) || is_finding(line));
    if !known {
        return None;
    }
    let action = |line: &str| match line {
        line if is_progress(line) => LineAction::Drop,
        line if is_finding(line) => LineAction::Begin,
        _ => LineAction::Keep,
    };
    let shown = ClassifiedLines::new(text, action).show("progress", usize::MAX);
    if chars(&shown) <= most {
        return Some(shown);
    }
    // If the text is still too long, warnings are shortened to message and location, and errors stay complete.
    let (mut warning, mut located) = (false, false);
    let action = |line: &str| {
        if is_finding(line) {
            (warning, located) = (line.starts_with("warning"), false);
            return LineAction::Begin;
        }
        let place = line.trim_start().starts_with("--> ") && !std::mem::replace(&mut located, true);
        if is_progress(line) || warning && !place { LineAction::Drop } else { LineAction::Keep }
    };
    Some(ClassifiedLines::new(text, action).show("progress, and details of warnings", most))
}

/// Keeps the errors of `tsc`; if there are too many, the first ones of each file.
pub(super) fn typescript(text: &str, most: usize) -> Option<String> {
    if !text.lines().any(|line| place(line).is_some() || line.contains(" - error TS")) {
        return None;
    }
    if chars(text) <= most {
        return Some(text.to_owned());
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut shown = String::new();
    let mut keeps = true;
    for line in text.lines() {
        if let Some(file) = place(line) {
            let number = seen.entry(file).or_default();
            *number += 1;
            keeps = *number <= ERRORS_A_FILE;
        } else if !line.starts_with(' ') {
            // Only indented lines belong to the error above.
            keeps = true;
        }
        if keeps {
            shown.push_str(line);
            shown.push('\n');
        }
    }
    let left_out: usize = seen.values().map(|number| number.saturating_sub(ERRORS_A_FILE)).sum();
    if left_out > 0 {
        let files = count(seen.values().filter(|number| **number > ERRORS_A_FILE).count(), "file");
        shown.push_str(&format!(
            "[{} in {files} left out: {ERRORS_A_FILE} of each file are shown]\n",
            count(left_out, "error")
        ));
    }
    Some(ends(&shown, most).unwrap_or(shown))
}

/// The file of `src/a.ts(1,7): error TS2322: …`.
fn place(line: &str) -> Option<&str> {
    let (before, _) = line.split_once("): error TS")?;
    let (file, position) = before.rsplit_once('(')?;
    let (_, column) = digits(position)?;
    digits(column.strip_prefix(',')?).filter(|(_, rest)| rest.is_empty() && !file.is_empty())?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_its_column() {
        for line in ["   Compiling a v1", "    Finished `dev`", " Downloading crates ...", " Documenting a"] {
            assert!(is_progress(line), "{line}");
        }
        for line in ["Compiling a", "  Compiling a", "    Checking x", "     Running a", "   compiling", ""] {
            assert_eq!(is_progress(line), line == "    Checking x", "{line}");
        }
    }

    #[test]
    fn errors_stay_whole_and_warnings_short_when_there_are_many() {
        let warning = "warning: unused\n --> src/a.rs:1:1\n  |\n1 | let x = 1;\n  | a note of some length to fill the room\n\n";
        let error =
            "error[E0308]: mismatched types\n --> src/b.rs:2:2\n  |\n2 | \"text\"\n  | expected `i32`\n\n";
        let text = format!(
            "   Compiling a v1\n{}{error}{}error: could not compile `a`\n",
            warning.repeat(20),
            warning.repeat(20)
        );
        let whole = cargo(&text, 10_000).unwrap();
        assert_eq!(whole.matches("a note").count(), 40);
        let short = cargo(&text, 2000).unwrap();
        assert!(short.contains(error), "{short}");
        assert!(short.matches("a note").count() <= 1, "only among the last lines: {short}");
        assert_eq!(short.matches("--> src/a.rs:1:1").count(), 40, "{short}");
    }

    #[test]
    fn typescript_shows_some_errors_of_every_file() {
        let text: String =
            (0..400).map(|n| format!("src/f{}.ts({n},7): error TS2322: no.\n", n / 100)).collect();
        assert_eq!(typescript(&text, 100_000).as_deref(), Some(text.as_str()));
        let shown = typescript(&text, 4000).unwrap();
        assert_eq!(shown.lines().count(), 13, "{shown}");
        assert!(shown.ends_with("[388 errors in 4 files left out: 3 of each file are shown]\n"), "{shown}");
        assert_eq!(typescript("src/a.ts: fine\n", 10), None);
    }
}
