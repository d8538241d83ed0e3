//! `cargo xtask fuzz [--seconds N] [--seed N] [TARGET | FILE]`: runs all targets, one target, or one failed input.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fuzz::{FuzzTarget, TARGETS, run};

fn main() -> ExitCode {
    match go() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn go() -> Result<()> {
    let (mut seconds, mut seed, mut wanted) = (60, 1, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = |what: &str| -> Result<u64> {
            let text = args.next().with_context(|| format!("`{what}` wants a number"))?;
            text.parse().with_context(|| format!("`{what} {text}`"))
        };
        match arg.as_str() {
            "--seconds" => seconds = number("--seconds")?,
            "--seed" => seed = number("--seed")?,
            _ => wanted = Some(arg),
        }
    }
    if let Some(file) = wanted.as_deref().filter(|name| Path::new(name).is_file()) {
        return again(Path::new(file));
    }
    let targets: Vec<&FuzzTarget> =
        TARGETS.iter().filter(|target| wanted.as_deref().is_none_or(|name| name == target.name)).collect();
    if targets.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        bail!("no such target; there are: {}", names.join(", "));
    }
    let mut failed = 0;
    for target in &targets {
        match run(target, Duration::from_secs(seconds), seed) {
            Ok(run) => println!(
                "{:<14} {:>9} inputs, {:>9} taken, the longest {:?}",
                target.name, run.inputs, run.taken, run.longest
            ),
            Err(problem) => {
                println!("{problem}");
                failed += 1;
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} targets failed", targets.len());
    }
    Ok(())
}

/// Runs an input again. Its file is named after its target.
fn again(file: &Path) -> Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let target = TARGETS
        .iter()
        .find(|target| name.starts_with(target.name))
        .context("the name of the file starts with no target")?;
    match (target.run)(&std::fs::read(file)?) {
        Ok(verdict) => println!("{}: {verdict:?}", target.name),
        Err(problem) => bail!("{}: {problem}", target.name),
    }
    Ok(())
}
