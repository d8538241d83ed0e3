//! Checks types and lints for macOS. Nothing is linked: that takes Apple's SDK.

use std::path::Path;

use anyhow::Result;

use crate::cargo::linted;
use crate::foreign::shell;
use crate::zig::Zig;

const TARGET: &str = "aarch64-apple-darwin";
/// The packages that people on macOS use, and the tasks of this project.
const PACKAGES: &[&str] = &["toolbay-cli", "toolbay-node", "toolbay-python", "xtask"];

/// Compiles the packages, with everything that they use, up to the machine code. A warning is an error.
pub(crate) fn check(workspace: &Path) -> Result<()> {
    wasm::add_target(TARGET)?;
    let zig = Zig::install(workspace, &wasm::target_dir(workspace).join("macos-tools"))?;
    let variable = TARGET.replace('-', "_");
    let mut check = linted(workspace)?;
    check.args(["check", "--locked", "--target", TARGET]);
    check.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    check.env(format!("CC_{variable}"), zig.compiler("aarch64-macos")?);
    // Without `SDKROOT`, build scripts look for Apple's SDK. Zig has the headers of the C library.
    check.env(format!("AR_{variable}"), zig.archiver()?).env("SDKROOT", "/");
    shell(&mut check)
}
