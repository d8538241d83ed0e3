//! Installs each peer into the target folder, from the registry that its users use, at the version fixed here or in the
//! lists of `tests/peers`.

mod loader;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::PeerBench;
use crate::cargo;
use crate::foreign::{python_with, shell};
use crate::programs::printed;

/// The newest release that Rust 1.95 compiles.
const HYPER_MCP: &str = "0.8.3";
/// The version in the lock of `tests/peers/extism`.
const EXTISM: &str = "1.30.0";
/// Peers are measured with one long-lived instance, Toolbay with a fresh instance for each call.
const FRESH: &str = "in a fresh instance";
const REUSED: &str = "in one instance for all calls";
const NATIVE: &str = "in the server";
/// By default some peers log several lines for each call, which would be measured too.
const LOG: &str = "error";

/// The bare MCP library as the baseline, and Toolbay with its own echo and with the plain WIT component that other peers
/// run too.
pub(super) fn ours(bench: &mut PeerBench<'_>) -> Result<()> {
    let release = wasm::target_dir(bench.workspace).join("release");
    let suffix = std::env::consts::EXE_SUFFIX;
    let bare = release.join("examples").join(format!("bare{suffix}"));
    bench.server("the MCP library (rmcp), a native tool", NATIVE, &[&bare], &[], "echo");
    let (plugins, config) = (bench.folder.join("toolbay/plugins"), bench.folder.join("toolbay/toolbay.toml"));
    std::fs::create_dir_all(&plugins)?;
    std::fs::copy(guest(bench, "bench_echo")?, plugins.join("bench.wasm"))?;
    std::fs::copy(guest(bench, "foreign_echo")?, plugins.join("plain.wasm"))?;
    // Rate limits would distort the measurement.
    let policy = "version = 1\n[serve.limits]\nrequests_per_second = 1_000_000\nrequests_per_client = 1024\nrequests = 1024\n";
    std::fs::write(&config, policy)?;
    let (toolbay, cache) = (release.join(format!("toolbay{suffix}")), bench.folder.join("toolbay/cache"));
    let words: [&Path; 8] = [
        &toolbay,
        "serve".as_ref(),
        "--plugins".as_ref(),
        &plugins,
        "--cache-dir".as_ref(),
        &cache,
        "--config".as_ref(),
        &config,
    ];
    bench.server("`toolbay serve`, a plugin", FRESH, &words, &[], "bench__echo");
    bench.server("`toolbay serve`, a component of plain WIT", FRESH, &words, &[], "plain__echo");
    Ok(())
}

pub(super) fn python(bench: &mut PeerBench<'_>) -> Result<()> {
    let folder = bench.workspace.join("tests/peers/python");
    let python = python_with(&bench.folder.join("python"), &folder)?;
    let name = format!("Python, {}", version(&folder)?);
    bench.server(&name, NATIVE, &[&python, &folder.join("server.py")], &[], "echo");
    Ok(())
}

/// Installs a package that contains the program itself.
pub(super) fn wassette(bench: &mut PeerBench<'_>) -> Result<()> {
    let folder = bench.workspace.join("tests/peers/wassette");
    let python = python_with(&bench.folder.join("wassette"), &folder)?;
    let find = "import wassette_cli, pathlib; print(pathlib.Path(wassette_cli.__file__).parent / 'wassette')";
    let program = PathBuf::from(printed(Command::new(&python).args(["-c", find]))?.trim());
    loader::allow(&program)?;
    let mut command = loader::command(bench.workspace, &program)?;
    let (first, rest) = command.split_first().context("no program")?;
    let printed_version = printed(Command::new(first).args(rest).arg("--version"))?;
    let components = bench.folder.join("wassette-components");
    std::fs::create_dir_all(&components)?;
    std::fs::copy(guest(bench, "foreign_echo")?, components.join("plain.wasm"))?;
    let more = ["run", "--disable-builtin-tools", "--component-dir"];
    command.extend(more.map(PathBuf::from));
    command.push(components);
    let words: Vec<&Path> = command.iter().map(PathBuf::as_path).collect();
    let number =
        printed_version.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let name = format!("wassette {} ({})", number.unwrap_or("?"), version(&folder)?);
    let home = bench.folder.join("wassette-home");
    bench.server(&name, FRESH, &words, &[("HOME", &home), ("RUST_LOG", Path::new(LOG))], "echo");
    Ok(())
}

pub(super) fn toolregistry(bench: &mut PeerBench<'_>) -> Result<()> {
    let folder = bench.workspace.join("tests/peers/toolregistry");
    let python = python_with(&bench.folder.join("toolregistry"), &folder)?;
    bench.batch(&format!("{}, threads", version(&folder)?), &[&python, &folder.join("batch.py")]);
    Ok(())
}

/// This peer is on no package registry. A variable names its checkout, which needs Node and the package `tsx`.
pub(super) fn ethos(bench: &mut PeerBench<'_>) -> Result<()> {
    let checkout = std::env::var("TOOLBAY_ETHOS")
        .context("no package registry has it; set `TOOLBAY_ETHOS` to a checkout")?;
    let tsx = PathBuf::from(format!("{checkout}/node_modules/tsx/dist/esm/index.mjs"));
    let script = bench.workspace.join("tests/peers/ethos/batch.mjs");
    let words: [&Path; 5] = ["node".as_ref(), "--import".as_ref(), &tsx, &script, checkout.as_ref()];
    bench.batch("Ethos, in its process", &words);
    Ok(())
}

/// Compiles once, for a long time: 700 packages, with a separate wasmtime and cloud clients among them.
pub(super) fn hyper_mcp(bench: &mut PeerBench<'_>) -> Result<()> {
    let root = bench.folder.join("hyper-mcp");
    let program = root.join("bin").join(format!("hyper-mcp{}", std::env::consts::EXE_SUFFIX));
    // Cargo keeps a list of what it installed.
    let list = std::fs::read_to_string(root.join(".crates.toml")).unwrap_or_default();
    if !list.contains(&format!("hyper-mcp {HYPER_MCP} ")) || !program.exists() {
        let mut install = cargo::cargo(bench.workspace);
        install.args(["install", "--locked", "--force", "--version"]).arg(format!("={HYPER_MCP}"));
        install.arg("--root").arg(&root);
        shell(install.arg("--target-dir").arg(bench.folder.join("hyper-mcp-build")).arg("hyper-mcp"))?;
    }
    let plugin = extism_plugin(bench)?;
    let config = bench.folder.join("hyper-mcp.json");
    let named = json!({ "plugins": { "bench": { "url": format!("file://{}", plugin.display()) } } });
    std::fs::write(&config, serde_json::to_string_pretty(&named)?)?;
    let logs = bench.folder.join("hyper-mcp-logs");
    let words: [&Path; 3] = [&program, "--config-file".as_ref(), &config];
    bench.server(
        &format!("hyper-mcp {HYPER_MCP}"),
        REUSED,
        &words,
        &[("HYPER_MCP_LOG_PATH", &logs), ("RUST_LOG", Path::new(LOG))],
        "bench-echo",
    );
    Ok(())
}

/// The library in a small program.
pub(super) fn extism(bench: &mut PeerBench<'_>) -> Result<()> {
    let plugin = extism_plugin(bench)?;
    let target = bench.folder.join("extism");
    let mut build = cargo::cargo(bench.workspace);
    build.args(["build", "--locked", "--release", "--manifest-path", "tests/peers/extism/Cargo.toml"]);
    shell(build.arg("--target-dir").arg(&target))?;
    let program = target.join("release").join(format!("extism-batch{}", std::env::consts::EXE_SUFFIX));
    for (how, runs) in [("fresh", FRESH), ("reused", REUSED)] {
        bench.batch(&format!("extism {EXTISM}, two threads, {runs}"), &[&program, &plugin, how.as_ref()]);
    }
    Ok(())
}

/// The echo as a module for Extism: compiled for the installed target and linked without its adapter.
fn extism_plugin(bench: &PeerBench<'_>) -> Result<PathBuf> {
    wasm::ensure_target()?;
    let target = bench.folder.join("extism-plugin");
    let mut build = cargo::cargo(bench.workspace);
    build.args(["build", "--locked", "--release", "--manifest-path", "tests/peers/extism-plugin/Cargo.toml"]);
    build.args(["--target", wasm::TARGET, "--target-dir"]).arg(&target);
    let flags = "-C linker=rust-lld -C linker-flavor=wasm-ld -C link-self-contained=no";
    shell(build.env("RUSTFLAGS", flags))?;
    Ok(target.join(wasm::TARGET).join("release/extism_plugin.wasm"))
}

fn guest(bench: &PeerBench<'_>, name: &str) -> Result<PathBuf> {
    let guests = wasm::guests(bench.workspace)?;
    let found = guests.into_iter().find(|guest| guest.name == name);
    found.map(|guest| guest.file).with_context(|| format!("no guest `{name}`"))
}

/// The package and version in the list of a folder.
fn version(folder: &Path) -> Result<String> {
    let list = std::fs::read_to_string(folder.join("requirements.txt"))?;
    Ok(list.trim().replace("==", " "))
}
