//! Parts of a benchmark that have a process to themselves, since its memory is what is measured: this program again, with a
//! variable that names the part.

use std::process::Command;

use crate::process::status_kib;

const PART: &str = "TOOLBAY_BENCH_PART";
const FIGURE: &str = "figure: ";

/// The part for which this process was started.
pub(crate) fn asked() -> Option<String> {
    std::env::var(PART).ok()
}

/// Tells the figure of the part.
pub(crate) fn tell(figure: f64) {
    println!("{FIGURE}{figure}");
}

/// Has a part of a benchmark done by a process of its own.
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

/// The most that is resident from a moment on, in KiB more than at that moment.
pub(crate) struct Peak(u64);

impl Peak {
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

/// Memory of this process in KiB: what is resident, and its share of it, in which a page that is mapped many times counts
/// once.
pub(crate) fn memory() -> [f64; 2] {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    ["Rss:", "Pss:"].map(|key| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    })
}
