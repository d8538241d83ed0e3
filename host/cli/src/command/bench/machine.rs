//! The load of the machine during a measurement. Figures of a busy machine cannot be compared with those of another
//! run.

use std::time::Instant;

/// A higher load average of the last minute means that other programs ran.
const LOADED: f64 = 0.7;
/// Most percent of processor time that the hypervisor may take for other guests.
const STOLEN_PERCENT: f64 = 2.0;

/// The counters of the kernel at one moment.
#[derive(Debug)]
pub(super) struct MachineSample {
    load: f64,
    stolen: f64,
    at: Instant,
}

/// The load during a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct MachineLoad {
    /// Load average of the minute before the measurement.
    pub(super) load: f64,
    /// Percent of processor time that other guests had meanwhile.
    pub(super) stolen_percent: f64,
}

impl MachineSample {
    /// Reads the counters; `None` where the kernel has none.
    pub(super) fn take() -> Option<Self> {
        Some(Self {
            load: load(&read("/proc/loadavg")?)?,
            stolen: stolen(&read("/proc/stat")?)?,
            at: Instant::now(),
        })
    }

    /// The load since this sample.
    pub(super) fn load_since(&self) -> Option<MachineLoad> {
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        // A tick is 10 ms: one tick per second is one percent of one processor.
        let ticks = stolen(&read("/proc/stat")?)? - self.stolen;
        let stolen_percent = ticks / self.at.elapsed().as_secs_f64().max(0.01) / processors;
        Some(MachineLoad { load: self.load, stolen_percent: (stolen_percent * 10.0).round() / 10.0 })
    }
}

impl MachineLoad {
    /// Why the figures cannot be compared with another run; `None`: they can.
    pub(super) fn disturbance(self) -> Option<String> {
        let Self { load, stolen_percent } = self;
        if load > LOADED {
            return Some(format!("the load average of the last minute was {load}"));
        }
        (stolen_percent > STOLEN_PERCENT)
            .then(|| format!("the hypervisor gave {stolen_percent} % of the processors' time to others"))
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn load(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Ticks of all processors that the hypervisor gave to other guests.
fn stolen(text: &str) -> Option<f64> {
    text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_are_parsed() {
        assert_eq!(load("2.57 2.06 1.24 3/412 1234\n"), Some(2.57));
        assert_eq!(stolen("cpu  10 1 4 80 5 0 0 12 9 0\ncpu0 1\n"), Some(12.0));
        assert_eq!((load(""), stolen("intr 1\n")), (None, None));
    }

    #[test]
    fn a_busy_machine_is_detected() {
        let fault =
            |load, stolen_percent| MachineLoad { load, stolen_percent }.disturbance().unwrap_or_default();
        assert_eq!(fault(0.2, 0.5), "");
        assert!(fault(3.5, 0.0).contains("load average") && fault(3.5, 0.0).contains("3.5"));
        assert!(fault(0.2, 8.0).contains("hypervisor gave 8 %"));
    }
}
