//! Programs that are measured from outside.

use std::path::{Path, PathBuf};
use std::process::Child;

/// A program of the release build, or an instruction to build it.
pub(crate) fn built(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release").join(name);
    if !path.exists() {
        println!("\nno `target/release/{name}`: `cargo xtask bench` builds it");
        return None;
    }
    path.canonicalize().ok()
}

/// A process that is killed when it is dropped.
pub(crate) struct RunningProgram(pub(crate) Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A line of `/proc/PID/status`, in KiB: `VmRSS` is the resident size, `VmHWM` its peak.
pub(crate) fn status_kib(pid: u32, key: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// The CPU time of the live threads, in milliseconds.
pub(crate) fn cpu_ms(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let spent = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    spent.sum::<f64>() / 1e6
}
