//! `go test`, also with `-v` and `-json`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::noise::{ClassifiedLines, LineAction, PASSING_TESTS};
use crate::cut::count;
use crate::shape::begins;

/// Drops passing tests; `None` if the text is not output of `go test`.
pub(super) fn test(text: &str, most: usize) -> Option<String> {
    let text = from_json(text).map_or(Cow::Borrowed(text), Cow::Owned);
    let known = |line: &str| {
        begins(line, &["ok  \t", "FAIL\t", "?   \t", "--- FAIL: ", "--- PASS: "])
            || matches!(line, "FAIL" | "PASS")
    };
    if !text.lines().any(known) {
        return None;
    }
    let mut passed: BTreeSet<&str> = BTreeSet::new();
    for line in text.lines() {
        if let Some((_, name)) = result(line).filter(|(failed, _)| !failed) {
            passed.insert(name);
        }
    }
    let packages = text.lines().filter(|line| line.starts_with("ok  \t")).count();
    let (mut current, mut seen) = (None, 0);
    let action = |line| {
        if let Some((verb, name)) = step(line) {
            current = (verb != "PAUSE").then_some(name);
            return if passed.contains(name) || verb != "RUN" { LineAction::Drop } else { LineAction::Keep };
        }
        if let Some((failed, name)) = result(line) {
            current = Some(name);
            return if failed { LineAction::Begin } else { LineAction::Drop };
        }
        if line.starts_with("ok  \t") {
            (current, seen) = (None, seen + 1);
            return match packages {
                1 => LineAction::Keep,
                all if seen < all => LineAction::Drop,
                all => LineAction::Replace(format!("ok  \t({} passed)", count(all, "package"))),
            };
        }
        if begins(line, &["FAIL", "?   \t", "coverage: "]) || line == "PASS" {
            current = None;
            return if line.starts_with("FAIL") { LineAction::Keep } else { LineAction::Drop };
        }
        // The output of a test ends at the next line of `go test`.
        if current.is_some_and(|name| passed.contains(name)) { LineAction::Drop } else { LineAction::Keep }
    };
    Some(ClassifiedLines::new(&text, action).show(PASSING_TESTS, most))
}

/// `=== RUN   TestA/b`.
fn step(line: &str) -> Option<(&str, &str)> {
    let (verb, name) = line.strip_prefix("=== ")?.split_once(' ')?;
    matches!(verb, "RUN" | "PAUSE" | "CONT" | "NAME").then_some((verb, name.trim()))
}

/// Parses `    --- FAIL: TestA/b (0.00s)`: whether the test failed, and its name.
fn result(line: &str) -> Option<(bool, &str)> {
    let (outcome, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
    let (name, time) = rest.rsplit_once(" (")?;
    if !time.ends_with("s)") {
        return None;
    }
    match outcome {
        "FAIL" => Some((true, name)),
        "PASS" | "SKIP" => Some((false, name)),
        _ => None,
    }
}

/// An event of `go test -json` (`go doc test2json`).
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoTestEvent<'a> {
    #[serde(borrow)]
    action: Cow<'a, str>,
    #[serde(borrow, default)]
    package: Cow<'a, str>,
    #[serde(borrow, default)]
    output: Cow<'a, str>,
}

/// Converts the events, package by package, to the form of `go test -v`. `None` if there are no events.
fn from_json(text: &str) -> Option<String> {
    let mut lines = text.lines().filter(|line| line.starts_with('{'));
    lines.next()?;
    let mut other_lines = String::new();
    let mut packages: BTreeMap<Cow<'_, str>, String> = BTreeMap::new();
    let mut events = 0;
    for line in text.lines() {
        match serde_json::from_str::<GoTestEvent<'_>>(line) {
            Ok(event) => {
                events += 1;
                if matches!(&*event.action, "output" | "build-output") {
                    packages.entry(event.package).or_default().push_str(&event.output);
                }
            }
            Err(_) => {
                other_lines.push_str(line);
                other_lines.push('\n');
            }
        }
    }
    (events > 0).then(|| {
        packages.into_values().fold(other_lines, |mut all, package| {
            all.push_str(&package);
            if !all.ends_with('\n') {
                all.push('\n');
            }
            all
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_passing_test_printed_goes_and_what_a_failing_one_printed_stays() {
        let text = "=== RUN   TestA\nfrom a\n--- PASS: TestA (0.00s)\n=== RUN   TestB\nfrom b\n    x_test.go:4: why\n--- FAIL: TestB (0.00s)\n\
                    FAIL\nFAIL\tx/a\t0.1s\nok  \tx/b\t0.1s\nok  \tx/c\t0.1s\nok  \tx/d\t0.2s\nFAIL\n";
        assert_eq!(
            test(text, 1000).unwrap(),
            "[4 lines left out: passing tests and progress]\n=== RUN   TestB\nfrom b\n    x_test.go:4: why\n--- FAIL: TestB (0.00s)\n\
             FAIL\nFAIL\tx/a\t0.1s\nok  \tx/c\t0.1s\nok  \t(3 packages passed)\nFAIL\n"
        );
    }

    #[test]
    fn a_test_that_never_ended_stays() {
        let text = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\npanic: boom\n\ngoroutine 1 [running]:\nmain.go:3\nFAIL\tx\t0.1s\nFAIL\n";
        let shown = test(text, 1000).unwrap();
        assert!(shown.contains("=== RUN   TestB\npanic: boom") && !shown.contains("TestA"), "{shown}");
    }

    #[test]
    fn other_json_is_not_go_s() {
        assert_eq!(test("{\"a\": 1}\n", 1000), None);
        assert_eq!(test("[1]\n", 1000), None);
    }
}
