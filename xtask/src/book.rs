//! `book`: builds the documentation as a book with mdBook. The step `links` of the test command checks its links.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::foreign::shell;

const MDBOOK: &str = "0.5.4";

/// Builds the book into `target/book`.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let target = wasm::target_dir(workspace);
    let tools = target.join("mdbook");
    // In a separate target folder, because the workspace's lock and features do not apply to it.
    let mut install = Command::new(wasm::cargo_path());
    install
        .args(["install", "mdbook", "--locked", "--debug", "--quiet", "--version", MDBOOK, "--root"])
        .arg(&tools);
    install.args(["--no-default-features", "--features", "search", "--target-dir"]).arg(tools.join("target"));
    shell(&mut install)?;
    let mut book = Command::new(tools.join("bin/mdbook"));
    shell(book.arg("build").arg(workspace.join("docs")).arg("--dest-dir").arg(target.join("book")))
}
