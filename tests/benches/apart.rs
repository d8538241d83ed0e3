//! Parts of a benchmark that need their own process because their memory is measured. The process is this program
//! again, with a variable that names the part.

use std::process::Command;

use crate::process::status_kib;

const PART: &str = "TOOLBAY_BENCH_PART";
const FIGURE: &str = "figure: ";

/// The part of this process.
pub(crate) fn asked() -> Option<String> {
    std::env::var(PART).ok()
}

/// Prints the figure of the part.
pub(crate) fn print_figure(figure: f64) {
    println!("{FIGURE}{figure}");
}

/// Runs a part of a benchmark in a new process.
pub(crate) fn figure(bench: &str, part: &str) -> f64 {
    let program = std::env::current_exe().unwrap();
    let out = Command::new(program)
        .args(["--bench", bench])
        .env(PART, part)
        .env_remove("TOOLBAY_FIGURES")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let figure = said.lines().find_map(|line| line.strip_prefix(FIGURE));
    figure.and_then(|figure| figure.parse().ok()).unwrap_or_else(|| panic!("{bench} {part}: {out:?}"))
}

/// The peak of the resident memory from a moment on, in KiB above the value at that moment.
pub(crate) struct PeakMemory(u64);

impl PeakMemory {
    pub(crate) fn from_here() -> Self {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        Self(most())
    }

    pub(crate) fn kib(&self) -> f64 {
        (most() - self.0) as f64
    }
}

fn most() -> u64 {
    status_kib(std::process::id(), "VmHWM").unwrap()
}

/// The memory of this process in KiB: the resident size and the proportional size, which counts a page with many mappings
/// once.
pub(crate) fn memory() -> [f64; 2] {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    ["Rss:", "Pss:"].map(|key| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    })
}
