//! Runs the steps of a command side by side, each in a process of its own, and reports what each cost.
//!
//! A step starts when the steps that it needs have passed. Its output goes to `target/steps/NAME.log`, and is printed if it
//! fails. A step that exceeds its limit is ended with everything that it started.

pub(crate) mod process;
mod report;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// One part of a command.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// The steps whose results it uses.
    pub(crate) needs: &'static [&'static str],
    /// A step that takes longer hangs. A quiet machine needs less than half of this.
    pub(crate) limit: Duration,
    pub(crate) run: fn(&Path) -> Result<()>,
}

/// What came of a step.
#[derive(Debug)]
struct StepResult {
    name: &'static str,
    outcome: Outcome,
    wall: Duration,
    /// Seconds of processor time, with all processes that ended.
    cpu: f64,
    log: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// The step exceeded its limit.
    Hung,
}

/// A step in its process.
struct RunningStep {
    step: &'static Step,
    /// The process ends itself, and all that it started, when this is closed.
    lifeline: Option<ChildStdin>,
    start: Instant,
    log: PathBuf,
}

/// The end of a process.
struct Ended {
    name: &'static str,
    status: std::io::Result<ExitStatus>,
    cpu: f64,
}

/// Runs steps, or only the named ones and what they need.
///
/// # Errors
/// A step failed, or a name is unknown.
pub(crate) fn run(workspace: &Path, steps: &'static [Step], names: &[String], fail_fast: bool) -> Result<()> {
    let start = Instant::now();
    let mut waiting = select(steps, names)?;
    let folder = wasm::target_dir(workspace).join("steps");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let at_once = std::thread::available_parallelism().map_or(2, usize::from);
    let (mut running, mut results) = (Vec::<RunningStep>::new(), Vec::<StepResult>::new());
    let (sender, ended) = channel();
    loop {
        let stops = fail_fast && results.iter().any(|result| result.outcome != Outcome::Passed);
        while !stops && running.len() < at_once {
            let Some(next) = waiting.iter().position(|step| is_ready(step, &results)) else { break };
            let step = waiting.remove(next);
            println!("==> {}", step.name);
            running.push(start_step(step, &folder, &sender)?);
        }
        if running.is_empty() {
            break;
        }
        let result = wait(&mut running, &ended)?;
        report::print_result(&result);
        results.push(result);
    }
    let passed = results.iter().all(|result| result.outcome == Outcome::Passed) && waiting.is_empty();
    report::print_table(&results, &waiting, start.elapsed(), &wasm::target_dir(workspace));
    if !passed {
        let failed = results.iter().filter(|result| result.outcome != Outcome::Passed);
        bail!("failed: {}", failed.map(|result| result.name).collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// Runs one step in this process, which [`run`] started.
///
/// # Errors
/// The step failed, or no step has this name.
pub(crate) fn run_here(workspace: &Path, steps: &[&'static [Step]], name: &str) -> Result<()> {
    let step = steps.iter().copied().flatten().find(|step| step.name == name);
    let step = step.with_context(|| format!("no step `{name}`"))?;
    process::isolated(|| (step.run)(workspace))
}

/// The named steps with what they need, in the order of the table; all without names.
fn select(steps: &'static [Step], names: &[String]) -> Result<Vec<&'static Step>> {
    let mut chosen: Vec<&str> = Vec::new();
    let mut open: Vec<&str> = names.iter().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        let Some(step) = steps.iter().find(|step| step.name == name) else {
            let known: Vec<_> = steps.iter().map(|step| step.name).collect();
            bail!("no step `{name}`; there are {}", known.join(", "));
        };
        open.extend(step.needs);
        chosen.push(step.name);
    }
    Ok(steps.iter().filter(|step| names.is_empty() || chosen.contains(&step.name)).collect())
}

fn is_ready(step: &Step, results: &[StepResult]) -> bool {
    let passed =
        |name: &str| results.iter().any(|result| result.name == name && result.outcome == Outcome::Passed);
    step.needs.iter().all(|name| passed(name))
}

/// Starts the process of a step, and a thread that waits for its end.
fn start_step(step: &'static Step, folder: &Path, ended: &Sender<Ended>) -> Result<RunningStep> {
    let log = folder.join(step.name).with_extension("log");
    let file = File::create(&log).with_context(|| format!("step `{}`: `{}`", step.name, log.display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["step", step.name]).stdin(Stdio::piped());
    let mut child = command
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("cannot start the step `{}`", step.name))?;
    let lifeline = child.stdin.take();
    let (name, ended) = (step.name, ended.clone());
    // It ends with the process.
    std::thread::spawn(move || {
        let cpu = process::cpu_seconds_at_end(&child);
        let status = child.wait();
        ended.send(Ended { name, status, cpu }).ok();
    });
    Ok(RunningStep { step, lifeline, start: Instant::now(), log })
}

/// Waits until a step ends, and ends the steps that exceed their limits.
fn wait(running: &mut Vec<RunningStep>, ended: &Receiver<Ended>) -> Result<StepResult> {
    loop {
        let left = |one: &RunningStep| one.step.limit.saturating_sub(one.start.elapsed());
        let next = running.iter().filter(|one| one.lifeline.is_some()).map(left).min();
        match ended.recv_timeout(next.unwrap_or(process::END_TIMEOUT)) {
            Ok(Ended { name, status, cpu }) => {
                let place = running.iter().position(|one| one.step.name == name);
                let one = running.remove(place.context("an unknown step ended")?);
                let outcome = match (one.lifeline.is_none(), status) {
                    (true, _) => Outcome::Hung,
                    (false, Ok(status)) if status.success() => Outcome::Passed,
                    (false, _) => Outcome::Failed,
                };
                return Ok(StepResult { name, outcome, wall: one.start.elapsed(), cpu, log: one.log });
            }
            Err(RecvTimeoutError::Timeout) if next.is_none() => bail!("a step does not end"),
            Err(RecvTimeoutError::Timeout) => {
                for one in running.iter_mut().filter(|one| left(one).is_zero()) {
                    one.lifeline = None;
                }
            }
            Err(RecvTimeoutError::Disconnected) => bail!("nothing waits for the steps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(name: &'static str, needs: &'static [&'static str]) -> Step {
        Step { name, needs, limit: Duration::from_secs(1), run: |_| Ok(()) }
    }

    static STEPS: [Step; 4] = [step("a", &[]), step("b", &["a"]), step("c", &["b"]), step("d", &[])];

    fn selected(names: &[&str]) -> Result<Vec<&'static str>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(select(&STEPS, &names)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn a_named_step_brings_what_it_needs() {
        assert_eq!(selected(&[]).unwrap(), ["a", "b", "c", "d"]);
        assert_eq!(selected(&["c"]).unwrap(), ["a", "b", "c"]);
        assert_eq!(selected(&["d", "a"]).unwrap(), ["a", "d"]);
        assert!(selected(&["e"]).unwrap_err().to_string().contains("there are a, b, c, d"));
    }

    #[test]
    fn a_step_waits_until_what_it_needs_has_passed() {
        let result =
            |outcome| StepResult { name: "a", outcome, wall: Duration::ZERO, cpu: 0.0, log: PathBuf::new() };
        let [first, second, ..] = &STEPS;
        assert!(is_ready(first, &[]));
        assert!(!is_ready(second, &[]));
        assert!(!is_ready(second, &[result(Outcome::Failed)]));
        assert!(is_ready(second, &[result(Outcome::Passed)]));
    }
}
