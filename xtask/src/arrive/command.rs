//! The command from PyPI and npm: time to install, sizes, and time to the first list of tools.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::bare_machine::BareMachine;
use super::installation::{Check, timed};
use super::library::check_release;
use super::stdio_server::StdioServer;
use super::{ArriveArgs, Line, median_seconds};
use crate::dist::{self, BuiltFiles, Module, Packing};
use crate::folder::emptied;
use crate::foreign::{self, shell};
use crate::plugins;
use crate::programs::printed;

/// A wheel with a native module of 54 MB, to compare with.
const POLARS: &str = "polars-runtime-32==2.1.0";
/// The glibc that the packages name.
const GLIBC: u32 = 17;
const MEGABYTE: f64 = 1e6;
/// The scripts that npm runs when it installs a package.
const LIFECYCLE: [&str; 6] = ["preinstall", "install", "postinstall", "prepublish", "prepare", "preprepare"];

/// The lines of the bars 1 to 3.
pub(super) fn lines(workspace: &Path, args: &ArriveArgs) -> Result<Vec<Line>> {
    let folder = wasm::target_dir(workspace).join("arrive");
    let packages = match &args.program {
        Some(program) => {
            let files = BuiltFiles::beside(program, &plugins::folder(workspace));
            for file in files.native_files() {
                check_release(file)?;
            }
            dist::package(workspace, &files, Packing::Shipped, &folder.join("packages"))?
        }
        None => dist::built(workspace)?,
    };
    let polars = polars(workspace, &folder.join("polars"))?;
    let machine = BareMachine::new(workspace, &folder.join("machine"))?;
    let check = Check { workspace, machine: &machine, packages: &packages };
    let mut lines = install(&check, &polars)?;
    lines.extend(sizes(&check, &folder)?);
    lines.extend(first_list(&check)?);
    Ok(lines)
}

/// The wheel to compare with, downloaded once.
fn polars(workspace: &Path, folder: &Path) -> Result<PathBuf> {
    let wheel = || {
        let mut files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        files.find(|file| file.extension().is_some_and(|end| end == "whl"))
    };
    if wheel().is_none() {
        let python = foreign::uv(workspace)?.with_file_name("python");
        let mut download = Command::new(python);
        shell(
            download.args(["-m", "pip", "download", "--quiet", "--no-deps", POLARS, "--dest"]).arg(folder),
        )?;
    }
    wheel().context("no wheel was downloaded")
}

/// Bar 1: from nothing to a command that runs.
fn install(check: &Check<'_>, polars: &Path) -> Result<Vec<Line>> {
    let Check { machine, packages, .. } = check;
    let work = machine.work();
    let venv = check.venv("pip")?;
    let remove = |package: &str| {
        let mut pip = machine.command(venv.join("bin/python"));
        printed(pip.args(["-m", "pip", "uninstall", "--quiet", "--yes", package]))
    };
    let version = |program: PathBuf| timed(machine.command(program).arg("--version"));
    let pip = median_seconds(|| {
        let time = check.pip_install(&venv, &[packages.wheel()])? + version(venv.join("bin/toolbay"))?;
        remove("toolbay")?;
        Ok(time)
    })?;
    let other = median_seconds(|| {
        let time = check.pip_install(&venv, &[polars.to_path_buf()])?;
        remove("polars-runtime-32")?;
        Ok(time)
    })?;
    let uv = median_seconds(|| {
        machine.forget()?;
        let venv = check.uv_venv("uv")?;
        Ok(check.uv_install(&venv, &[packages.wheel()])? + version(venv.join("bin/toolbay"))?)
    })?;
    let prefix = work.join("npm");
    let npm = median_seconds(|| {
        machine.forget()?;
        let [command, platform, _] = packages.npm();
        let time = check.npm_install(&prefix, &[command, platform])?;
        let mut npx = machine.command("npx");
        Ok(time + timed(npx.args(["--offline", "toolbay", "--version"]).current_dir(&prefix))?)
    })?;
    let scripts = lifecycle_scripts(check)?;
    let shown = if scripts.is_empty() { "none".to_owned() } else { scripts.join(", ") };
    Ok(vec![
        Line::at_most(1, "pip install --no-index, toolbay --version", pip, 5.0, "s"),
        Line::at_most(1, &format!("the same, with pip install {POLARS} as the limit"), pip, other, "s"),
        Line::at_most(1, "uv pip install --offline, toolbay --version", uv, 2.0, "s"),
        Line::at_most(1, "npm install --offline --ignore-scripts, npx toolbay --version", npm, 6.0, "s"),
        Line::fact(1, "lifecycle scripts of npm packages", &shown, "none", scripts.is_empty()),
    ])
}

/// The scripts that npm would run for our packages.
fn lifecycle_scripts(check: &Check<'_>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for package in check.packages.npm() {
        let mut tar = Command::new("tar");
        let manifest = printed(tar.arg("-xzOf").arg(&package).arg("package/package.json"))?;
        let manifest: Value = serde_json::from_str(&manifest)?;
        let has = |name: &&&str| manifest.get("scripts").is_some_and(|scripts| scripts.get(name).is_some());
        found.extend(LIFECYCLE.iter().filter(has).map(|name| format!("{}: {name}", package.display())));
    }
    Ok(found)
}

/// Bar 2: sizes, and what the files depend on.
fn sizes(check: &Check<'_>, folder: &Path) -> Result<Vec<Line>> {
    let Check { workspace, machine, packages } = check;
    let megabytes = |file: &Path| anyhow::Ok(std::fs::metadata(file)?.len() as f64 / MEGABYTE);
    let target = machine.work().join("target");
    let mut pip = machine.command(check.venv("pip")?.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--target"]).arg(&target);
    printed(pip.args([packages.wheel(), packages.plugins_wheel()]))?;
    let plugins_bytes = bytes_below(&target.join("toolbay_plugins"))?;
    let wheel_bytes = bytes_below(&target)? - plugins_bytes;
    let npm = machine.work().join("npm/node_modules");
    let npm_bytes = bytes_below(&npm)?;
    let module = |module: Module| match module {
        Module::Node => npm.join(packages.npm_platform_name()).join(module.path()),
        Module::Python => target.join(module.path()),
    };
    let files = BuiltFiles {
        program: target.join("bin/toolbay"),
        modules: Module::ALL.map(|one| (one, module(one))).into(),
        plugins: target.join("toolbay_plugins/plugins"),
    };
    let repeated = dist::package(workspace, &files, Packing::Shipped, &folder.join("again"))?;
    let pairs = [(packages.wheel(), repeated.wheel()), (packages.npm_platform(), repeated.npm_platform())];
    let mut equal = true;
    for (one, other) in pairs {
        equal &= std::fs::read(one)? == std::fs::read(other)?;
    }
    let mut newest = None;
    for file in files.native_files() {
        newest = newest.max(newest_glibc(&std::fs::read(file)?));
    }
    let shown = newest.map_or_else(|| "static".to_owned(), |minor| format!("2.{minor}"));
    Ok(vec![
        Line::at_most(2, "wheel", megabytes(&packages.wheel())?, 36.0, "MB"),
        Line::at_most(2, "npm package of the platform", megabytes(&packages.npm_platform())?, 36.0, "MB"),
        Line::at_most(2, "installed by pip", wheel_bytes as f64 / MEGABYTE, 85.0, "MB"),
        Line::at_most(2, "installed by npm", npm_bytes as f64 / MEGABYTE, 85.0, "MB"),
        Line::fact(2, "packaged twice", if equal { "equal" } else { "different" }, "equal", equal),
        Line::fact(2, "newest symbol of glibc", &shown, "≤ 2.17", newest.is_none_or(|minor| minor <= GLIBC)),
    ])
}

/// The size of all files below a folder.
fn bytes_below(folder: &Path) -> Result<u64> {
    let (mut bytes, mut folders) = (0, vec![folder.to_path_buf()]);
    while let Some(current) = folders.pop() {
        for entry in
            std::fs::read_dir(&current).with_context(|| format!("cannot read `{}`", current.display()))?
        {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                bytes += metadata.len();
            }
        }
    }
    Ok(bytes)
}

/// The highest `N` of the versions `GLIBC_2.N` that a program names; `None` if it names none.
fn newest_glibc(program: &[u8]) -> Option<u32> {
    const START: &[u8] = b"GLIBC_2.";
    let found = program.windows(START.len() + 2).filter_map(|window| {
        let digits: Vec<u8> =
            window.strip_prefix(START)?.iter().copied().take_while(u8::is_ascii_digit).collect();
        String::from_utf8(digits).ok()?.parse().ok()
    });
    found.max()
}

/// Bar 3: from the start of the command to the first list of tools.
fn first_list(check: &Check<'_>) -> Result<Vec<Line>> {
    let Check { machine, packages, .. } = check;
    let plugins = machine.work().join("target/toolbay_plugins/plugins");
    let two = machine.work().join("two");
    emptied(&two)?;
    for name in ["text.wasm", "files.wasm"] {
        std::fs::copy(plugins.join(name), two.join(name))?;
    }
    let uvx = || {
        let mut command = check.uvx_command();
        command.arg("toolbay");
        command
    };
    let empty = median_seconds(|| {
        machine.forget()?;
        time_to_list(check, &mut uvx(), &two)
    })?;
    // A server that ends while it compiles has a part of them in the cache only.
    let mut compile = uvx();
    printed(compile.args(["list", "--plugins"]).arg(&plugins).args(check.own_state()))?;
    let cached = median_seconds(|| time_to_list(check, &mut uvx(), &plugins))?;
    let prefix = machine.work().join("npm");
    let [command, platform, _] = packages.npm();
    check.npm_install(&prefix, &[command, platform])?;
    let npx = median_seconds(|| {
        let mut command = machine.command("npx");
        command.args(["--offline", "toolbay"]).current_dir(&prefix);
        time_to_list(check, &mut command, &plugins)
    })?;
    Ok(vec![
        Line::at_most(3, "uvx --offline toolbay serve, empty caches, text and files", empty, 3.0, "s"),
        Line::at_most(3, "uvx --offline toolbay serve, twelve plugins in the cache", cached, 0.6, "s"),
        Line::at_most(3, "npx toolbay serve, beyond uvx", npx - cached, 0.3, "s"),
    ])
}

/// The time from the start of a server to its answer of `tools/list`.
fn time_to_list(check: &Check<'_>, command: &mut Command, plugins: &Path) -> Result<Duration> {
    let start = Instant::now();
    let mut server = StdioServer::start(command.arg("serve").arg(plugins).args(check.own_state()))?;
    let tools = server.tools()?;
    let time = start.elapsed();
    ensure!(!tools.is_empty(), "the server lists no tools");
    ensure!(server.end()?.success(), "the server failed");
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_the_highest_number() {
        assert_eq!(newest_glibc(b"..GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.9\0"), Some(17));
        assert_eq!(newest_glibc(b"GLIBC_PRIVATE\0GLIBC_2."), None);
    }
}
