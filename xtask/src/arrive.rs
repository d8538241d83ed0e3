//! `arrive`: measures what a new user waits for, and prints each figure beside its limit.
//!
//! The figures are those of this machine at this time. Nothing fails because of them: the step `arrive` of the tests checks
//! that what is measured works.

mod bare_machine;
mod command;
mod crate_cost;
mod installation;
mod launcher;
mod library;
mod node;
mod python;
mod stdio_server;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::bench::machine::Machine;
pub(crate) use installation::{EMBED_IN_NODE, EMBED_IN_PYTHON, check, check_embedded, check_packages};

/// The command line.
#[derive(Debug, clap::Args)]
pub(crate) struct ArriveArgs {
    /// A program of a release build, with `libtoolbay_node.so` and `libtoolbay_python.so` beside it. The part `command` packages
    /// them with the plugins of `target/plugins`, instead of taking the files of `cargo xtask dist`. The parts `python` and `node`
    /// use them instead of those in `target/release`, and the part `crate` compiles plugins with the program.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Measures only these parts: `command`, `crate`, `python`, `node`.
    parts: Vec<String>,
}

/// A figure with its limit.
#[derive(Debug)]
pub(crate) struct Line {
    /// The number of the bar.
    bar: u32,
    what: String,
    figure: String,
    limit: String,
    holds: bool,
}

impl Line {
    /// A figure that must not be larger.
    pub(crate) fn at_most(bar: u32, what: &str, figure: f64, limit: f64, unit: &str) -> Self {
        let [shown, most] = [figure, limit].map(|number| format!("{number:.2} {unit}"));
        Self {
            bar, what: what.to_owned(), figure: shown, limit: format!("≤ {most}"), holds: figure <= limit
        }
    }

    /// A figure that must not be smaller.
    pub(crate) fn at_least(bar: u32, what: &str, figure: f64, limit: f64, unit: &str) -> Self {
        let [shown, least] = [figure, limit].map(|number| format!("{number:.0} {unit}"));
        Self {
            bar,
            what: what.to_owned(),
            figure: shown,
            limit: format!("≥ {least}"),
            holds: figure >= limit,
        }
    }

    /// Something that is so, or is not.
    pub(crate) fn fact(bar: u32, what: &str, figure: &str, limit: &str, holds: bool) -> Self {
        Self { bar, what: what.to_owned(), figure: figure.to_owned(), limit: limit.to_owned(), holds }
    }
}

/// A part of the figures, by name.
type Part = (&'static str, fn(&Path, &ArriveArgs) -> Result<Vec<Line>>);

const PARTS: [Part; 4] = [
    ("command", command::lines),
    ("crate", crate_cost::lines),
    ("python", python::lines),
    ("node", node::lines),
];

/// Measures, and prints a line for each figure.
pub(crate) fn run(workspace: &Path, args: &ArriveArgs) -> Result<()> {
    let known: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
    if let Some(name) = args.parts.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("no part `{name}`; there are {}", known.join(", "));
    }
    let (before, start) = (Machine::before()?, Instant::now());
    let mut lines = Vec::new();
    for (name, measure) in PARTS {
        if args.parts.is_empty() || args.parts.iter().any(|part| part == name) {
            lines.extend(measure(workspace, args)?);
        }
    }
    println!("\n{:>3}  {:<72} {:>14}  {:<14}", "bar", "what", "figure", "limit");
    for Line { bar, what, figure, limit, holds } in &lines {
        println!(
            "{bar:>3}  {what:<72} {figure:>14}  {limit:<14} {}",
            if *holds { "holds" } else { "MISSED" }
        );
    }
    println!("{}", before.until_now(start.elapsed())?.describe());
    Ok(())
}

/// The middle of three measurements, in seconds.
pub(crate) fn median_seconds(mut measure: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let mut times = [measure()?, measure()?, measure()?];
    times.sort();
    let [_, middle, _] = times;
    Ok(middle.as_secs_f64())
}
