//! The steps of `test` and `release-test`.
//!
//! A step belongs to `test` if it guards what users rely on: security, conformance, data, real clients and servers. What only
//! a release changes belongs to `release-test`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::cargo::cargo;
use crate::foreign::{python as system_python, shell};
use crate::steps::Step;
use crate::{
    arrive, book, browser, clients, conformance, counts, dist, downloads, features, languages, macos,
    metrics, node, packages, python, registries, rustdoc, tests, tidy, tools, tutorials, vendors,
};

/// What runs the built program and plugins.
const BUILT: &[&str] = &["build"];

/// Everything that must pass before a change lands. What others need and what takes long starts first.
pub(crate) const TEST: &[Step] = &[
    step("toolchain", &[], 5, toolchain),
    step("build", &["toolchain"], 60, tests::build),
    step("downloads", &[], 30, downloads::run),
    step("format", &[], 2, |workspace| shell(cargo(workspace).args(["fmt", "--all", "--check"]))),
    step("tidy", &[], 2, tidy::run),
    step("dependencies", &[], 5, tools::dependencies),
    step("links", &[], 5, tools::links),
    step("tests", BUILT, 40, tests::run),
    step("features", BUILT, 10, features::check_none),
    step("languages", BUILT, 20, languages::run),
    step("tutorials", BUILT, 20, tutorials::run),
    step("python", BUILT, 10, python::run),
    step("node", BUILT, 10, node::run),
    step("documentation", BUILT, 20, rustdoc::test),
    step("counts", BUILT, 10, |workspace| counts::run(workspace, false)),
    step("conformance", BUILT, 10, conformance::run),
    step("clients", BUILT, 10, clients::run),
    step("browser", BUILT, 10, |workspace| browser::run(workspace, false)),
    step("registries", BUILT, 10, registries::run),
    step("metrics", BUILT, 10, metrics::run),
    step("packages", BUILT, 10, |workspace| packages::run(workspace, packages::Check::Files)),
    step("vendors", BUILT, 10, vendors::run),
    step("arrive", BUILT, 5, arrive::check),
];

/// What must pass before a release, beside [`TEST`].
pub(crate) const RELEASE_TEST: &[Step] = &[
    step("key-ring", &[], 60, key_ring),
    step("features-alone", &[], 60, features::check_each),
    step("macos", &[], 60, macos::check),
    step("book", &[], 20, book::run),
    step("packages-alone", &[], 120, |workspace| packages::run(workspace, packages::Check::Build)),
    step("dist", &[], 240, |workspace| dist::check(workspace, dist::Profile::Release)),
];

const fn step(
    name: &'static str,
    needs: &'static [&'static str],
    minutes: u64,
    run: fn(&Path) -> Result<()>,
) -> Step {
    Step { name, needs, limit: Duration::from_secs(60 * minutes), run }
}

fn toolchain(workspace: &Path) -> Result<()> {
    shell(Command::new("rustc").arg("--version").current_dir(workspace))?;
    wasm::ensure_target()?;
    shell(system_python().arg("--version"))
}

/// Compiles the system's credential store, which is a feature with many dependencies. Tests use a mock in its place.
fn key_ring(workspace: &Path) -> Result<()> {
    shell(cargo(workspace).args(["check", "--package", "toolbay-cli", "--features", "keyring"]))
}
