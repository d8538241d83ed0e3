//! `pytest` and `unittest`.

use super::noise::{ClassifiedLines, LineAction, PASSING_TESTS};
use crate::shape::{begins, digits};

/// Header lines with environment details only.
const HEADER: [&str; 7] = [
    "platform ",
    "cachedir: ",
    "rootdir: ",
    "configfile: ",
    "plugins: ",
    "collecting ",
    "hypothesis profile ",
];

/// Drops passing tests; `None` if there is no summary.
pub(super) fn pytest(text: &str, most: usize) -> Option<String> {
    if !text.lines().any(is_summary) {
        return None;
    }
    let mut section = "test session starts";
    let action = |line| {
        if let Some(title) = title(line) {
            section = title;
            let dropped = title == "test session starts" || title == "PASSES";
            return if dropped { LineAction::Drop } else { LineAction::Keep };
        }
        match section {
            "test session starts" if is_progress(line) => LineAction::Drop,
            "PASSES" => LineAction::Drop,
            "FAILURES" | "ERRORS" if line.starts_with("____") && line.ends_with("____") => LineAction::Begin,
            _ => LineAction::Keep,
        }
    };
    Some(ClassifiedLines::new(text, action).show(PASSING_TESTS, most))
}

/// `=== FAILURES ===`.
fn title(line: &str) -> Option<&str> {
    let inside = line.strip_prefix("===")?.strip_suffix("===")?.trim_matches('=');
    inside.strip_prefix(' ')?.strip_suffix(' ')
}

/// `=== 2 failed, 61 passed in 0.52s ===`, and the same without the bars.
fn is_summary(line: &str) -> bool {
    let line = line.trim_matches(['=', ' ']);
    let Some((counts, time)) = line.rsplit_once(" in ") else { return false };
    let is_time = digits(time).is_some_and(|(_, rest)| rest.starts_with('.') && rest.contains('s'));
    let ends = [
        "passed",
        "failed",
        "error",
        "errors",
        "skipped",
        "deselected",
        "xfailed",
        "xpassed",
        "warnings",
        "warning",
        "rerun",
    ];
    let counted = digits(counts).is_some() && ends.iter().any(|end| counts.ends_with(end));
    is_time && (counted || counts == "no tests ran")
}

fn is_progress(line: &str) -> bool {
    if begins(line, &HEADER) {
        return true;
    }
    if line.starts_with("collected ") {
        return !line.contains("error");
    }
    let (line, worker) = match line.strip_prefix("[gw").and_then(|rest| rest.split_once("] ")) {
        Some((_, rest)) => (rest, true),
        None => (line, false),
    };
    let outcome = |word: &str| ["PASSED", "SKIPPED", "XFAIL", "XPASS"].contains(&word);
    // `[gw0] [ 50%] PASSED a.py::test` and `a.py::test PASSED [ 50%]`
    if worker {
        return line.split_once("] ").and_then(|(_, rest)| rest.split(' ').next()).is_some_and(outcome);
    }
    let (line, percent) = match line.trim_end().strip_suffix("%]").and_then(|line| line.rsplit_once('[')) {
        Some((line, _)) => (line.trim_end(), true),
        None => (line, false),
    };
    if let Some((_, rest)) = line.split_once("::") {
        return percent && rest.split_ascii_whitespace().any(outcome) && !line.contains(" FAILED");
    }
    // `a.py ...s.x`: a letter for each test, without a failure.
    let (file, dots) = line.rsplit_once(' ').unwrap_or(("", line));
    let passes = !dots.is_empty() && dots.chars().all(|c| matches!(c, '.' | 's' | 'x' | 'X' | 'p' | 'P'));
    passes && (percent || file.trim_end().ends_with(".py"))
}

/// Drops passing tests; `None` if there is no summary.
pub(super) fn unittest(text: &str, most: usize) -> Option<String> {
    let finished = |line: &str| {
        line.strip_prefix("Ran ").is_some_and(|rest| rest.contains(" test") && rest.contains(" in "))
    };
    if !text.lines().any(finished) {
        return None;
    }
    let mut failures = false;
    let action = |line: &str| {
        failures |= line.len() > 20 && line.chars().all(|c| c == '=');
        let outcome = line.rsplit_once(" ... ").map_or("", |(_, outcome)| outcome);
        let passes = outcome == "ok" || begins(outcome, &["skipped ", "expected failure"]);
        let dots = !line.is_empty() && line.chars().all(|c| matches!(c, '.' | 's' | 'x'));
        match failures {
            true if begins(line, &["FAIL: ", "ERROR: "]) => LineAction::Begin,
            false if passes || dots => LineAction::Drop,
            _ => LineAction::Keep,
        }
    };
    Some(ClassifiedLines::new(text, action).show(PASSING_TESTS, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_known() {
        for line in [
            "===== 2 failed, 61 passed, 1 skipped, 2 warnings in 0.52s =====",
            "1 passed in 0.01s",
            "== 3 passed in 65.21s (0:01:05) ==",
            "= no tests ran in 0.00s =",
            "1 error in 0.10s",
        ] {
            assert!(is_summary(line), "{line}");
        }
        for line in ["", "it passed in 3 of 4", "2 cats in 0.1s", "passed in 0.1s", "=== FAILURES ==="] {
            assert!(!is_summary(line), "{line}");
        }
    }

    #[test]
    fn progress_without_a_failure_is_noise() {
        for line in [
            "a.py ....s.x [ 50%]",
            "a.py ....                                     [100%]",
            "a.py ...",
            "a.py::test_b PASSED [ 3%]",
            "a.py::test_b[x y] SKIPPED (later)   [ 3%]",
            "[gw1] [ 50%] PASSED a.py::test_b",
            "........................ [ 98%]",
            "collected 64 items",
        ] {
            assert!(is_progress(line), "{line}");
        }
        for line in [
            "a.py ..F. [ 50%]",
            "a.py::test_b FAILED [ 3%]",
            "[gw1] [ 50%] FAILED a.py::test_b",
            "collected 0 items / 1 error",
            "PASSED",
            "some print",
            "a.py::test_b says PASSED",
            "",
        ] {
            assert!(!is_progress(line), "{line}");
        }
    }
}
