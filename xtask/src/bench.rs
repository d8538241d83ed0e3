//! The benchmarks, with what they need built, the state of the machine told, and the headline figures as JSON.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};
use xtask::wasm;

use crate::foreign::shell;
use crate::test;

/// What `--quick` runs: the benchmarks that give the figures.
const HEADLINE: &[&str] = &["calls", "native", "fairness", "protocol", "scale"];
/// Beyond this load average of the last minute a machine is busy with something else.
const BUSY: f64 = 0.7;

/// What was asked for.
#[derive(Debug, Default)]
struct Asked<'a> {
    quick: bool,
    plots: bool,
    json: Option<&'a str>,
    names: Vec<&'a str>,
}

/// Builds, looks at the machine, runs.
pub(crate) fn run(workspace: &Path, args: &[&str]) -> Result<()> {
    let asked = Asked::of(args)?;
    shell(test::native_cargo(workspace).args([
        "build",
        "--release",
        "--bin",
        "toolbay",
        "--example",
        "bare",
        "--example",
        "hot_path",
    ]))?;
    shell(test::native_cargo(workspace).args(["bench", "--bench", "all", "--no-run"]))?;
    let before = Machine::now()?;
    before.warn();
    let start = Instant::now();
    let figures = wasm::target_dir(workspace).join("figures.json");
    let mut bench = test::native_cargo(workspace);
    bench.args(["bench", "--bench", "all", "--"]).args(&asked.names).env("TOOLBAY_FIGURES", &figures);
    if asked.plots {
        bench.env("TOOLBAY_PLOTS", workspace.join("docs/performance"));
    }
    if asked.quick {
        bench.env("TOOLBAY_QUICK", "1");
        if asked.names.is_empty() {
            bench.args(HEADLINE);
        }
    }
    shell(&mut bench)?;
    let stolen = Machine::now()?.stolen_since(&before, start.elapsed());
    println!(
        "\nmeasured for {:.0} s; {stolen:.1} % of the processors' time was taken by the hypervisor",
        start.elapsed().as_secs_f64()
    );
    if let Some(file) = asked.json {
        let text = std::fs::read_to_string(&figures).context("the benchmarks left no figures")?;
        let mut kept: Map<String, Value> = serde_json::from_str(&text)?;
        kept.insert("load_before".to_owned(), before.load.into());
        kept.insert("stolen_percent".to_owned(), ((stolen * 10.0).round() / 10.0).into());
        std::fs::write(file, serde_json::to_string_pretty(&kept)? + "\n")
            .with_context(|| format!("can not write `{file}`"))?;
        println!(
            "the figures are in `{file}`; ratios of one run can be compared, seconds of two runs can not"
        );
    }
    Ok(())
}

impl<'a> Asked<'a> {
    fn of(args: &[&'a str]) -> Result<Self> {
        let (mut asked, mut args) = (Self::default(), args.iter());
        while let Some(arg) = args.next() {
            match *arg {
                "--quick" => asked.quick = true,
                "--plots" => asked.plots = true,
                "--json" => asked.json = Some(args.next().context("`--json` needs the name of a file")?),
                option if option.starts_with('-') => {
                    bail!("no option `{option}`: `--quick`, `--plots`, `--json FILE`, NAME…")
                }
                name => asked.names.push(name),
            }
        }
        Ok(asked)
    }
}

/// What the kernel says of the machine.
struct Machine {
    /// Load average of the last minute.
    load: f64,
    /// Ticks of all processors that the hypervisor gave to others; a tick is 10 ms.
    stolen: f64,
}

impl Machine {
    fn now() -> Result<Self> {
        let read =
            |path: &str| std::fs::read_to_string(path).with_context(|| format!("can not read `{path}`"));
        let field = |text: &str, n: usize| text.split_whitespace().nth(n).and_then(|word| word.parse().ok());
        let load = field(&read("/proc/loadavg")?, 0).context("no load in `/proc/loadavg`")?;
        Ok(Self { load, stolen: field(&read("/proc/stat")?, 8).unwrap_or_default() })
    }

    /// Says it when others compute. Building is over, but its load is in the average for a while.
    fn warn(&self) {
        if self.load > BUSY {
            println!(
                "note: the load average is {}: figures of a busy machine are worse, and only the ratios of one run mean anything",
                self.load
            );
        }
    }

    /// Percent of the processors' time that others had.
    fn stolen_since(&self, before: &Self, time: Duration) -> f64 {
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        (self.stolen - before.stolen) / time.as_secs_f64() / processors
    }
}
