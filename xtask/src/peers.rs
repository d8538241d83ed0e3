//! The batch benchmark beside what people use instead.

use std::path::Path;

use anyhow::Result;

use xtask::wasm;

use crate::foreign::{python_with, shell};
use crate::test;

/// Installs what is on a package registry, and measures. A checkout of Ethos, which is not, is named by the variable
/// `TOOLBAY_ETHOS`; it needs node and the package `tsx` there.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let folder = workspace.join("tests/peers");
    let python = python_with(&wasm::target_dir(workspace).join("venv-peers"), &folder)?;
    let mut peers = vec![format!(
        "ToolRegistry, threads={} {}",
        python.display(),
        folder.join("toolregistry_batch.py").display()
    )];
    if let Ok(checkout) = std::env::var("TOOLBAY_ETHOS") {
        let script = folder.join("ethos_batch.mjs");
        let tsx = format!("{checkout}/node_modules/tsx/dist/esm/index.mjs");
        peers.push(format!("Ethos, in-process={} --import {tsx} {} {checkout}", "node", script.display()));
    }
    let mut command = test::native_cargo(workspace);
    shell(command.args(["bench", "--bench", "all", "--", "batch"]).env("TOOLBAY_PEERS", peers.join(";")))
}
