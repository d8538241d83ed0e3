//! Clients that are not ours, in other languages, against the built program: each lists tools and calls one, over stdio
//! and over HTTP. `docs/mcp.md` has the table of what was seen.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use xtask::wasm;

use crate::foreign::{Node, python_with, shell};
use crate::{plugins, test};

/// The call that each client makes, and what its answer must contain.
const CALL: [&str; 6] =
    ["--tool", "text__word_count", "--args", r#"{"text":"a b a"}"#, "--expect", r#""words":3"#];

/// Runs all clients.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let folder = workspace.join("tests/mcp-client");
    let target = wasm::target_dir(workspace);
    let python = python_with(&target.join("venv"), &folder)?;
    let langchain = folder.join("langchain");
    let langchain_python = python_with(&target.join("venv-langchain"), &langchain)?;
    let node = Node::with(workspace, "npm-clients", &folder.join("node"))?;
    test::cargo(workspace, &["build", "--bin", "toolbay"])?;
    let server = server(workspace);
    let stdio =
        |command: &mut Command| shell(command.args(CALL).arg("--").args(&server).current_dir(&target));
    stdio(Command::new(&python).arg(folder.join("client.py")))?;
    stdio(Command::new(&python).arg(folder.join("agents_sdk.py")))?;
    stdio(Command::new(&langchain_python).arg(langchain.join("client.py")))?;
    for (library, era) in [("sdk", "legacy"), ("client", "legacy"), ("client", "modern")] {
        let mut client = node.run_own(&folder.join("node/client.mjs"))?;
        stdio(client.args(["--library", library, "--era", era]))?;
    }
    inspector(&node, &server, &target)
}

/// The program with what it serves.
fn server(workspace: &Path) -> Vec<OsString> {
    let target = wasm::target_dir(workspace);
    vec![
        test::host(workspace).into(),
        "serve".into(),
        "--plugins".into(),
        plugins::folder(workspace).into(),
        "--cache-dir".into(),
        target.join("cache").into(),
    ]
}

/// Inspector on the command line has arguments of its own.
fn inspector(node: &Node, server: &[OsString], target: &Path) -> Result<()> {
    let mut inspector = node.run("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    inspector.arg("--cli").args(server);
    let call = ["--method", "tools/call", "--tool-name", "text__word_count", "--tool-arg", "text=a b a"];
    shell(inspector.args(call).args(["--format", "json"]).current_dir(target))
}
