//! Checks `tests/seed-parity.md`: each row names existing tests that show the behaviour, or the issue that it waits for.
//!
//! A test is `FILE::TEST`, where FILE is the file's name without path and extension, or the folder's name for `mod.rs`,
//! `tests.rs`, `lib.rs` and `main.rs`. A test of the integration tests is `FOLDER::FILE::TEST`. A Python file is named by its
//! path. A row that waits says `open: issue N` or `open: no issue yet`.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{Report, Source};

const PAGE: &str = "tests/seed-parity.md";

/// Checks every row and prints the number of waiting ones.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    let Some(page) = sources.iter().find(|source| source.path == PAGE) else {
        return report.errors.push(format!("there is no `{PAGE}`"));
    };
    let files: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let tests: BTreeSet<String> = sources.iter().flat_map(tests).collect();
    let (mut rows, mut open) = (0, BTreeMap::<String, usize>::new());
    for (number, line) in page.text.lines().enumerate() {
        let Some(cell) = shown_by(line) else { continue };
        rows += 1;
        let mut wrong = |problem: String| report.errors.push(format!("{PAGE}:{}: {problem}", number + 1));
        if let Some(what) = waits(cell) {
            *open.entry(what.to_owned()).or_default() += 1;
            continue;
        }
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            wrong("names no test and no issue: write `FILE::TEST`, or open: issue N".to_owned());
        }
        for name in named.into_iter().filter(|name| !tests.contains(*name) && !files.contains(name)) {
            wrong(format!("there is no test `{name}`"));
        }
    }
    let waiting: Vec<String> = open.iter().map(|(issue, rows)| format!("{rows} for {issue}")).collect();
    println!("{rows} seed features, {} open: {}", open.values().sum::<usize>(), waiting.join(", "));
}

/// The last cell of a table row, unless it is the header.
fn shown_by(line: &str) -> Option<&str> {
    let last = line.strip_prefix('|')?.strip_suffix('|')?.rsplit("| ").next()?.trim();
    let head = last == "shown by" || line.chars().all(|c| matches!(c, '|' | '-' | ' '));
    (!head).then_some(last)
}

/// What a row waits for: `issue N`, or `no issue yet`.
fn waits(cell: &str) -> Option<&str> {
    const NONE_YET: &str = "no issue yet";
    let open = cell.strip_prefix("open: ")?;
    if open.starts_with(NONE_YET) {
        return Some(NONE_YET);
    }
    let issue = open.strip_prefix("issue ")?;
    let digits = issue.find(|c: char| !c.is_ascii_digit()).unwrap_or(issue.len());
    open.get(.."issue ".len() + digits).filter(|_| digits > 0)
}

/// The tests of a source, as rows name them.
fn tests(source: &Source) -> Vec<String> {
    let file = |path: &str| -> Option<String> {
        let mut parts = path.strip_suffix(".rs")?.rsplit('/');
        let stem = parts.next()?;
        if let Some((room, file)) = path.strip_prefix("tests/").and_then(|inside| inside.split_once('/')) {
            return Some(format!("{room}::{}", file.strip_suffix(".rs")?));
        }
        let mut folder = || parts.find(|part| *part != "src");
        Some(if matches!(stem, "mod" | "tests" | "lib" | "main") { folder()? } else { stem }.to_owned())
    };
    let Some(file) = file(&source.path) else { return Vec::new() };
    let mut found = Vec::new();
    let mut lines = source.text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let attribute = line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let Some(item) = attribute.then(|| lines.find(|line| !line.starts_with("#["))).flatten() else {
            continue;
        };
        let item = item.strip_prefix("async ").unwrap_or(item);
        let name = item.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
        found.extend(name.map(|name| format!("{file}::{name}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn errors(page: &str) -> Vec<String> {
        let sources = [
            source(PAGE, page),
            source(
                "a/src/b.rs",
                "#[test]\nfn one() {}\n    #[tokio::test(start_paused = true)]\n    async fn two() {}\n",
            ),
            source("a/src/c/tests.rs", "#[test]\n#[cfg(unix)]\nfn three() {}\nfn none() {}\n"),
            source("tests/room/d.rs", "#[test]\nfn four() {}\n"),
            source("tests/x.py", ""),
        ];
        let mut report = Report::default();
        check(&sources, &mut report);
        report.errors
    }

    #[test]
    fn a_row_that_names_a_test_which_is_not_there_is_found() {
        let head = "| feature | where | shown by |\n|---|---|---|\n";
        for good in [
            "`b::one`, `b::two`",
            "`c::three`",
            "`room::d::four`",
            "`tests/x.py`",
            "open: issue 12",
            "open: issue 7, the panel",
            "open: no issue yet, the panel",
        ] {
            assert_eq!(errors(&format!("{head}| x | y | {good} |\n")), Vec::<String>::new(), "{good}");
        }
        assert_eq!(errors(&format!("{head}| x | | open: issue 1 |\n")), Vec::<String>::new());
        for bad in [
            "`b::none`",
            "`one`",
            "`c::none`",
            "`b::one`, `b::four`",
            "`d::four`",
            "",
            "soon",
            "open: issue x",
            "open",
        ] {
            assert_eq!(errors(&format!("{head}| x | y | {bad} |\n")).len(), 1, "{bad}");
        }
        assert_eq!(
            errors("| feature | shown by |\n|---|---|\n| a `|` b | `b::one` |\n"),
            Vec::<String>::new()
        );
    }
}
