//! Cargo within cargo, and the toolchain that it uses.
//!
//! The inner cargo uses a separate target directory because the outer one holds the lock of its own. It does not inherit
//! compiler flags, because flags for the host, clippy or a coverage tool do not apply to guests.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The target triple of guests.
pub const TARGET: &str = "wasm32-wasip2";

/// Returns the checkout in which cargo runs this. It is read at run time because checkouts may share a target directory.
///
/// # Errors
/// Cargo does not run this program, or not in the workspace.
pub fn workspace() -> Result<PathBuf> {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).context("run it with `cargo xtask`")?;
    let found = package.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file());
    found
        .map(Path::to_path_buf)
        .with_context(|| format!("`{}` is outside of the workspace", package.display()))
}

/// Returns the target directory of the workspace: `CARGO_TARGET_DIR`, or `target`.
#[must_use]
pub fn target_dir(workspace: &Path) -> PathBuf {
    workspace.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Returns the target directory of guests.
pub(crate) fn guest_target_dir(workspace: &Path) -> PathBuf {
    target_dir(workspace).join("guests")
}

/// Adds the target of guests to the toolchain in use, if it lacks it.
///
/// # Errors
/// As [`add_target`].
pub fn ensure_target() -> Result<()> {
    add_target(TARGET)
}

/// Adds a target to the toolchain in use, if it lacks it.
///
/// # Errors
/// The target is missing and rustup cannot add it.
pub fn add_target(target: &str) -> Result<()> {
    if has_target(target)? {
        return Ok(());
    }
    let advice = format!("the target `{target}` is missing; install it with `rustup target add {target}`");
    let added = Command::new("rustup")
        .args(["target", "add", target])
        .status()
        .with_context(|| format!("cannot run `rustup`: {advice}, or with the installer of your toolchain"))?;
    ensure!(added.success() && has_target(target)?, "`rustup target add {target}` failed: {advice}");
    Ok(())
}

fn has_target(target: &str) -> Result<bool> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc)
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .with_context(|| format!("cannot run `{}`", rustc.display()))?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(output.status.success() && folder.is_dir())
}

/// The cargo that runs this program.
#[must_use]
pub fn cargo_path() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A cargo command without the environment of the outer cargo, with the target directory for guests.
#[must_use]
pub fn cargo(workspace: &Path) -> Command {
    tool(workspace, &cargo_path())
}

/// A command with the environment of [`cargo`].
#[must_use]
pub fn tool(workspace: &Path, program: &OsStr) -> Command {
    let mut command = Command::new(program);
    for (key, _) in std::env::vars_os() {
        if leaks(&key) {
            command.env_remove(key);
        }
    }
    command.current_dir(workspace).env("CARGO_TARGET_DIR", guest_target_dir(workspace));
    command
}

/// Runs a cargo command that builds something.
pub(crate) fn build(command: &mut Command, what: &str) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().context("cannot run `cargo`")?;
    ensure!(status.success(), "building {what} failed");
    Ok(())
}

/// Whether a variable describes the running build rather than the machine's toolchain.
fn leaks(key: &OsStr) -> bool {
    const EXACT: [&str; 22] = [
        "CARGO_BIN_NAME",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_CRATE_NAME",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_PRIMARY_PACKAGE",
        "CARGO_TARGET_TMPDIR",
        "CLIPPY_ARGS",
        "DEBUG",
        "HOST",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTDOC",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
        "TARGET",
    ];
    const STARTS: [&str; 6] =
        ["CARGO_CFG_", "CARGO_FEATURE_", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PROFILE_", "DEP_"];
    key.to_str().is_some_and(|key| EXACT.contains(&key) || STARTS.iter().any(|start| key.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_outer_cargo_sets_does_not_reach_the_inner_one() {
        for key in
            ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_PKG_NAME", "RUSTC_WORKSPACE_WRAPPER", "TARGET"]
        {
            assert!(leaks(OsStr::new(key)), "{key}");
        }
        for key in ["CARGO_HOME", "RUSTUP_TOOLCHAIN", "CARGO_NET_OFFLINE", "PATH", "CARGO_MAKEFLAGS"] {
            assert!(!leaks(OsStr::new(key)), "{key}");
        }
    }
}
