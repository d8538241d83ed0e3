//! Measures the load of the machine during a run. Figures of a busy machine are worse and cannot be compared with
//! those of another run.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

/// The percentage of CPU time that other processes may take before and after a run.
const BUSY_PERCENT: f64 = 10.0;
/// The percentage of CPU time that the hypervisor may give to others during the run.
const STOLEN_PERCENT: f64 = 2.0;
/// Above this load average of the last minute, other work was running, or a compiler a moment ago.
const LOADED: f64 = 0.7;
/// How long the current load is measured.
const LOOK: Duration = Duration::from_secs(2);

/// The load of the machine, from the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    /// Load average of the last minute.
    load: f64,
    /// The percentage of CPU time that is in use now.
    busy: f64,
    /// Ticks that the hypervisor gave to other machines; a tick is 10 ms.
    stolen: f64,
}

/// The conditions of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conditions {
    load: f64,
    /// The higher load of both measurements, in percent.
    busy: f64,
    stolen: f64,
}

impl Machine {
    /// Measures the load, and prints a warning if other processes compute.
    pub(crate) fn before() -> Result<Self> {
        let now = Self::now()?;
        if now.load > LOADED || now.busy > BUSY_PERCENT {
            println!(
                "note: the load average is {}, and {:.0} % of the processors' time is taken by others now: figures of a busy machine are worse, and only the ratios of one run mean anything",
                now.load, now.busy
            );
        }
        Ok(now)
    }

    fn now() -> Result<Self> {
        let (idle, all, _) = ticks(&read("/proc/stat")?)?;
        std::thread::sleep(LOOK);
        let (idle_then, all_then, stolen) = ticks(&read("/proc/stat")?)?;
        let busy = 100.0 * (1.0 - (idle_then - idle) / (all_then - all).max(1.0));
        let load = read("/proc/loadavg")?;
        let load = load.split_whitespace().next().and_then(|word| word.parse().ok());
        Ok(Self { load: load.context("no load in `/proc/loadavg`")?, busy, stolen })
    }

    /// The conditions since the start.
    pub(crate) fn until_now(self, time: Duration) -> Result<Conditions> {
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let after = Self::now()?;
        let stolen = (after.stolen - self.stolen) / time.as_secs_f64() / processors;
        Ok(Conditions { load: self.load, busy: self.busy.max(after.busy), stolen })
    }
}

impl Conditions {
    /// A description for people.
    pub(crate) fn describe(&self) -> String {
        format!(
            "the load average before was {}, others took {:.0} % of the processors' time before or after, the hypervisor {:.1} % meanwhile",
            self.load, self.busy, self.stolen
        )
    }

    /// The form that stands beside the figures.
    pub(crate) fn figures(&self) -> Map<String, Value> {
        let one = |value: f64| Value::from((value * 10.0).round() / 10.0);
        [("load_before", self.load), ("busy_percent", self.busy), ("stolen_percent", self.stolen)]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), one(value)))
            .collect()
    }
}

/// The reason why the figures cannot be compared with those of another run, if there is one.
pub(crate) fn loaded(figures: &Map<String, Value>) -> Option<String> {
    let figure = |name: &str| figures.get(name).and_then(Value::as_f64);
    match (figure("busy_percent"), figure("stolen_percent")) {
        (None, _) | (_, None) => Some("it is not known what else the machine did".to_owned()),
        (Some(busy), _) if busy > BUSY_PERCENT => {
            Some(format!("others took {busy} % of the processors' time ({BUSY_PERCENT} at most)"))
        }
        (_, Some(stolen)) if stolen > STOLEN_PERCENT => {
            Some(format!("the hypervisor took {stolen} % of the processors' time ({STOLEN_PERCENT} at most)"))
        }
        _ => None,
    }
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{path}`"))
}

/// The idle, total and stolen ticks since the machine started.
fn ticks(stat: &str) -> Result<(f64, f64, f64)> {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in the first two.
    let of = |at: usize| ticks.get(at).copied();
    let idle = of(3).zip(of(4)).map(|(idle, waiting)| idle + waiting).context("no times in `/proc/stat`")?;
    Ok((idle, ticks.iter().take(8).sum(), of(7).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_busy_machine_is_told_from_a_quiet_one() {
        let of = |busy: f64, stolen: f64| {
            let figures = json!({"busy_percent": busy, "stolen_percent": stolen});
            loaded(figures.as_object().unwrap())
        };
        assert_eq!(of(3.0, 0.1), None);
        assert!(of(40.0, 0.1).unwrap().contains("others took 40 %"));
        assert!(of(3.0, 7.5).unwrap().contains("the hypervisor took 7.5 %"));
        assert!(loaded(&Map::new()).is_some());
    }

    #[test]
    fn the_times_of_the_kernel_are_read() {
        let stat = "cpu  10 1 4 80 5 0 0 2 9 0\ncpu0 1 1 1 1\n";
        assert_eq!(ticks(stat).unwrap(), (85.0, 102.0, 2.0));
        assert!(ticks("").is_err());
    }
}
