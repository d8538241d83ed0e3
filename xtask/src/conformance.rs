//! `conformance`: the official conformance suite of MCP against a fixture server and a client, for both eras of the protocol.
//!
//! The suite ships the frozen list of scenarios that a revision requires of a client and of a server. All must pass, and also
//! the optional ones for servers. `tests/conformance/expected-failures.yml` lists known failures of the server; a listed scenario
//! that passes is an error.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::cargo;
use crate::folder::read_text;
use crate::foreign::NodeRuntime;
use crate::programs::{RunningProgram, announced};

/// The protocol revisions to check.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];
/// The suite's entry point.
const SUITE: &str = "@modelcontextprotocol/conformance/dist/index.js";
/// The folder of the suite that lists the required scenarios, as `REVISION.yaml`.
const REQUIREMENTS: &str = "@modelcontextprotocol/conformance/requirements";
/// The timeout of one scenario of a client, in milliseconds.
const TIMEOUT_MS: &str = "60000";

/// A scenario that ran.
#[derive(Debug, PartialEq, Eq)]
struct Scenario<'a> {
    name: &'a str,
    passed: bool,
}

/// Runs all scenarios of both revisions, of servers and of clients.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let server = run_server(workspace);
    run_client(workspace).and(server)
}

/// Installs the suite if it is missing.
pub(crate) fn suite(workspace: &Path) -> Result<NodeRuntime> {
    NodeRuntime::with(workspace, "npm-conformance", &workspace.join("tests/conformance"))
}

/// Runs the required client scenarios of both revisions against the bridge, each by itself: the suite then fails as well if the
/// client does.
fn run_client(workspace: &Path) -> Result<()> {
    let node = suite(workspace)?;
    let client = cargo::example(workspace, "mcp_client");
    let mut failed = Vec::new();
    for revision in REVISIONS {
        let scenarios = required(&node, revision, "client")?;
        for scenario in &scenarios {
            let mut run = node.run(SUITE);
            run.args(["client", "--scenario", scenario, "--spec-version", revision, "--timeout", TIMEOUT_MS]);
            run.arg("--command").arg(&client).current_dir(wasm::target_dir(workspace));
            let output = run.output().context("cannot run the suite")?;
            let passed = output.status.success();
            println!("    {}  {scenario}", if passed { "passed" } else { "FAILED" });
            if !passed {
                failed.push(format!("{revision} {scenario}\n{}", String::from_utf8_lossy(&output.stderr)));
            }
        }
        println!("{revision}, as a client: {} scenarios", scenarios.len());
    }
    ensure!(failed.is_empty(), "the client failed {} scenarios:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}

/// Runs the server scenarios of both revisions against the fixture, which holds nothing that needs an orderly shutdown.
fn run_server(workspace: &Path) -> Result<()> {
    let node = suite(workspace)?;
    let mut fixture = Command::new(cargo::example(workspace, "conformance_server"));
    let mut fixture = RunningProgram::start(fixture.stdout(Stdio::piped()))?;
    let address = announced(fixture.child.stdout.take().context("the fixture has no stdout")?, "http://")?;
    let mut good = true;
    for revision in REVISIONS {
        let results = wasm::target_dir(workspace).join("conformance").join(revision);
        crate::folder::emptied(&results)?;
        let mut suite = node.run(SUITE);
        suite.args(["server", "--url", &format!("http://{address}"), "--requirements", revision]);
        suite.arg("--expected-failures").arg(workspace.join("tests/conformance/expected-failures.yml"));
        let output = suite.arg("--output-dir").arg(&results).stderr(Stdio::inherit()).output();
        let output = output.context("cannot run the suite")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let ran = scenarios(&text);
        let required = required(&node, revision, "server")?;
        let (scored, optional): (Vec<_>, Vec<_>) =
            ran.iter().partition(|scenario| required.iter().any(|name| name == scenario.name));
        let passed = |all: &[&Scenario<'_>]| all.iter().filter(|scenario| scenario.passed).count();
        println!(
            "{revision}: {} of {} scenarios passed, and {} of {} optional ones",
            passed(&scored),
            required.len(),
            passed(&optional),
            optional.len()
        );
        if !output.status.success() || scored.len() != required.len() || passed(&optional) != optional.len() {
            println!("{text}");
            complaints(&results).iter().for_each(|line| println!("    {revision}: {line}"));
            good = false;
        }
    }
    ensure!(good, "the suite found failures that `expected-failures.yml` does not list");
    Ok(())
}

/// The scenarios that a revision requires of a `client` or a `server`.
fn required(node: &NodeRuntime, revision: &str, side: &str) -> Result<Vec<String>> {
    let file = node.file(&format!("{REQUIREMENTS}/{revision}.yaml"));
    let list = read_text(&file)?;
    let names = items(&list, side);
    ensure!(!names.is_empty(), "`{}` requires nothing of a {side}", file.display());
    Ok(names)
}

/// The items below a key of a YAML file.
fn items(list: &str, key: &str) -> Vec<String> {
    let lines = list.lines().skip_while(|line| line.strip_suffix(':') != Some(key)).skip(1);
    lines.map_while(|line| line.strip_prefix("  - ")).map(|name| name.trim().to_owned()).collect()
}

/// The scenarios in the summary of the suite: `✓ NAME: 2 passed, 0 failed`.
fn scenarios(text: &str) -> Vec<Scenario<'_>> {
    let scenario = |line| {
        let (mark, rest) = str::trim(line).split_once(' ')?;
        let (name, counts) = rest.split_once(": ")?;
        let is_scenario = matches!(mark, "✓" | "✗") && counts.contains(" passed, ");
        is_scenario.then_some(Scenario { name, passed: mark == "✓" })
    };
    text.lines().filter_map(scenario).collect()
}

/// The checks that failed or warned. The suite counts both as failures, but its summary shows only the first.
fn complaints(results: &Path) -> Vec<String> {
    // A suite that stopped earlier has printed the reason.
    let scenarios = std::fs::read_dir(results).into_iter().flatten().flatten();
    let checks = scenarios.filter_map(|scenario| {
        let checks = std::fs::read(scenario.path().join("checks.json")).ok()?;
        serde_json::from_slice::<Vec<Value>>(&checks).ok()
    });
    checks.flatten().filter_map(|check| complaint(&check)).collect()
}

/// The message of a check that did not pass.
fn complaint(check: &Value) -> Option<String> {
    let word = |key: &str| check.get(key).and_then(Value::as_str).unwrap_or_default();
    let (status, id, why) = (word("status"), word("id"), word("errorMessage"));
    ["FAILURE", "WARNING"].contains(&status).then(|| format!("{status} {id}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_warned_is_told_too() {
        let check =
            |status: &str| complaint(&serde_json::json!({"status": status, "id": "b", "errorMessage": "c"}));
        assert_eq!([check("SUCCESS"), check("INFO")], [None, None]);
        assert_eq!(check("WARNING").as_deref(), Some("WARNING b: c"));
    }

    #[test]
    fn the_list_and_the_summary_are_read() {
        let list = "# server:\nserver:\n  - ping\n  - tools-list\n\nclient:\n  - ping-client\n";
        assert_eq!(
            [items(list, "server").len(), items(list, "client").len(), items(list, "x").len()],
            [2, 1, 0]
        );
        let text = "Running 2 scenarios\n=== SUMMARY ===\n✓ ping: 2 passed, 0 failed\n✗ tools-list: 1 passed, 1 failed\n\n\
                    Total: 3 passed, 1 failed\n";
        let scenario = |name, passed| Scenario { name, passed };
        assert_eq!(scenarios(text), [scenario("ping", true), scenario("tools-list", false)]);
    }
}
