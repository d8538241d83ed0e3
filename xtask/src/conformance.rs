//! `conformance`: the official conformance suite of MCP against a fixture server, for both eras of the protocol.
//!
//! The suite ships the frozen list of scenarios that a revision requires. `tests/conformance/expected-failures.yml` lists
//! known failures. Any other failure fails the task, also of an optional scenario, and so does a listed scenario that passes.

mod client;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::cargo;
use crate::foreign::NodeRuntime;

/// The protocol revisions to check.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];
/// The suite's entry point.
const SUITE: &str = "@modelcontextprotocol/conformance/dist/index.js";
/// The folder of the suite that lists the required scenarios, as `REVISION.yaml`.
const DEMANDS: &str = "@modelcontextprotocol/conformance/requirements";

/// The running fixture server.
struct FixtureServer {
    child: Child,
    url: String,
}

impl Drop for FixtureServer {
    fn drop(&mut self) {
        // The server holds nothing that needs an orderly shutdown.
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            println!("    cannot stop the fixture server: {error}");
        }
    }
}

/// The outcome of the scenarios of one revision.
#[derive(Debug, Default, PartialEq, Eq)]
struct ScenarioTally {
    passed: Vec<String>,
    failed: Vec<String>,
    /// Required, but not run.
    missing: Vec<String>,
    /// Run, but not required.
    beside: Vec<(String, bool)>,
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

/// Runs the client scenarios of both revisions against the bridge.
pub(crate) fn run_client(workspace: &Path) -> Result<()> {
    let node = suite(workspace)?;
    cargo::build_example(workspace, "mcp_client")?;
    let command = node.run(SUITE);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let (mut lines, mut surprises) = (Vec::new(), Vec::new());
    for revision in REVISIONS {
        let tally = client::run(workspace, &wasm::target_dir(workspace), &words, revision)?;
        lines.push(format!("{revision}, as a client: {} passed, {} failed", tally.passed, tally.failed));
        surprises.extend(tally.surprises);
    }
    lines.iter().for_each(|line| println!("{line}"));
    if !surprises.is_empty() {
        bail!("not as `{}` says:\n{}", client::EXPECTED, surprises.join("\n"));
    }
    Ok(())
}

/// Runs the server scenarios of both revisions against the fixture.
fn run_server(workspace: &Path) -> Result<()> {
    let folder = workspace.join("tests/conformance");
    let node = suite(workspace)?;
    cargo::build_example(workspace, "conformance_server")?;
    let fixture = start(workspace)?;
    let results = wasm::target_dir(workspace).join("conformance");
    let (mut lines, mut good) = (Vec::new(), true);
    for revision in REVISIONS {
        let results = results.join(revision);
        // Results of earlier runs would be read as results of this one.
        let _absent = std::fs::remove_dir_all(&results);
        let mut suite = node.run(SUITE);
        suite
            .args(["server", "--url", &fixture.url, "--requirements", revision, "--expected-failures"])
            .arg(folder.join("expected-failures.yml"))
            .arg("--output-dir")
            .arg(&results)
            .stderr(Stdio::inherit());
        let output = suite.output().context("cannot run the suite")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let demands = node.file(&format!("{DEMANDS}/{revision}.yaml"));
        let demands = std::fs::read_to_string(&demands)
            .with_context(|| format!("cannot read `{}`", demands.display()))?;
        let tally = tally(&text, &demanded(&demands));
        let optional_failed: Vec<_> = tally.beside.iter().filter(|(_, passed)| !passed).collect();
        if !output.status.success()
            || tally.passed.is_empty()
            || !tally.missing.is_empty()
            || !optional_failed.is_empty()
        {
            println!("{text}");
            for line in complaints(&results) {
                println!("    {revision}: {line}");
            }
            good = false;
        }
        for name in &tally.failed {
            println!("    {revision} failed: {name}");
        }
        for (name, _) in &optional_failed {
            println!("    {revision} failed an optional scenario: {name}");
        }
        for name in &tally.missing {
            println!("    {revision} requires a scenario that was not run: {name}");
        }
        let beside = tally.beside.iter().filter(|(_, passed)| *passed).count();
        lines.push(format!(
            "{revision}: {} passed, {} failed ({beside} of {} optional scenarios passed)",
            tally.passed.len(),
            tally.failed.len(),
            tally.beside.len()
        ));
    }
    drop(fixture);
    for line in &lines {
        println!("{line}");
    }
    if !good {
        bail!("the suite found failures that `expected-failures.yml` does not list");
    }
    Ok(())
}

/// The checks that failed or warned. The suite counts both as failures, but its summary shows only the first.
fn complaints(results: &Path) -> Vec<String> {
    // A suite that stopped earlier has printed the reason.
    let scenarios = std::fs::read_dir(results).into_iter().flatten().flatten();
    let checks = scenarios.filter_map(|scenario| {
        let checks = std::fs::read(scenario.path().join("checks.json")).ok()?;
        serde_json::from_slice::<Vec<serde_json::Value>>(&checks).ok()
    });
    checks.flatten().filter_map(|check| complaint(&check)).collect()
}

/// The message of a check that did not pass.
fn complaint(check: &serde_json::Value) -> Option<String> {
    let word = |key: &str| check.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
    let (status, id, why) = (word("status"), word("id"), word("errorMessage"));
    ["FAILURE", "WARNING"].contains(&status).then(|| format!("{status} {id}: {why}"))
}

/// Starts the server and waits until it prints its address.
fn start(workspace: &Path) -> Result<FixtureServer> {
    let mut child = Command::new(cargo::example(workspace, "conformance_server"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the fixture server")?;
    let mut line = String::new();
    let out = child.stdout.take().context("the fixture server has no stdout")?;
    let mut out = BufReader::new(out);
    out.read_line(&mut line)?;
    let url = line.trim().to_owned();
    let fixture = FixtureServer { child, url };
    if !fixture.url.starts_with("http://") {
        let mut rest = String::new();
        out.read_to_string(&mut rest)?;
        bail!("the fixture server did not print its address: {line}{rest}");
    }
    Ok(fixture)
}

/// The server scenarios that a list requires.
fn demanded(list: &str) -> Vec<String> {
    let lines = list.lines().skip_while(|line| *line != "server:").skip(1);
    let items = lines.map_while(|line| line.strip_prefix("  - "));
    items.map(|name| name.trim().to_owned()).collect()
}

/// Reads the summary: `✓ NAME: 2 passed, 0 failed`.
fn tally(text: &str, demanded: &[String]) -> ScenarioTally {
    let scenario = |line: &str| {
        let (mark, rest) = line.split_once(' ')?;
        let passed = match mark {
            "✓" => true,
            "✗" => false,
            _ => return None,
        };
        let (name, counts) = rest.split_once(": ")?;
        counts.contains(" passed, ").then(|| (name.to_owned(), passed))
    };
    let mut tally = ScenarioTally::default();
    for (name, passed) in text.lines().filter_map(|line| scenario(line.trim())) {
        match (demanded.contains(&name), passed) {
            (false, _) => tally.beside.push((name, passed)),
            (true, true) => tally.passed.push(name),
            (true, false) => tally.failed.push(name),
        }
    }
    let run = |name: &&String| !tally.passed.contains(name) && !tally.failed.contains(name);
    tally.missing = demanded.iter().filter(run).cloned().collect();
    tally
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
        assert_eq!(complaints(Path::new("no/such/folder")), [] as [&str; 0]);
    }

    #[test]
    fn the_summary_is_read() {
        let list = "# server:\nserver:\n  - ping\n  - tools-list\n  - gone\n\nclient:\n  - ping-client\n";
        let text = "Running 3 scenarios\n=== SUMMARY ===\n✓ ping: 2 passed, 0 failed\n✗ tools-list: 1 passed, 1 failed\n\
                    ✗ tasks-x: 0 passed, 1 failed\n\nTotal: 3 passed, 2 failed\n";
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expect = ScenarioTally {
            passed: names(&["ping"]),
            failed: names(&["tools-list"]),
            missing: names(&["gone"]),
            beside: vec![("tasks-x".to_owned(), false)],
        };
        assert_eq!(tally(text, &demanded(list)), expect);
        assert_eq!(tally("nonsense", &[]), ScenarioTally::default());
    }
}
