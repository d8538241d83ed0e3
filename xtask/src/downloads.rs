//! Installs what the steps take from registries, while others compile.
//!
//! Each step installs what it needs by itself and waits for a download that runs. If a registry is down, the step that needs
//! it fails with the name, and the others run.

use std::path::Path;

use anyhow::{Result, bail};

use crate::{
    agents, browser, clients, conformance, counts, languages, metrics, node, python, registries, servers,
    tools, vendors,
};

type Download = (&'static str, fn(&Path) -> Result<()>);

/// What is installed, in the order in which steps need it.
const DOWNLOADS: [Download; 13] = [
    ("tools of cargo", |workspace| tools::install(workspace).map(drop)),
    ("servers", servers::install),
    ("languages", |workspace| languages::toolchains(workspace).map(drop)),
    ("library for Python", |workspace| python::install(workspace).map(drop)),
    ("library for Node", |workspace| node::install(workspace).map(drop)),
    ("agents", |workspace| agents::install(workspace).map(drop)),
    ("packages of vendors", |workspace| vendors::install(workspace).map(drop)),
    ("clients", |workspace| clients::install(workspace).map(drop)),
    ("conformance suite", |workspace| conformance::suite(workspace).map(drop)),
    ("registries", |workspace| registries::install(workspace).map(drop)),
    ("browser", |workspace| browser::install(workspace).map(drop)),
    ("metrics", metrics::install),
    ("valgrind", |workspace| counts::Instrument::find(workspace).map(drop)),
];

/// Installs everything. A failure does not keep the rest from being installed.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let mut failed = Vec::new();
    for (name, install) in DOWNLOADS {
        println!("{name}");
        if let Err(error) = install(workspace) {
            println!("error: {name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("cannot install: {}", failed.join(", "));
    }
    Ok(())
}
