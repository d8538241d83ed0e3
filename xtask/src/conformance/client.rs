//! The client side: the scenarios of the suite against the bridge, driven by `tests/conformance/client.rs`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The client under test, an example of the package of tests.
const CLIENT: &str = "mcp_client";
/// The scenarios that do not apply or do not pass, with the reason. A listed scenario that passes is an error.
pub(crate) const EXPECTED: &str = "tests/conformance/client-expected.txt";
/// The timeout of one scenario, in milliseconds.
const TIMEOUT_MS: &str = "60000";

/// The outcome of the scenarios of one revision.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Scenarios whose outcome contradicts the file, with their output.
    pub(crate) surprises: Vec<String>,
}

/// The scenarios of a revision: all that it requires of a client.
fn scenarios(suite: &[String], revision: &str) -> Result<Vec<String>> {
    let (program, rest) = suite.split_first().context("no command of the suite")?;
    let listed = Command::new(program).args(rest).args(["list", "--requirements", revision]).output()?;
    let text =
        String::from_utf8_lossy(&listed.stdout).into_owned() + &String::from_utf8_lossy(&listed.stderr);
    let of_client = text.lines().skip_while(|line| !line.starts_with("Client scenarios")).skip(1);
    let names: Vec<String> =
        of_client.map_while(|line| line.strip_prefix("  - ")).map(|name| name.trim().to_owned()).collect();
    if names.is_empty() {
        bail!("the suite lists no client scenarios for {revision}:\n{text}");
    }
    Ok(names)
}

/// The lines of the file for a revision: scenario or prefix ending in `*`, and the reason.
fn expected(workspace: &Path, revision: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(workspace.join(EXPECTED)).with_context(|| EXPECTED.to_owned())?;
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let mut found = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let (Some(of), Some(scenario), Some(_)) = (words.next(), words.next(), words.next()) else {
            bail!("{EXPECTED}: `{line}`: write the revision, the scenario and the reason");
        };
        if of == revision {
            found.push(scenario.to_owned());
        }
    }
    Ok(found)
}

fn is_expected(expected: &[String], scenario: &str) -> bool {
    expected.iter().any(|one| match one.strip_suffix('*') {
        Some(prefix) => scenario.starts_with(prefix),
        None => one == scenario,
    })
}

/// Runs the client scenarios of a revision. `suite` is the command that starts the suite's program; the client must be
/// built (`cargo build --example mcp_client`).
pub(crate) fn run(workspace: &Path, target: &Path, suite: &[String], revision: &str) -> Result<Tally> {
    let client = target.join("debug/examples").join(format!("{CLIENT}{}", std::env::consts::EXE_SUFFIX));
    let expected = expected(workspace, revision)?;
    let (program, rest) = suite.split_first().context("no command of the suite")?;
    let mut tally = Tally::default();
    for scenario in scenarios(suite, revision)? {
        let run = Command::new(program)
            .args(rest)
            .args(["client", "--scenario", &scenario, "--spec-version", revision, "--timeout", TIMEOUT_MS])
            .arg("--command")
            .arg(&client)
            .current_dir(target)
            .output()?;
        let passed = run.status.success();
        println!("    {}  {scenario}", if passed { "passed" } else { "FAILED" });
        if passed {
            tally.passed += 1;
        } else {
            tally.failed += 1;
        }
        if passed == is_expected(&expected, &scenario) {
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            let what = if passed { "passes, and is expected to fail" } else { "fails" };
            tally.surprises.push(format!("{scenario} {what}\n{said}"));
        }
    }
    Ok(tally)
}
