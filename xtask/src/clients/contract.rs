//! The official clients in JavaScript make the calls of the contract suite (`tests/contract`) that need no grants: they
//! check each structured answer against the output schema of its tool.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::json;

use super::{ClientEnvironments, LIBRARIES};
use crate::{cargo, folder};

/// The file with the cases.
const SUITE: &str = "tests/contract/plain.toml";

/// Its cases, as far as they matter here.
#[derive(Deserialize)]
struct Suite {
    case: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    /// The called tool; empty for a case without a call.
    #[serde(default)]
    tool: String,
    #[serde(default = "no_arguments")]
    args: String,
    /// Such a call runs until it is cancelled.
    #[serde(default)]
    cancel: bool,
}

fn no_arguments() -> String {
    "{}".to_owned()
}

/// Runs each client on all cases.
pub(super) fn run(workspace: &Path, clients: &ClientEnvironments) -> Result<()> {
    let component = wasm::guests(workspace)?.into_iter().find(|guest| guest.name == "api_contract");
    let component = component.context("the guest `api_contract` is not built")?;
    let suite: Suite = toml::from_str(&fs::read_to_string(workspace.join(SUITE))?).context(SUITE)?;
    let calls = suite.case.iter().filter(|case| !case.tool.is_empty() && !case.cancel);
    let calls: Vec<_> =
        calls.map(|case| json!({"tool": format!("contract__{}", case.tool), "args": case.args})).collect();
    let home = clients.target.join("clients-contract");
    folder::emptied(&home.join("plugins"))?;
    fs::copy(&component.file, home.join("plugins/contract.wasm"))?;
    fs::write(home.join("toolbay.toml"), "version = 1\n")?;
    fs::write(home.join("cases.json"), serde_json::to_vec(&calls)?)?;
    clients.compile(workspace, &home.join("plugins"))?;
    for (library, era) in LIBRARIES {
        let mut client = clients.node.run_own(&clients.folder.join("node/contract.mjs"))?;
        client.args(["--library", library, "--era", era, "--cases"]).arg(home.join("cases.json"));
        client.arg("--").arg(cargo::host(workspace)).args(["serve", "--plugins", "plugins"]);
        client.args(["--config", "toolbay.toml", "--cache-dir"]).arg(clients.target.join("cache"));
        clients.shell_in(&mut client, &home)?;
    }
    Ok(())
}
