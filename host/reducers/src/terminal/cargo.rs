//! `cargo test` and `cargo nextest`.

use super::compiler;
use super::noise::{ClassifiedLines, LineAction, PASSING_TESTS};

/// Drops passing tests. A failed build is reduced like a build.
pub(super) fn test(text: &str, most: usize) -> Option<String> {
    let finished = text.lines().any(|line| line.starts_with("test result: ") || is_nextest_summary(line));
    if !finished {
        return compiler::cargo(text, most);
    }
    let passing_suites = passing_suites(text);
    let total = PassedSuites::of(text);
    let (mut failures, mut trace) = (false, StackTrace::default());
    let lines: Vec<&str> = text.lines().collect();
    let mut seen = 0;
    let sorted = lines.iter().enumerate().map(|(index, line)| {
        if line.starts_with("test result: ") {
            failures = false;
        } else if *line == "failures:" {
            failures = true;
        }
        let next = lines.get(index + 1).copied().unwrap_or_default();
        let action = if failures {
            trace.action(line, next)
        } else if line.starts_with("test result: ok. ") {
            seen += 1;
            total.action(seen)
        } else {
            outside(line, passing_suites.get(index) == Some(&true))
        };
        (*line, action)
    });
    Some(ClassifiedLines::of(sorted.collect()).show(PASSING_TESTS, most))
}

fn outside(line: &str, passing_suite: bool) -> LineAction {
    let trimmed = line.trim_start();
    let passes =
        line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")).is_some_and(|(_, outcome)| {
            outcome == "ok" || outcome.starts_with("ok <") || outcome.starts_with("ignored")
        });
    let runs = line.strip_prefix("running ").is_some_and(|rest| rest.ends_with(" tests") || rest == "1 test");
    let nextest = trimmed.starts_with("PASS [") || trimmed.starts_with("SKIP [");
    match () {
        () if passes || runs || nextest || passing_suite || compiler::is_progress(line) => LineAction::Drop,
        () if trimmed.starts_with("FAIL [") || line.starts_with("error") => LineAction::Begin,
        () => LineAction::Keep,
    }
}

/// For each line: whether it is the heading of a suite that passed. An unfinished suite has not passed.
fn passing_suites(text: &str) -> Vec<bool> {
    let mut passed = false;
    let mut marks: Vec<bool> = text
        .lines()
        .rev()
        .map(|line| {
            if line.starts_with("test result: ") {
                passed = line.starts_with("test result: ok. ");
            }
            let heading = line.starts_with("     Running ") || line.starts_with("   Doc-tests ");
            heading && std::mem::take(&mut passed)
        })
        .collect();
    marks.reverse();
    marks
}

fn is_nextest_summary(line: &str) -> bool {
    line.trim_start()
        .strip_prefix("Summary [")
        .is_some_and(|rest| rest.contains("tests run") || rest.contains("test run"))
}

/// The totals of the passing suites.
#[derive(Debug, Default)]
struct PassedSuites {
    suites: usize,
    passed: u64,
    ignored: u64,
}

impl PassedSuites {
    fn of(text: &str) -> Self {
        let mut total = Self::default();
        for counts in text.lines().filter_map(|line| line.strip_prefix("test result: ok. ")) {
            let number = |what: &str| -> u64 {
                let part = counts.split("; ").find_map(|part| part.strip_suffix(what));
                part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
            };
            total.suites += 1;
            total.passed = total.passed.saturating_add(number(" passed"));
            total.ignored = total.ignored.saturating_add(number(" ignored"));
        }
        total
    }

    /// A single result is unchanged. The last of several stands for all.
    fn action(&self, seen: usize) -> LineAction {
        match self.suites {
            1 => LineAction::Keep,
            all if seen < all => LineAction::Drop,
            all => LineAction::Replace(format!(
                "test result: ok. {} passed; 0 failed; {} ignored; in {all} suites",
                self.passed, self.ignored
            )),
        }
    }
}

/// A stack trace, whose frames in the standard library are dropped.
#[derive(Debug, Default)]
struct StackTrace {
    inside: bool,
    skip: bool,
}

impl StackTrace {
    /// The action for a line among the failures, given the next line.
    fn action(&mut self, line: &str, next: &str) -> LineAction {
        if std::mem::take(&mut self.skip) {
            return LineAction::Drop;
        }
        if line == "stack backtrace:" {
            self.inside = true;
        } else if self.inside {
            let trimmed = line.trim_start();
            let frame = crate::shape::digits(trimmed).is_some_and(|(_, rest)| rest.starts_with(": "));
            self.inside = trimmed.len() < line.len() && (frame || trimmed.starts_with("at "));
            if frame && next.trim_start().starts_with("at /rustc/") {
                self.skip = true;
                return LineAction::Drop;
            }
        }
        if line.starts_with("---- ") { LineAction::Begin } else { LineAction::Keep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_never_ended_keeps_its_heading_and_its_last_lines() {
        let passing: String = (0..20).map(|n| format!("test a{n} ... ok\n")).collect();
        let text = format!(
            "     Running unittests src/lib.rs (x)\n\nrunning 20 tests\n{passing}\ntest result: ok. 20 passed; 0 failed; 0 ignored\n\n     \
             Running tests/b.rs (y)\n\nrunning 3 tests\ntest b1 ... ok\ntest b2 ... ok\ntest b3 ... ok\n\
             error: test failed\n\nCaused by:\n  process didn't exit successfully (signal: 11, SIGSEGV)\n"
        );
        let shown = test(&text, 10_000).unwrap();
        assert!(!shown.contains("src/lib.rs") && !shown.contains("test a1 "), "{shown}");
        assert!(shown.contains("Running tests/b.rs") && shown.contains("SIGSEGV"), "{shown}");
    }

    #[test]
    fn what_a_failing_test_prints_is_not_taken_for_a_pass() {
        let text = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\ntest x ... ok\n   Compiling\n\n\
                    failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n\nerror: test failed\n";
        let shown = test(text, 10_000).unwrap();
        assert!(shown.contains("test x ... ok\n   Compiling\n") && !shown.contains("test a"), "{shown}");
    }

    #[test]
    fn nextest_keeps_failures_and_its_summary() {
        let text = "   Compiling a v0.1.0\n    Finished `test` profile\n    Starting 3 tests across 1 binary\n        \
                    PASS [   0.005s] a tests::ok\n        FAIL [   0.006s] a tests::bad\n──── STDOUT: a tests::bad\n\n\
                    panicked at src/lib.rs:1:1\n\n     Summary [   0.010s] 2 tests run: 1 passed, 1 failed, 0 skipped\n        \
                    FAIL [   0.006s] a tests::bad\nerror: test run failed\n";
        let shown = test(text, 10_000).unwrap();
        assert!(!shown.contains("PASS") && !shown.contains("Compiling"), "{shown}");
        for kept in ["FAIL [", "panicked at src/lib.rs:1:1", "Summary [", "error: test run failed"] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
    }
}
