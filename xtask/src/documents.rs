//! `documents`: imports public OpenAPI documents, and counts the operations that become tools.
//!
//! It is no step of a suite, because the documents take 900 MB. `host/openapi/examples/import_documents.rs` lists them.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cargo;
use crate::foreign::{NodeRuntime, shell};

/// The example that imports the documents.
const IMPORT: &str = "import_documents";

/// Installs the documents, and imports each.
pub(crate) fn run(workspace: &Path, lines: bool) -> Result<()> {
    let documents = NodeRuntime::with(workspace, "npm-documents", &workspace.join("tests/documents"))?;
    shell(cargo::linted(workspace)?.args(["build", "--quiet", "--example", IMPORT]))?;
    let mut import = Command::new(cargo::example(workspace, IMPORT));
    import.arg(documents.folder().join("node_modules")).args(lines.then_some("--lines"));
    shell(import.current_dir(workspace))
}
