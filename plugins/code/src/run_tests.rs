//! `run_tests`.

use toolbay_sdk::prelude::*;

use crate::check::{self, CheckOutput};
use crate::setup;

/// The most failed tests that are listed.
const MAX_FAILED: usize = 100;

/// The result of a test run.
#[data]
#[derive(Debug, PartialEq)]
pub struct TestReport {
    /// Whether all tests passed: exit code 0.
    pub clean: bool,
    /// The program's exit code; absent when a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How many tests passed, failed and were skipped, if the program prints summaries.
    pub counts: TestCounts,
    /// The failed tests, if the program prints a line for each.
    pub failed: Vec<String>,
    /// Whether the host truncated the output.
    pub truncated: bool,
}

/// The sums of all summaries.
#[data]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TestCounts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed or could not run.
    pub failed: u64,
    /// Tests that were skipped.
    pub skipped: u64,
}

/// Run the project's tests, or some of them. That tests fail is a result, not a failure.
#[tool(
    toolset = "code", tags = ["process"], untrusted_output,
    process = "*", reason = "runs the tests with the program that the operator chose",
    optional(fs_read = "**", reason = "tests read the code"),
    optional(fs_write = "**", reason = "tests write files"),
)]
pub fn run_tests(
    /// Names or parts of names of tests, as the project's test program takes them.
    #[arg(default = Vec::new())]
    filter: Vec<String>,
    /// Files or folders, if not everything.
    #[arg(default = Vec::new())]
    paths: Vec<String>,
    /// Which tests, if there are several sets: the operator's name for it.
    of: Option<String>,
    /// End it after this many milliseconds.
    #[arg(range(min = 1))]
    timeout_ms: Option<u32>,
) -> Result<Rendered<TestReport>> {
    setup::check("filter", &filter)?;
    setup::check("paths", &paths)?;
    let command = setup::command("run_tests", of.as_deref(), &[("filter", &filter), ("paths", &paths)])?;
    let said = check::run(command, timeout_ms)?;
    let data = tested(&said);
    let TestCounts { passed, failed, skipped } = data.counts;
    let how = if data.clean { "Passed" } else { "Failed" };
    let text = said.shown(&format!("{how}: {passed} passed, {failed} failed, {skipped} left out."));
    Ok(Rendered { text, data })
}

fn tested(said: &CheckOutput) -> TestReport {
    let mut counts = TestCounts::default();
    let mut failed: Vec<String> = Vec::new();
    for line in said.text.lines() {
        if is_summary(line) {
            add(line, &mut counts);
        } else if let Some(name) = failed_test(line)
            && failed.len() < MAX_FAILED
            && !failed.iter().any(|known| known == name)
        {
            failed.push(name.to_owned());
        }
    }
    TestReport { clean: said.clean(), exit_code: said.exit_code, counts, failed, truncated: said.truncated }
}

/// `test result: ok. 3 passed; …` of Rust, `=== 1 failed, 2 passed in 0.1s ===` of pytest, `Tests: 1 failed, 2 passed` of Jest.
fn is_summary(line: &str) -> bool {
    let line = line.trim_start_matches(['=', ' ']);
    let counts = || line.split_once(' ').is_some_and(|(number, _)| number.parse::<u64>().is_ok());
    let takes_time =
        || line.rsplit_once(" in ").is_some_and(|(_, time)| time.starts_with(|c: char| c.is_ascii_digit()));
    line.starts_with("test result:") || line.starts_with("Tests:") || (counts() && takes_time())
}

/// Adds the numbers before words that name what they count.
fn add(line: &str, counts: &mut TestCounts) {
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    for pair in words.windows(2) {
        let [number, word] = pair else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        let sum = match *word {
            "passed" => &mut counts.passed,
            "failed" | "error" | "errors" => &mut counts.failed,
            "ignored" | "skipped" | "todo" | "deselected" | "xfailed" => &mut counts.skipped,
            _ => continue,
        };
        *sum = sum.saturating_add(number);
    }
}

/// The name in `test a::b ... FAILED` of Rust, `FAILED tests/a.py::b - why` of pytest, `--- FAIL: TestB (0.1s)` of Go.
fn failed_test(line: &str) -> Option<&str> {
    let rust = || line.strip_prefix("test ")?.strip_suffix(" ... FAILED");
    let pytest = || line.strip_prefix("FAILED ")?.split(" - ").next();
    let go = || line.trim_start().strip_prefix("--- FAIL: ")?.split(' ').next();
    rust().or_else(pytest).or_else(go).map(str::trim).filter(|name| !name.is_empty() && name.len() <= 300)
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::process::Completed;
    use toolbay_sdk::serde_json::{Value, from_str};
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;

    fn counted(text: &str) -> (u64, u64, u64, Vec<String>) {
        let said = CheckOutput { exit_code: Some(1), text: text.to_owned(), truncated: false };
        let TestReport { counts, failed, .. } = tested(&said);
        (counts.passed, counts.failed, counts.skipped, failed)
    }

    #[test]
    fn summaries_of_many_are_understood() {
        let rust = "test a::b ... ok\ntest a::c ... FAILED\n\ntest result: FAILED. 4 passed; 1 failed; 2 ignored; 0 measured; 9 \
                    filtered out\ntest result: ok. 3 passed; 0 failed; 0 ignored\n";
        assert_eq!(counted(rust), (7, 1, 2, vec!["a::c".to_owned()]));
        let pytest =
            "FAILED tests/a.py::test_b - assert 1 == 2\n==== 1 failed, 5 passed, 2 skipped in 0.12s ====\n";
        assert_eq!(counted(pytest), (5, 1, 2, vec!["tests/a.py::test_b".to_owned()]));
        assert_eq!(counted("Tests:       1 failed, 2 passed, 3 total"), (2, 1, 0, vec![]));
        assert_eq!(
            counted("--- FAIL: TestB (0.01s)\n    --- FAIL: TestB/sub (0.00s)\nFAIL").3,
            ["TestB", "TestB/sub"]
        );
        assert_eq!(counted("3 passed the door, in all\nnothing"), (0, 0, 0, vec![]));
    }

    #[test]
    fn tests_run_as_the_operator_said() {
        let fake = FakeHost::new().config("run_tests", json!(["cargo", "test", "--", "{filter}"])).program(
            "cargo",
            |_| {
                Completed::of(
                    101,
                    "test x ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n",
                    "",
                )
            },
        );
        let output = fake.run(|| call::<run_tests>(json!({"filter": ["x"]}))).unwrap();
        assert!(output.value.starts_with("Failed: 1 passed, 1 failed, 0 left out.\n"), "{}", output.value);
        let data: Value = from_str(&output.structured.unwrap()).unwrap();
        assert_eq!((&data["clean"], &data["failed"]), (&json!(false), &json!(["x"])));
        assert_eq!(fake.commands()[0].args, ["test", "--", "x"]);
        let error = fake.run(|| call::<run_tests>(json!({"paths": ["a"]}))).unwrap_err();
        assert_eq!(error.subject(), Some("/paths"), "there is no place for paths");
    }
}
