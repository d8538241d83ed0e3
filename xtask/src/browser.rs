//! `browser`: Debian's Chromium uses the page of operators as a person does, and axe checks every view.

use std::path::Path;

use anyhow::Result;
use xtask::wasm;

use crate::foreign::{NodeRuntime, debian_program, shell};
use crate::{plugins, test};

/// The token of the operator is `test`.
const TOKENS: &str = "[[token]]\nname = \"oncall\"\n\
                      sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\nrole = \"operate\"\n";
/// The screenshots of the documentation.
const SHOTS: &str = "docs/how-to/admin-page";

/// Runs all steps; with `write`, replaces the screenshots of the documentation.
pub(crate) fn run(workspace: &Path, write: bool) -> Result<()> {
    debian_program("chromium")?;
    let tests = workspace.join("tests/browser");
    let node = NodeRuntime::with(workspace, "npm-browser", &tests)?;
    test::build_host(workspace)?;
    let folder = wasm::target_dir(workspace).join("browser");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    prepare(&folder, &plugins::folder(workspace))?;
    let mut command = node.script(&tests.join("page.mjs"));
    command.arg(node.folder()).arg(test::host(workspace)).arg(&folder);
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
        std::fs::create_dir_all(folder.join(name))?;
    }
    for (from, to) in [("text", "plugins/text.wasm"), ("hash", "plugins/p.wasm"), ("files", "update.wasm")] {
        std::fs::copy(plugins.join(from).with_extension("wasm"), folder.join(to))?;
    }
    let tokens = folder.join("admin.toml");
    std::fs::write(&tokens, TOKENS)?;
    Ok(std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600))?)
}
