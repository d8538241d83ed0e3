//! What the crate costs a program: builds and starts the program of the tutorial `first-agent` as the page says, and builds a
//! program with wasmtime alone beside it. Writes the figures into the page.
//!
//! Both programs get the workspace's lock, as the page says, the same profile, and a target folder of their own.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{ArriveArgs, Line};
use crate::bench::machine::Machine;
use crate::folder::{emptied, read_text, read_tutorial, write_between};
use crate::foreign::shell;
use crate::programs::printed;
use crate::steps::process::cpu_seconds_at_end;
use crate::{cargo, plugins, tutorials};

/// The page whose program is measured, and what encloses the figures there.
const PAGE: &str = "first-agent";
const MARKS: [&str; 2] = ["<!-- cargo xtask arrive -->", "<!-- end of cargo xtask arrive -->"];
/// What the program prints of its first call, which runs a plugin.
const FIRST_RESULT: &str = r#""words":6"#;
/// Number of starts with a filled cache. Their median is reported.
const STARTS: usize = 5;
/// How often the memory of a running program is read.
const POLL: Duration = Duration::from_millis(1);

/// The packages of the crate at most: by default, and without features.
const MAX_PACKAGES: f64 = 280.0;
const MAX_BARE_PACKAGES: f64 = 225.0;
/// The processor time of the first build at most, compared with that of a program with wasmtime alone.
const MAX_BUILD_RATIO: f64 = 1.5;
/// The size of the target folder at most, in GB.
const MAX_TARGET_GB: f64 = 2.0;
/// The second start at most, in milliseconds.
const MAX_SECOND_START_MS: f64 = 100.0;

/// The program with wasmtime alone. It compiles a component and has a WASI context, so that both are linked.
const BARE_PROGRAM: &str = "fn main() -> wasmtime::Result<()> {
    let file = std::env::args().nth(1).unwrap_or_default();
    let component = wasmtime::component::Component::from_file(&wasmtime::Engine::default(), file)?;
    let context = wasmtime_wasi::WasiCtx::builder().build();
    println!(\"{} {}\", component.serialize()?.len(), std::mem::size_of_val(&context));
    Ok(())
}
";

/// A figure of the page.
#[derive(Debug)]
struct CostLine {
    what: &'static str,
    measured: f64,
    unit: &'static str,
    /// The limit of bar 11, if the figure has one.
    most: Option<f64>,
}

/// What the first build of a program takes.
struct BuildCost {
    wall: Duration,
    /// Seconds of processor time.
    cpu: f64,
    target_bytes: u64,
    program: PathBuf,
}

/// What one run of a program takes.
struct StartCost {
    wall: Duration,
    /// The highest resident memory, in KiB.
    resident_kib: u64,
}

/// Measures, and writes the figures into the page. Returns those that have a limit.
pub(super) fn lines(workspace: &Path, args: &ArriveArgs) -> Result<Vec<Line>> {
    plugins::run(workspace)?;
    let worker = compile_worker(workspace, args)?;
    let folder = wasm::target_dir(workspace).join("arrive/crate");
    emptied(&folder)?;
    // The page expects the checkout beside the program.
    symlink(workspace, folder.join("toolbay"))?;
    let page = read_tutorial(workspace, PAGE)?;
    let page_files = tutorials::files(&page);
    let agent = folder.join("agent");
    let source = read_text(&workspace.join("host/runtime/examples/embed.rs"))?;
    make_package(workspace, &agent, &page_files, &source)?;
    fs::create_dir_all(agent.join("work/notes"))?;
    fs::write(agent.join("work/notes/plan.md"), "# Plan\n")?;
    let bare = folder.join("bare");
    let manifest = bare_manifest(workspace)?;
    make_package(workspace, &bare, &[("Cargo.toml", manifest.as_str())], BARE_PROGRAM)?;

    let (before, begin) = (Machine::before()?, Instant::now());
    let alone = first_build(workspace, &bare)?;
    let build = first_build(workspace, &agent)?;
    let arguments = [Path::new("toolbay.toml"), &wasm::target_dir(workspace).join("plugins"), &worker];
    let cache = folder.join("cache");
    let first = start(&agent, &build.program, arguments, &cache)?;
    let mut later = (0..STARTS)
        .map(|_| start(&agent, &build.program, arguments, &cache))
        .collect::<Result<Vec<StartCost>>>()?;
    later.sort_by_key(|start| start.wall);
    let second = later.get(STARTS / 2).context("no start was measured")?;
    let conditions = before.until_now(begin.elapsed())?;

    let line = |what, measured, unit, most| CostLine { what, measured, unit, most };
    let lines = vec![
        line("packages, by default", packages(workspace, &[])?, "", Some(MAX_PACKAGES)),
        line(
            "packages, without features",
            packages(workspace, &["--no-default-features"])?,
            "",
            Some(MAX_BARE_PACKAGES),
        ),
        line("first build, wall time", build.wall.as_secs_f64(), "s", None),
        line("first build, processor time", build.cpu, "s", None),
        line(
            "first build, processor time to that of wasmtime alone",
            build.cpu / alone.cpu,
            "times",
            Some(MAX_BUILD_RATIO),
        ),
        line("size of `target`", build.target_bytes as f64 / 1e9, "GB", Some(MAX_TARGET_GB)),
        line("size of the program", fs::metadata(&build.program)?.len() as f64 / 1e6, "MB", None),
        line("first start, compiles all plugins", first.wall.as_secs_f64() * 1e3, "ms", None),
        line("second start", second.wall.as_secs_f64() * 1e3, "ms", Some(MAX_SECOND_START_MS)),
        line("resident memory", second.resident_kib as f64 / 1024.0, "MiB", None),
    ];
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let text = format!(
        "\nA debug build on {processors} processors; {}.\n\n{}",
        conditions.describe(),
        table(&lines)
    );
    write_between(&workspace.join(format!("docs/tutorials/{PAGE}.md")), MARKS, &text)?;
    let limited =
        |line: &CostLine| line.most.map(|most| Line::at_most(11, line.what, line.measured, most, line.unit));
    Ok(lines.iter().filter_map(limited).collect())
}

/// The figures as a table of the page.
fn table(lines: &[CostLine]) -> String {
    let row = |line: &CostLine| {
        let digits = if line.measured >= 10.0 { 0 } else { 2 };
        let shown = format!("{:.digits$} {}", line.measured, line.unit);
        format!("| {} | {} |\n", line.what, shown.trim_end())
    };
    format!("| | |\n|---|---|\n{}", lines.iter().map(row).collect::<String>())
}

/// Makes a package with these files and the lock of the workspace, so that it has the wasmtime of the command.
fn make_package(workspace: &Path, folder: &Path, files: &[(&str, &str)], main: &str) -> Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/main.rs"), main)?;
    for (name, text) in files {
        // The folder is below this workspace, but the package is none of its members.
        let end = if *name == "Cargo.toml" { "\n\n[workspace]\n" } else { "\n" };
        fs::write(folder.join(name), format!("{text}{end}"))?;
    }
    ensure!(folder.join("Cargo.toml").exists(), "the page `{PAGE}` shows no `Cargo.toml`");
    fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    Ok(())
}

/// A manifest with the wasmtime of the workspace, the features that the crate `toolbay` has by default, and the profile of the page.
fn bare_manifest(workspace: &Path) -> Result<String> {
    let manifest: toml::Table = read_text(&workspace.join("Cargo.toml"))?.parse()?;
    let shared = manifest.get("workspace").and_then(|table| table.get("dependencies"));
    let shared = shared.context("the workspace lists no dependencies")?;
    let of = |name: &str| shared.get(name).cloned().with_context(|| format!("the workspace has no `{name}`"));
    let mut dependencies = toml::Table::new();
    for name in ["wasmtime", "wasmtime-wasi"] {
        dependencies.insert(name.to_owned(), of(name)?);
    }
    let sandbox: toml::Table = read_text(&workspace.join("host/sandbox/Cargo.toml"))?.parse()?;
    let of_compiler = sandbox.get("features").and_then(|features| features.get("compiler")?.as_array());
    let of_compiler = of_compiler.context("the sandbox has no feature `compiler`")?;
    let features =
        dependencies.get_mut("wasmtime").and_then(|table| table.get_mut("features")?.as_array_mut());
    features.context("wasmtime has no features")?.extend(
        of_compiler
            .iter()
            .filter_map(|one| Some(toml::Value::from(one.as_str()?.strip_prefix("wasmtime/")?))),
    );
    let dependencies = toml::Table::from_iter([("dependencies".to_owned(), dependencies.into())]);
    Ok(format!(
        "[package]\nname = \"bare\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n{}\n\
         [profile.dev.package.\"*\"]\ndebug = false",
        toml::to_string(&dependencies)?
    ))
}

/// Builds a program for the first time, after its packages were downloaded.
fn first_build(workspace: &Path, folder: &Path) -> Result<BuildCost> {
    let target = folder.join("target");
    let in_folder = |args: &[&str]| {
        let mut command = cargo::cargo(workspace);
        command.args(args).current_dir(folder).env("CARGO_TARGET_DIR", &target);
        command.env_remove("CARGO_BUILD_BUILD_DIR");
        command
    };
    shell(&mut in_folder(&["fetch", "--quiet"]))?;
    let begin = Instant::now();
    let mut child = in_folder(&["build", "--quiet", "--offline"]).stdin(Stdio::null()).spawn()?;
    let cpu = cpu_seconds_at_end(&child);
    let wall = begin.elapsed();
    let status = child.wait()?;
    ensure!(status.success(), "`cargo build` in `{}` ended with {status}", folder.display());
    let name = folder.file_name().context("a package has a name")?;
    let program = target.join("debug").join(name);
    Ok(BuildCost { wall, cpu, target_bytes: disk_bytes(&target, &mut BTreeSet::new())?, program })
}

/// The bytes that a folder takes on the disk. A file with several names counts once.
fn disk_bytes(folder: &Path, seen: &mut BTreeSet<u64>) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            bytes += disk_bytes(&entry.path(), seen)?;
        } else if seen.insert(meta.ino()) {
            bytes += meta.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// The program that compiles plugins: that of the command line, or one that is built now.
fn compile_worker(workspace: &Path, args: &ArriveArgs) -> Result<PathBuf> {
    if let Some(program) = &args.program {
        return Ok(program.clone());
    }
    shell(cargo::cargo(workspace).args(["build", "--release", "--bin", "toolbay"]))?;
    Ok(wasm::target_dir(workspace).join("release/toolbay"))
}

/// Runs the program of the page, with the arguments of the page.
fn start(folder: &Path, program: &Path, arguments: [&Path; 3], cache: &Path) -> Result<StartCost> {
    let output = folder.join("output.txt");
    let mut command = Command::new(program);
    command.current_dir(folder).args(arguments).env("TOOLBAY_CACHE", cache);
    let begin = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(File::create(&output)?).spawn()?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut resident_kib = 0;
    let status = loop {
        // It is gone when the program has ended.
        if let Some(kib) = fs::read_to_string(&status_file).ok().as_deref().and_then(peak_kib) {
            resident_kib = kib;
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(POLL);
    };
    let wall = begin.elapsed();
    let text = read_text(&output)?;
    ensure!(status.success() && text.contains(FIRST_RESULT), "the program ended with {status}: {text}");
    Ok(StartCost { wall, resident_kib })
}

/// The highest resident memory in `/proc/ID/status`, in KiB.
fn peak_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// The number of packages that the crate is built from.
fn packages(workspace: &Path, features: &[&str]) -> Result<f64> {
    let mut tree = cargo::cargo(workspace);
    tree.args(["tree", "--edges", "normal", "--package", "toolbay", "--prefix", "none"]).args(features);
    Ok(count_packages(&printed(&mut tree)?) as f64)
}

/// The packages of a `cargo tree`, each with its version. A repeated one has a mark after them.
fn count_packages(tree: &str) -> usize {
    let package = |line: &str| line.split(" (").next().unwrap_or_default().trim().to_owned();
    tree.lines().map(package).filter(|package| !package.is_empty()).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_what_is_built_and_a_place_for_the_figures() {
        let page = read_tutorial(&wasm::workspace().unwrap(), PAGE).unwrap();
        let names: Vec<&str> = tutorials::files(&page).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Cargo.toml", "toolbay.toml"]);
        assert!(MARKS.iter().all(|mark| page.contains(mark)));
        assert!(page.contains("$ cp ../toolbay/Cargo.lock ."), "`make_package` copies the lock");
        assert!(page.contains(FIRST_RESULT.trim_end_matches('6')), "the result that each start must print");
    }

    #[test]
    fn a_repeated_package_counts_once_and_each_version_for_itself() {
        let tree = "toolbay v0.1.0 (/x)\na v1.0.0\na v2.0.0\na v1.0.0 (*)\nmacros v0.1.0 (proc-macro)\n\n";
        assert_eq!(count_packages(tree), 4);
    }

    #[test]
    fn figures_become_rows() {
        let line = |measured, unit| CostLine { what: "a figure", measured, unit, most: None };
        let table = table(&[line(278.0, ""), line(1.437, "times")]);
        assert_eq!(table, "| | |\n|---|---|\n| a figure | 278 |\n| a figure | 1.44 times |\n");
    }

    #[test]
    fn the_peak_of_a_process_is_read() {
        assert_eq!(peak_kib("Name:\tx\nVmHWM:\t    5120 kB\nVmRSS:\t 4 kB\n"), Some(5120));
        assert_eq!(peak_kib("Name:\tx\n"), None);
    }
}
