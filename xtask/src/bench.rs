//! `bench`: builds and runs the benchmarks, reports the load of the machine, and writes the headline figures as JSON.

pub(crate) mod figures;
pub(crate) mod machine;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use xtask::wasm;

use crate::foreign::shell;
use crate::{replicas, test};
use machine::Machine;

/// The benchmarks of `--quick`, which give the headline figures.
const HEADLINE: &[&str] = &["calls", "native", "fairness", "protocol", "scale"];

/// The command line.
#[derive(Debug, Default)]
struct BenchArgs<'a> {
    quick: bool,
    plots: bool,
    json: Option<&'a str>,
    /// The figures of an earlier run, to show beside this one.
    against: Option<&'a str>,
    names: Vec<&'a str>,
}

/// Builds, checks the machine, runs.
pub(crate) fn run(workspace: &Path, args: &[&str]) -> Result<()> {
    let asked = BenchArgs::of(args)?;
    // Read first, because this run may write the same file.
    let earlier = asked.against.map(figures::read).transpose()?;
    build(workspace)?;
    let before = Machine::before()?;
    let start = Instant::now();
    let file = wasm::target_dir(workspace).join("figures.json");
    // Results of an earlier run would be read as results of this one.
    drop(std::fs::remove_file(&file));
    let mut bench = test::native_cargo(workspace);
    bench.args(["bench", "--bench", "all", "--"]).args(&asked.names).env("TOOLBAY_FIGURES", &file);
    bench.env("TOOLBAY_NATS_SERVER", replicas::nats_server(workspace)?);
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
    if let Some(file) = asked.json {
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
    shell(test::native_cargo(workspace).args(programs))?;
    shell(test::native_cargo(workspace).args(["bench", "--bench", "all", "--no-run"]))
}

impl<'a> BenchArgs<'a> {
    fn of(args: &[&'a str]) -> Result<Self> {
        let (mut asked, mut args) = (Self::default(), args.iter());
        while let Some(arg) = args.next() {
            let mut file =
                || args.next().copied().with_context(|| format!("`{arg}` needs the name of a file"));
            match *arg {
                "--quick" => asked.quick = true,
                "--plots" => asked.plots = true,
                "--json" => asked.json = Some(file()?),
                "--against" => asked.against = Some(file()?),
                option if option.starts_with('-') => {
                    bail!(
                        "no option `{option}`: `--quick`, `--plots`, `--json FILE`, `--against FILE`, NAME…"
                    )
                }
                name => asked.names.push(name),
            }
        }
        Ok(asked)
    }
}
