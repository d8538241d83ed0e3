//! `bench`: builds and runs the benchmarks, reports the load of the machine, and writes the headline figures as JSON.

pub(crate) mod figures;
pub(crate) mod machine;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::foreign::shell;
use crate::{cargo, servers};
use machine::Machine;

/// The benchmarks of `--quick`, which give the headline figures.
const HEADLINE: &[&str] = &["calls", "native", "fairness", "protocol", "scale"];

/// The command line.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Measures the headline figures in less than five minutes.
    #[arg(long)]
    quick: bool,
    /// Draws the curves into `docs/explanation/performance`.
    #[arg(long)]
    plots: bool,
    /// Writes the figures into a file.
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Shows the ratios of an earlier run beside, if the machine was quiet in both.
    #[arg(long, value_name = "FILE")]
    against: Option<String>,
    names: Vec<String>,
}

/// Builds, checks the machine, runs.
pub(crate) fn run(workspace: &Path, asked: &BenchArgs) -> Result<()> {
    // Read first, because this run may write the same file.
    let earlier = asked.against.as_deref().map(figures::read).transpose()?;
    build(workspace)?;
    let before = Machine::before()?;
    let start = Instant::now();
    let file = wasm::target_dir(workspace).join("figures.json");
    // Results of an earlier run would be read as results of this one.
    drop(std::fs::remove_file(&file));
    let mut bench = cargo::cargo(workspace);
    bench.args(["bench", "--bench", "all", "--"]).args(&asked.names).env("TOOLBAY_FIGURES", &file);
    bench.env("TOOLBAY_NATS_SERVER", servers::nats(workspace)?);
    if asked.plots {
        bench.env("TOOLBAY_PLOTS", workspace.join("docs/explanation/performance"));
    }
    if asked.quick {
        bench.env("TOOLBAY_QUICK", "1");
        if asked.names.is_empty() {
            bench.args(HEADLINE);
        }
    }
    shell(&mut bench)?;
    let conditions = before.until_now(start.elapsed())?;
    println!("\nmeasured for {:.0} s; {}", start.elapsed().as_secs_f64(), conditions.describe());
    let mut kept = figures::read(&file.display().to_string()).context("the benchmarks left no figures")?;
    kept.extend(conditions.figures());
    if let Some(file) = &asked.json {
        figures::write(file, &kept)?;
        println!(
            "the figures are in `{file}`; ratios of one run can be compared, seconds of two runs cannot"
        );
        // A selection by name gives only some of them.
        if asked.names.is_empty() {
            figures::complete(&kept)?;
        }
    }
    earlier.map_or(Ok(()), |earlier| figures::compare(&earlier, &kept))
}

/// Builds the programs and the benchmarks.
pub(crate) fn build(workspace: &Path) -> Result<()> {
    let programs = ["build", "--release", "--bin", "toolbay", "--example", "bare", "--example", "hot_path"];
    shell(cargo::cargo(workspace).args(programs))?;
    shell(cargo::cargo(workspace).args(["bench", "--bench", "all", "--no-run"]))
}
