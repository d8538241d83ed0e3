//! `counts`: counts the instructions and allocations of a call and compares them with the numbers in the repository. They do
//! not depend on the load of the machine, so a change that makes calls more expensive fails the test command.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::cargo::{self, cargo};
use crate::foreign::{shell, unpacked_package};

/// The file with the expected counts.
const KEPT: &str = "tests/data/counts.json";
/// The settings of cargo for the measured program.
const PROFILE: &str = "xtask/counts.toml";
/// A rise by more than this percentage fails. A fall by more than this must be recorded.
const MOST_PERCENT: f64 = 3.0;
/// The two lengths of a run. Their difference excludes the start of the program.
const CALLS: [u64; 2] = [1000, 3000];
/// The Debian packages with the instrument, for machines without it.
const INSTRUMENT: &str = "valgrind";

/// Counts and compares; with `write`, records the counts.
pub(crate) fn run(workspace: &Path, write: bool) -> Result<()> {
    let program = build(workspace)?;
    let instrument = Instrument::find(workspace)?;
    let [few, many] = CALLS.map(|calls| instrument.instructions(workspace, &program, calls));
    let [first, second] = CALLS;
    let instructions = (many? - few?) / (second - first) as f64;
    let counted = [("instructions", instructions.round()), ("allocations", allocations(&program)?)];
    let file = workspace.join(KEPT);
    if write {
        let kept: Value = counted.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
        let text = serde_json::to_string_pretty(&json!({ "native_call": kept }))?;
        return std::fs::write(&file, text + "\n").with_context(|| format!("cannot write `{KEPT}`"));
    }
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    for (name, count) in counted {
        let before = kept.pointer(&format!("/native_call/{name}")).and_then(Value::as_f64);
        let before = before.with_context(|| format!("`{KEPT}` has no `{name}`"))?;
        compare(name, before, count)?;
    }
    Ok(())
}

fn compare(name: &str, before: f64, now: f64) -> Result<()> {
    let percent = (now / before - 1.0) * 100.0;
    println!("{name} of a call of a native tool: {now:.0}, recorded {before:.0} ({percent:+.1} %)");
    if percent > MOST_PERCENT {
        bail!(
            "a call takes {percent:.1} % more {name}; if the change is worth it, give the reason and run `cargo xtask counts --write`"
        );
    }
    if percent < -MOST_PERCENT {
        println!("note: that is less; record it with `cargo xtask counts --write`");
    }
    Ok(())
}

/// Builds the measured program. The packages that a call passes are optimised; the others are those of the tests,
/// because no package is selected.
fn build(workspace: &Path) -> Result<PathBuf> {
    shell(cargo(workspace).args(["build", "--config", PROFILE, "--example", "hot_path"]))?;
    Ok(cargo::example(workspace, "hot_path"))
}

fn allocations(program: &Path) -> Result<f64> {
    let out = Command::new(program).output()?;
    let text = String::from_utf8(out.stdout)?;
    text.split_whitespace().next().and_then(|count| count.parse().ok()).context("no count of allocations")
}

/// Counts the instructions of a program.
pub(crate) struct Instrument {
    program: PathBuf,
    /// The folder of its libraries, unless it is installed.
    parts: Option<PathBuf>,
}

impl Instrument {
    /// Finds the installed instrument, or unpacks the distribution's package into the target folder.
    pub(crate) fn find(workspace: &Path) -> Result<Self> {
        let works = Command::new(INSTRUMENT).arg("--version").output().is_ok_and(|out| out.status.success());
        if works {
            return Ok(Self { program: INSTRUMENT.into(), parts: None });
        }
        let folder =
            unpacked_package(workspace, INSTRUMENT).context("counting instructions needs valgrind")?;
        let program = folder.join("usr/bin").join(INSTRUMENT);
        Ok(Self { program, parts: Some(folder.join("usr/libexec/valgrind")) })
    }

    fn instructions(&self, workspace: &Path, program: &Path, calls: u64) -> Result<f64> {
        let out = wasm::target_dir(workspace).join("counts.out");
        let mut command = Command::new(&self.program);
        command.args(["--quiet", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", out.display()));
        if let Some(parts) = &self.parts {
            command.env("VALGRIND_LIB", parts);
        }
        shell(command.arg(program).arg(calls.to_string()))?;
        let text = std::fs::read_to_string(&out)?;
        let total =
            text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
        total.and_then(|total| total.trim().parse().ok()).context("the output has no total")
    }
}
