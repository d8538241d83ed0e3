//! `vitest`, `jest`, `mocha`, `node --test` and other TAP producers.

use super::noise::{ClassifiedLines, LineAction, PASSING_TESTS};
use crate::shape::{begins, digits, indent};

/// After these lines, only failures and the summary follow.
const FAILURES: [&str; 5] =
    ["⎯⎯⎯⎯⎯⎯⎯ Failed ", "⎯⎯⎯⎯⎯⎯ Failed ", "✖ failing tests:", "Test Files ", "Test Suites: "];

/// Drops passing tests; `None` if there is no summary.
pub(super) fn test(text: &str, most: usize) -> Option<String> {
    if !text.lines().any(is_summary) {
        return None;
    }
    let mut reader = SuiteReader::default();
    let mut lines: Vec<(&str, LineAction)> = text.lines().map(|line| (line, reader.action(line))).collect();
    drop_empty_headings(&mut lines);
    Some(ClassifiedLines::of(lines).show(PASSING_TESTS, most))
}

fn is_summary(line: &str) -> bool {
    let line = line.trim_start();
    let counted =
        |start: &str| line.strip_prefix(start).is_some_and(|rest| digits(rest.trim_start()).is_some());
    let number_then = |word: &str| digits(line).is_some_and(|(_, rest)| rest.trim_start().starts_with(word));
    ["Test Files ", "Tests ", "Tests:", "Test Suites:", "ℹ tests ", "# tests "]
        .iter()
        .any(|start| counted(start))
        || number_then("passing (")
        || number_then("tests passed")
        || number_then("tests failed")
}

/// The section of the output that a line belongs to.
#[derive(Debug, Default)]
struct SuiteReader {
    /// The failures at the end.
    failures: bool,
    /// The report of a failure by jest.
    bullet: bool,
    /// The notes below a TAP line, with their indentation and whether their test passed.
    notes: Option<(usize, bool)>,
}

impl SuiteReader {
    fn action(&mut self, line: &str) -> LineAction {
        let trimmed = line.trim_start();
        self.failures |= begins(trimmed, &FAILURES) || is_failing_count(trimmed);
        if let Some(action) = self.note(line) {
            return action;
        }
        if begins(line, &["PASS ", "FAIL "]) {
            self.bullet = false;
        } else if trimmed.starts_with("● ") {
            self.bullet = true;
            return LineAction::Begin;
        }
        if trimmed.starts_with("not ok ") {
            self.notes = Some((indent(line), false));
            return LineAction::Begin;
        }
        if self.failures || self.bullet {
            let begins_one = begins(line, &[" FAIL ", "test at "])
                || line.starts_with("  ") && digits(trimmed).is_some_and(|(_, rest)| rest.starts_with(") "));
            return if begins_one { LineAction::Begin } else { LineAction::Keep };
        }
        if is_tap_pass(trimmed) {
            self.notes = Some((indent(line), true));
            return LineAction::Drop;
        }
        let passes = begins(trimmed, &["✓ ", "✔ ", "√ ", "↓ ", "﹣ ", "○ skipped", "# Subtest: "])
            || line.starts_with("PASS ");
        if passes { LineAction::Drop } else { LineAction::Keep }
    }

    /// The block of notes below a TAP line: `  ---` to `  ...`.
    fn note(&mut self, line: &str) -> Option<LineAction> {
        let (depth, passed) = self.notes?;
        let inside = indent(line) > depth || line.trim().is_empty();
        if !inside || (line.trim() == "..." && indent(line) == depth + 2) {
            self.notes = None;
        }
        inside.then_some(if passed { LineAction::Drop } else { LineAction::Keep })
    }
}

/// `1 failing`, of mocha.
fn is_failing_count(trimmed: &str) -> bool {
    digits(trimmed).is_some_and(|(_, rest)| rest == " failing")
}

/// `ok 1 - adds`.
fn is_tap_pass(trimmed: &str) -> bool {
    let number = trimmed.strip_prefix("ok ").and_then(digits);
    number.is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with(' '))
}

/// A heading in the tree of tests.
struct SuiteHeading {
    index: usize,
    indent: usize,
    has_pass: bool,
    has_kept: bool,
}

/// Drops the headings of groups in which everything passed.
fn drop_empty_headings(lines: &mut [(&str, LineAction)]) {
    let mut above: Vec<SuiteHeading> = Vec::new();
    let mut empty: Vec<usize> = Vec::new();
    let mut close = |above: &mut Vec<SuiteHeading>| {
        let Some(done) = above.pop() else { return };
        let is_empty = done.has_pass && !done.has_kept;
        if is_empty {
            empty.push(done.index);
        }
        if let Some(parent) = above.last_mut() {
            parent.has_pass |= is_empty;
            parent.has_kept |= !is_empty;
        }
    };
    for (index, (line, action)) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let indent = indent(line);
        while above.last().is_some_and(|heading| heading.indent >= indent) {
            close(&mut above);
        }
        match action {
            LineAction::Drop => above.iter_mut().rev().take(1).for_each(|heading| heading.has_pass = true),
            // The command that npm prints is not a heading.
            _ => {
                above.push(SuiteHeading { index, indent, has_pass: false, has_kept: line.starts_with("> ") });
            }
        }
    }
    while !above.is_empty() {
        close(&mut above);
    }
    for index in empty {
        if let Some((_, action)) = lines.get_mut(index) {
            *action = LineAction::Drop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_known() {
        for line in [
            " Test Files  1 failed | 1 passed (2)",
            "      Tests  2 passed (2)",
            "Tests:       2 failed, 31 passed, 33 total",
            "  22 passing (79ms)",
            "ℹ tests 20",
            "# tests 20",
            "  4 tests passed",
        ] {
            assert!(is_summary(line), "{line}");
        }
        for line in ["Tests are fine", "passing", "# tests", "12 passing grades", ""] {
            assert!(!is_summary(line), "{line}");
        }
    }

    #[test]
    fn headings_of_what_passed_go() {
        let text =
            "▶ fine\n  ▶ inner\n    ✔ a (1ms)\n▶ bad\n  ✔ b\n  ✖ c\n    why\nℹ tests 3\nℹ pass 2\nℹ fail 1\n";
        let shown = test(text, 1000).unwrap();
        assert_eq!(
            shown,
            "[4 lines left out: passing tests and progress]\n▶ bad\n  ✖ c\n    why\nℹ tests 3\nℹ pass 2\nℹ fail 1\n"
        );
    }

    #[test]
    fn what_looks_like_a_pass_in_a_failure_stays() {
        let text = "FAIL ./a.test.js\n  ● a\n\n    Received:\n    ✓ not a test\n\nPASS ./b.test.js\n  ✓ b\n\n\
                    Tests:       1 failed, 1 passed, 2 total\nTime:  1 s\nRan all test suites.\n";
        let shown = test(text, 1000).unwrap();
        assert!(shown.contains("✓ not a test") && !shown.contains("✓ b"), "{shown}");
    }

    #[test]
    fn tap_keeps_the_notes_of_failures() {
        let text = "TAP version 13\n# Subtest: a\nok 1 - a\n  ---\n  duration_ms: 1\n  ...\n# Subtest: b\nnot ok 2 - b\n  ---\n  \
                    error: |-\n    ok 3 - not a test\n  stack: x\n  ...\n1..2\n# tests 2\n# pass 1\n# fail 1\n";
        let shown = test(text, 1000).unwrap();
        assert!(
            shown
                .contains("not ok 2 - b\n  ---\n  error: |-\n    ok 3 - not a test\n  stack: x\n  ...\n1..2"),
            "{shown}"
        );
        assert!(!shown.contains("duration_ms") && !shown.contains("ok 1"), "{shown}");
    }
}
