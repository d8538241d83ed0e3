//! `packages`: makes the packages of the published crates, as `cargo publish` would. Cargo resolves them among each
//! other, and `--verify` builds each from the files of its package alone, outside of the workspace.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::cargo;
use crate::foreign::shell;

/// What is done with the packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The packages are written.
    Files,
    /// The packages are built, too.
    Build,
}

/// Makes the packages of all crates whose manifest does not forbid it.
pub(crate) fn run(workspace: &Path, check: Check) -> Result<()> {
    let names = published(workspace)?;
    let mut package = cargo::cargo(workspace);
    // The files of the checkout, also while they are edited. The build has downloaded what the lock file names.
    package.args(["package", "--locked", "--offline", "--allow-dirty"]);
    for name in &names {
        package.args(["--package", name]);
    }
    if check == Check::Files {
        package.arg("--no-verify");
    }
    // The packages share what they build. Outside of the workspace its profiles do not apply.
    let folder = wasm::target_dir(workspace).join("packages");
    package
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_INCREMENTAL", "0");
    shell(&mut package)?;
    println!("{} packages in {}", names.len(), folder.join("package").display());
    Ok(())
}

/// The crates that may be published.
fn published(workspace: &Path) -> Result<Vec<String>> {
    let metadata: Value = serde_json::from_slice(&cargo::metadata(workspace, &["--no-deps"])?)?;
    let packages = metadata.get("packages").and_then(Value::as_array).context("no packages")?;
    let is_published = |package: &&Value| package.get("publish").is_some_and(Value::is_null);
    let name = |package: &Value| package.get("name")?.as_str().map(str::to_owned);
    Ok(packages.iter().filter(is_published).filter_map(name).collect())
}
