//! What a person reads of the steps.

use std::path::Path;
use std::time::Duration;

use super::{Outcome, Step, StepResult};

/// The lines of a failed step that are printed. The log has all.
const LAST_LINES: usize = 400;
/// The tests in the list of slow ones.
const SLOWEST: usize = 20;
/// The report of the test runner, below the target folder (`.config/nextest.toml`).
const JUNIT: &str = "nextest/default/junit.xml";

/// Prints the outcome of a step, and its output if it did not pass.
pub(super) fn print_result(result: &StepResult) {
    let StepResult { name, outcome, wall, cpu, log } = result;
    let text = read(log);
    if *outcome != Outcome::Passed {
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default();
        println!("--- {name}: the last lines of `{}`", log.display());
        println!("{}", last.join("\n"));
        println!("---");
    }
    println!("    {name}: {} in {:.0} s, {cpu:.0} s of processor time", word(*outcome), wall.as_secs_f64());
}

/// Prints what each step cost, and the slowest tests.
pub(super) fn print_table(results: &[StepResult], not_run: &[&Step], wall: Duration, target: &Path) {
    println!("\n{:<8}{:>8}{:>8}{:>8}  step", "", "seconds", "cpu", "tests");
    for StepResult { name, outcome, wall, cpu, log } in results {
        let tests = match count_tests(&read(log)) {
            0 => String::new(),
            count => count.to_string(),
        };
        println!("{:<8}{:>8.0}{cpu:>8.0}{tests:>8}  {name}", word(*outcome), wall.as_secs_f64());
    }
    for step in not_run {
        println!("{:<32}  {}", "not run", step.name);
    }
    let cpu: f64 = results.iter().map(|result| result.cpu).sum();
    println!("{:<8}{:>8.0}{cpu:>8.0}{:>8}  all", "", wall.as_secs_f64(), "");
    if results.iter().any(|result| result.name == "tests") {
        println!("\nThe slowest tests, in seconds:");
        for (seconds, name) in slowest(&read(&target.join(JUNIT))) {
            println!("{seconds:>8.1}  {name}");
        }
    }
    let passed = results.iter().filter(|result| result.outcome == Outcome::Passed).count();
    println!("\n{passed} passed, {} failed", results.len() - passed + not_run.len());
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "FAILED",
        Outcome::Hung => "HUNG",
    }
}

/// A log may hold bytes of programs that are not UTF-8.
fn read(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
}

/// The tests that cargo and nextest say have passed.
fn count_tests(log: &str) -> usize {
    let before = |line: &str, word: &str| line.split_once(word)?.0.rsplit(' ').next()?.parse::<usize>().ok();
    let count = |line: &str| match line.trim_start() {
        line if line.starts_with("Summary [") => before(line, " passed"),
        line if line.starts_with("test result: ") => before(line, " passed;"),
        _ => None,
    };
    log.lines().filter_map(count).sum()
}

/// The slowest tests of a JUnit report.
fn slowest(report: &str) -> Vec<(f64, String)> {
    let value =
        |tag: &str, key: &str| Some(tag.split_once(&format!(" {key}=\""))?.1.split_once('"')?.0.to_owned());
    let cases = report.split("<testcase").skip(1).filter_map(|tag| {
        let name = format!("{} {}", value(tag, "classname")?, value(tag, "name")?);
        Some((value(tag, "time")?.parse().ok()?, name))
    });
    let mut cases: Vec<(f64, String)> = cases.collect();
    cases.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    cases.truncate(SLOWEST);
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_counted() {
        let log = "     Summary [   1.058s] 75 tests run: 73 passed (1 slow), 2 failed, 3 skipped\n\
                   test result: ok. 12 passed; 0 failed; 0 ignored\ntest result: FAILED. 1 passed; 1 failed\n";
        assert_eq!(count_tests(log), 86);
        assert_eq!(count_tests("nothing"), 0);
    }

    #[test]
    fn the_slowest_test_comes_first() {
        let report = r#"<testcase name="a::b" classname="toolbay" timestamp="x" time="0.5"></testcase>
            <testcase name="c" classname="all" timestamp="x" time="12.25">"#;
        assert_eq!(slowest(report), [(12.25, "all c".to_owned()), (0.5, "toolbay a::b".to_owned())]);
    }
}
