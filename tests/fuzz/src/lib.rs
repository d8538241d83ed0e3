//! Fuzzing on the stable toolchain: parsers of untrusted bytes get nearly valid input.
//!
//! Coverage does not guide the search. Inputs are made from seeds (`corpus/<target>`, one input per file, and seeds of
//! the targets), which are cut, joined, flipped and repeated, with words of the seeds as a dictionary. A run is
//! deterministic for its seed number. A target checks more than "no panic": printed values parse again, the
//! intersection of two rules lies in both, two parsers agree. An input that breaks a property, or takes too much time
//! or memory, is written to a file and ends the run.
//!
//! `cargo xtask fuzz [--seconds N] [TARGET]` runs it. The tests run each target for two seconds.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "a failure is to stop the run")]

mod mutate;
pub mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutate::Mutator;
pub use targets::{FuzzTarget, TARGETS};

/// How much the process may grow while a target runs, in MiB.
const MOST_MIB: u64 = 1024;

/// The totals of a run.
#[derive(Debug)]
pub struct FuzzRun {
    /// Inputs that were tried.
    pub inputs: u64,
    /// Inputs that the target accepted, so that their properties were checked.
    pub taken: u64,
    /// The longest time of one input.
    pub longest: Duration,
}

/// The verdict of a target on an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FuzzVerdict {
    /// The target refused the input, which is allowed.
    Refused,
    /// The target accepted the input, and every property held.
    Taken,
}

/// Runs one target for a time.
///
/// # Errors
/// The first input that fails, with the file it was written to.
pub fn run(target: &FuzzTarget, span: Duration, seed: u64) -> Result<FuzzRun, String> {
    let seeds = seeds(target);
    // The seeds come first, unchanged.
    let mut given = seeds.clone().into_iter();
    let mut mutator = Mutator::new(seeds, target.most_bytes, seed);
    let (start, before) = (Instant::now(), resident_mib());
    let mut run = FuzzRun { inputs: 0, taken: 0, longest: Duration::ZERO };
    loop {
        let input = match given.next() {
            Some(input) => input,
            None if start.elapsed() < span => mutator.next_input(),
            None => return Ok(run),
        };
        let (mut verdict, mut took) = attempt(target, &input);
        // On a loaded machine one input may seem slow, so a slow input is tried again.
        if verdict.is_ok() && took > target.most_time {
            (verdict, took) = attempt(target, &input);
            if verdict.is_ok() && took > target.most_time {
                verdict = Err(format!("it took {took:?}, twice"));
            }
        }
        if run.inputs.is_multiple_of(64) && resident_mib() > before + MOST_MIB {
            verdict = Err(format!("the process grew by more than {MOST_MIB} MiB"));
        }
        run.inputs += 1;
        run.longest = run.longest.max(took);
        match verdict {
            Ok(FuzzVerdict::Taken) => run.taken += 1,
            Ok(FuzzVerdict::Refused) => {}
            Err(problem) => return Err(report(target, &input, &problem)),
        }
    }
}

fn attempt(target: &FuzzTarget, input: &[u8]) -> (Result<FuzzVerdict, String>, Duration) {
    let start = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| (target.run)(input)))
        .unwrap_or_else(|_| Err("it panicked; the message is on stderr".to_owned()));
    (verdict, start.elapsed())
}

/// Writes a failing input to the folder of the next run, and prints the path.
fn report(target: &FuzzTarget, input: &[u8], problem: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    let number = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let file = folder.join(format!("{}-{number:016x}", target.name));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, input));
    let place = written.map_or_else(|e| format!("not written: {e}"), |()| file.display().to_string());
    let shown: String = String::from_utf8_lossy(input).chars().take(500).collect();
    format!("{}: {problem}\ninput ({} bytes, {place}): {shown:?}", target.name, input.len())
}

/// The seeds of a target: its own and the files of its folder.
fn seeds(target: &FuzzTarget) -> Vec<Vec<u8>> {
    let mut seeds = (target.seeds)();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    seeds.extend(files.iter().filter_map(|file| fs::read(file).ok()));
    seeds
}

/// The resident size of this process; zero where the system does not report it.
fn resident_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
