//! `packages`: makes the packages of the published crates, as `cargo publish` would. Cargo resolves them among each other, and
//! `--verify` builds each from the files of its package alone, outside of the workspace.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xtask::wasm;

use crate::foreign::shell;
use crate::test;

/// What is done with the packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// They are written.
    Files,
    /// They are built, too.
    Build,
}

/// Makes the packages of all crates whose manifest does not forbid it.
pub(crate) fn run(workspace: &Path, check: Check) -> Result<()> {
    let names = published(workspace)?;
    let mut cargo = test::native_cargo(workspace);
    // The files of the checkout, also while they are edited.
    cargo.args(["package", "--locked", "--allow-dirty"]);
    for name in &names {
        cargo.args(["--package", name]);
    }
    if check == Check::Files {
        cargo.arg("--no-verify");
    }
    // The packages share what they build. Outside of the workspace its profiles do not apply.
    let folder = wasm::target_dir(workspace).join("packages");
    cargo
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_INCREMENTAL", "0");
    shell(&mut cargo)?;
    println!("{} packages in {}", names.len(), folder.join("package").display());
    Ok(())
}

/// The crates that may be published.
fn published(workspace: &Path) -> Result<Vec<String>> {
    let mut cargo: Command = test::native_cargo(workspace);
    cargo.args(["metadata", "--format-version", "1", "--no-deps", "--locked"]);
    let output = cargo.output().context("cannot run `cargo metadata`")?;
    ensure!(output.status.success(), "`cargo metadata`: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata.get("packages").and_then(Value::as_array).context("no packages")?;
    let is_published = |package: &&Value| package.get("publish").is_some_and(Value::is_null);
    let name = |package: &Value| package.get("name")?.as_str().map(str::to_owned);
    Ok(packages.iter().filter(is_published).filter_map(name).collect())
}
