//! `browser`: Debian's Chromium uses the page of operators as a person does, and axe checks every view.

use std::path::Path;

use anyhow::Result;

use crate::foreign::{NodeRuntime, debian_program, shell};
use crate::{cargo, plugins};

/// The token of the operator is `test`.
const TOKENS: &str = "[[token]]\nname = \"oncall\"\n\
                      sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\nrole = \"operate\"\n";
const TESTS: &str = "tests/browser";
/// The screenshots of the documentation.
const SHOTS: &str = "docs/how-to/admin-page";

/// Installs the browser and the packages that drive it.
pub(crate) fn install(workspace: &Path) -> Result<NodeRuntime> {
    debian_program(workspace, "chromium")?;
    NodeRuntime::with(workspace, "npm-browser", &workspace.join(TESTS))
}

/// Runs all steps; with `write`, replaces the screenshots of the documentation.
pub(crate) fn run(workspace: &Path, write: bool) -> Result<()> {
    let node = install(workspace)?;
    let folder = wasm::target_dir(workspace).join("browser");
    crate::folder::emptied(&folder)?;
    prepare(&folder, &plugins::folder(workspace))?;
    let mut command = node.script(&workspace.join(TESTS).join("page.mjs"));
    command.arg(node.folder()).arg(cargo::host(workspace)).arg(&folder);
    if write {
        let shots = workspace.join(SHOTS);
        std::fs::create_dir_all(&shots)?;
        command.arg(shots);
    }
    shell(&mut command)
}

/// Creates the folder of a server: `p` is updated to a plugin that asks for more.
fn prepare(folder: &Path, plugins: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    for name in ["plugins", "work"] {
        std::fs::create_dir(folder.join(name))?;
    }
    for (from, to) in [("text", "plugins/text.wasm"), ("hash", "plugins/p.wasm"), ("files", "update.wasm")] {
        std::fs::copy(plugins.join(from).with_extension("wasm"), folder.join(to))?;
    }
    let tokens = folder.join("admin.toml");
    std::fs::write(&tokens, TOKENS)?;
    Ok(std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600))?)
}
