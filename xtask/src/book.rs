//! `book`: builds the documentation with mdBook and checks every link in it.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use xtask::wasm;

use crate::foreign::{environment, shell};

const MDBOOK: &str = "0.5.4";
const LINKCHECKER: &str = "linkchecker==10.6.0\n";

/// Starts the link checker. As root it would switch to the user `nobody`, who may not be able to read the checkout.
const CHECK_LINKS: &str = "\
from linkcheck.command import linkchecker as command
command.drop_privileges = lambda: None
command.linkchecker()
";

/// Builds the book into `target/book`. Fails if a page or an anchor that it links to is missing.
/// Addresses outside the book are not visited.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let target = wasm::target_dir(workspace);
    let tools = target.join("mdbook");
    // In a separate target folder, because the workspace's lock and features do not apply to it.
    let mut install = Command::new(env!("CARGO"));
    install
        .args(["install", "mdbook", "--locked", "--debug", "--quiet", "--version", MDBOOK, "--root"])
        .arg(&tools);
    install.args(["--no-default-features", "--features", "search", "--target-dir"]).arg(tools.join("target"));
    shell(&mut install)?;
    let (book, pages) = (tools.join("bin/mdbook"), target.join("book"));
    shell(Command::new(book).arg("build").arg(workspace.join("docs")).arg("--dest-dir").arg(&pages))?;
    let python = environment(&target.join("venv-linkchecker"), LINKCHECKER)?;
    let mut check = Command::new(python);
    check.args(["-c", CHECK_LINKS, "--no-status", "--config"]).arg(workspace.join("xtask/linkchecker.ini"));
    shell(check.arg(pages.join("index.html")))
}
