//! `peers`: installs comparable programs at fixed versions and measures them with the same tool and client in one run.
//!
//! The benchmark `peers` measures servers over stdio, `batch` measures batches in one process. A peer that cannot be installed
//! is left out, and the table gives the reason.

mod obtain;
mod table;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::bench;
use crate::bench::machine::Machine;
use crate::cargo;
use crate::foreign::shell;

/// Installs a peer.
type Peer = (&'static str, fn(&mut PeerBench<'_>) -> Result<()>);

/// The peers in the order of the tables. Those that take long to install come last.
const PEERS: &[Peer] = &[
    ("python", obtain::python),
    ("wassette", obtain::wassette),
    ("toolregistry", obtain::toolregistry),
    ("ethos", obtain::ethos),
    ("hyper-mcp", obtain::hyper_mcp),
    ("extism", obtain::extism),
];

/// The installed peers.
struct PeerBench<'a> {
    workspace: &'a Path,
    /// The folder of the installed peers and their state.
    folder: PathBuf,
    servers: Vec<Value>,
    batches: Vec<Value>,
    missing: Vec<String>,
}

/// Installs, measures, and writes the tables into the documentation, except after a quick run.
pub(crate) fn run(workspace: &Path, quick: bool, names: &[String]) -> Result<()> {
    if let Some(other) = names.iter().find(|name| PEERS.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = PEERS.iter().map(|(name, _)| *name).collect();
        bail!("no peer `{other}`: {}", known.join(", "));
    }
    bench::build(workspace)?;
    let folder = wasm::target_dir(workspace).join("peers");
    std::fs::create_dir_all(&folder)?;
    let mut measured =
        PeerBench { workspace, folder, servers: Vec::new(), batches: Vec::new(), missing: Vec::new() };
    obtain::ours(&mut measured)?;
    for (name, obtain) in
        PEERS.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|other| other == name))
    {
        println!("\n==> {name}");
        if let Err(why) = obtain(&mut measured) {
            println!("    left out: {why:#}");
            measured.missing.push(format!("{name}: {why:#}"));
        }
    }
    measured.run(!quick && names.is_empty())
}

impl PeerBench<'_> {
    /// Adds a server with the description of its sandbox for the table.
    fn server(&mut self, name: &str, runs: &str, command: &[&Path], env: &[(&str, &Path)], tool: &str) {
        let env: serde_json::Map<String, Value> =
            env.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        self.servers
            .push(json!({ "name": name, "runs": runs, "command": command, "env": env, "tool": tool }));
    }

    fn batch(&mut self, name: &str, command: &[&Path]) {
        self.batches.push(json!({ "name": name, "command": command }));
    }

    fn run(&self, whole: bool) -> Result<()> {
        let [named, tables] = ["peers.json", "tables.md"].map(|name| self.folder.join(name));
        let text =
            serde_json::to_string_pretty(&json!({ "servers": self.servers, "batches": self.batches }))?;
        std::fs::write(&named, text)?;
        std::fs::write(&tables, "")?;
        let mut command = cargo::cargo(self.workspace);
        command.args(["bench", "--bench", "all", "--", "peers", "batch"]);
        command.env("TOOLBAY_PEERS", &named).env("TOOLBAY_TABLES", &tables);
        if !whole {
            command.env("TOOLBAY_QUICK", "1");
        }
        let before = Machine::before()?;
        let start = Instant::now();
        shell(&mut command)?;
        let conditions = before.until_now(start.elapsed())?;
        println!("\nmeasured for {:.0} s; {}", start.elapsed().as_secs_f64(), conditions.describe());
        let tables = std::fs::read_to_string(&tables).context("the benchmarks wrote no tables")?;
        if whole {
            table::write(self.workspace, &tables, &conditions, &self.missing)
        } else {
            println!("the documentation is unchanged: only a full run, without options and names, writes it");
            Ok(())
        }
    }
}
