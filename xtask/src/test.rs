//! `test`: everything that must pass before a change lands. It needs rustup and Python 3, and works in a clean clone.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use xtask::wasm;

use crate::foreign::{python, python_with, shell};
use crate::{
    book, browser, clients, conformance, counts, deny, languages, metrics, packages, plugins, registries,
    replicas, search, tidy, tutorials,
};

/// An example that is built, too. Cargo gives dependencies the features that tests need only if it builds a target that may
/// use dev-dependencies, and would build most of them again with other features.
const LIKE_TESTS: &str = "contract";

type Step = (&'static str, fn(&Path) -> Result<()>);

/// The steps in order: quick ones and those that often fail come first.
const STEPS: &[Step] = &[
    ("toolchain", toolchain),
    ("format", |workspace| cargo(workspace, &["fmt", "--all", "--check"])),
    ("tidy", tidy::run),
    ("dependencies", deny::run),
    ("plugins", plugins::run),
    ("lints", lints),
    ("lints of the guests", guest_lints),
    ("tests", |workspace| cargo(workspace, &["test"])),
    // The feature only adds the system's credential store and many dependencies. It is compiled here; tests use a mock.
    ("key ring", |workspace| {
        cargo(
            workspace,
            &["check", "--features", "toolbay/keyring", "--bin", "toolbay", "--example", LIKE_TESTS],
        )
    }),
    ("languages", languages::run),
    ("tutorials", |workspace| tutorials::run(workspace, &[])),
    ("bindings of the SDK", |workspace| cargo(workspace, &["test", "--package", "bindings"])),
    ("MCP clients", clients::run),
    ("registries", registries::run),
    ("metrics", metrics::run),
    ("replicas", replicas::run),
    ("browser", |workspace| browser::run(workspace, false)),
    ("packages", |workspace| packages::run(workspace, packages::Check::Files)),
    ("MCP conformance", conformance::run),
    ("search", search::run),
    ("counts", |workspace| counts::run(workspace, false)),
    ("vendor types", vendor_types),
    ("documentation", documentation),
    ("book", book::run),
];

/// Runs all steps; with `keep_going`, also after a failure.
pub(crate) fn run(workspace: &Path, keep_going: bool) -> Result<()> {
    let mut results: Vec<(&str, bool, Duration)> = Vec::new();
    for (name, step) in STEPS {
        println!("\n==> {name}");
        let start = Instant::now();
        let result = step(workspace);
        if let Err(error) = &result {
            println!("error: {name}: {error:#}");
        }
        println!("    {name}: {} in {:.1} s", word(result.is_ok()), start.elapsed().as_secs_f32());
        results.push((name, result.is_ok(), start.elapsed()));
        if result.is_err() && !keep_going {
            break;
        }
    }
    println!();
    for (name, passed, time) in &results {
        println!("{:<8}{:>7.1} s  {name}", word(*passed), time.as_secs_f32());
    }
    for (name, _) in STEPS.iter().skip(results.len()) {
        println!("{:<8}{:>9}  {name}", "not run", "");
    }
    let passed = results.iter().filter(|(_, passed, _)| *passed).count();
    let failed = results.len() - passed;
    println!("{passed} passed, {failed} failed");
    if failed > 0 {
        let names: Vec<_> = results.iter().filter(|(_, passed, _)| !passed).map(|(name, ..)| *name).collect();
        bail!("failed: {}", names.join(", "));
    }
    Ok(())
}

fn word(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

fn toolchain(workspace: &Path) -> Result<()> {
    shell(Command::new("rustc").arg("--version").current_dir(workspace))?;
    wasm::ensure_target()?;
    shell(python().arg("--version"))
}

fn lints(workspace: &Path) -> Result<()> {
    // The default members exclude the guests, which have another target, and the package that builds them.
    cargo(workspace, &["clippy", "--all-targets", "--", "-D", "warnings"])?;
    cargo(workspace, &["clippy", "--package", "guest-artifacts", "--", "-D", "warnings"])
}

/// Lints the guests with the settings of [`wasm::guests`], so that their dependencies are already built.
fn guest_lints(workspace: &Path) -> Result<()> {
    let mut command = wasm::guest_clippy(workspace);
    shell(command.args(["--quiet", "--", "-D", "warnings"]))
}

/// Checks the tool formats that the library writes against the types that the vendors of models publish.
fn vendor_types(workspace: &Path) -> Result<()> {
    let folder = workspace.join("tests/vendors");
    let target = wasm::target_dir(workspace);
    let python = python_with(&target.join("venv-vendors"), &folder)?;
    build_example(workspace, "vendor_samples")?;
    let samples = format!("debug/examples/vendor_samples{}", std::env::consts::EXE_SUFFIX);
    shell(Command::new(python).arg(folder.join("check.py")).arg(target.join(samples)).current_dir(&target))
}

fn documentation(workspace: &Path) -> Result<()> {
    let mut command = native_cargo(workspace);
    command.args(["doc", "--no-deps", "--lib", "--bins", "--example", LIKE_TESTS]);
    shell(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Builds the host program, and the example of the contract suite.
pub(crate) fn build_host(workspace: &Path) -> Result<()> {
    build_example(workspace, LIKE_TESTS)
}

/// Builds an example, and the host program: with it, its dependencies have the features that tests need.
pub(crate) fn build_example(workspace: &Path, name: &str) -> Result<()> {
    cargo(workspace, &["build", "--bin", "toolbay", "--example", name])
}

/// The built host program.
pub(crate) fn host(workspace: &Path) -> std::path::PathBuf {
    wasm::target_dir(workspace).join("debug").join(format!("toolbay{}", std::env::consts::EXE_SUFFIX))
}

/// Runs cargo for this machine.
pub(crate) fn cargo(workspace: &Path, args: &[&str]) -> Result<()> {
    shell(native_cargo(workspace).args(args))
}

/// Prefixes of variables that cargo sets for the running package.
const OF_THIS_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

pub(crate) fn native_cargo(workspace: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (key, _) in std::env::vars_os() {
        // Cargo sets these for this program. Build scripts that read them (`ring`'s does) would run again, with everything
        // that depends on them, after every build outside this program.
        if key.to_str().is_some_and(|key| OF_THIS_PACKAGE.iter().any(|start| key.starts_with(start))) {
            command.env_remove(key);
        }
    }
    command.current_dir(workspace);
    command
}
