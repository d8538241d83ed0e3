//! Records figures: one JSON object, in the file that the variable `TOOLBAY_FIGURES` names.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

static KEPT: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());

/// Records a figure.
pub(crate) fn keep(name: &str, value: f64) {
    // Three decimal places are more than any run can measure.
    let value = (value * 1e3).round() / 1e3;
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value);
}

/// The recorded figure of a name.
pub(crate) fn kept(name: &str) -> Option<f64> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
}

/// Prints a table, and appends it to the file that the variable `TOOLBAY_TABLES` names.
pub(crate) fn print_table(table: &str) {
    println!("{table}");
    if let Some(file) = std::env::var_os("TOOLBAY_TABLES") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
        file.write_all(table.as_bytes()).unwrap();
    }
}

/// Writes the recorded figures.
pub(crate) fn write(path: &Path) {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let text = serde_json::to_string_pretty(&*kept).unwrap();
    std::fs::write(path, text + "\n").unwrap();
}

/// Whether few rounds are enough: the variable `TOOLBAY_QUICK` is set.
pub(crate) fn quick() -> bool {
    std::env::var_os("TOOLBAY_QUICK").is_some()
}

/// `rounds`, or a third of them if few are enough.
pub(crate) fn rounds(rounds: usize) -> usize {
    if quick() { rounds.div_ceil(3) } else { rounds }
}

/// The median; 0 without values.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The time of a function in microseconds.
pub(crate) fn timed(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64() * 1e6
}

/// The median and a high percentile of some times.
pub(crate) struct FigureSpread {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl FigureSpread {
    pub(crate) fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self { p50: times[times.len() / 2], p99: times[times.len() * 99 / 100] }
    }
}
