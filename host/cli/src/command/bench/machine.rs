//! What else the machine did while calls were measured: the figures of a busy machine say little, and nothing beside
//! those of another run.

use std::time::Instant;

/// Beyond this load average of the last minute something else was at work.
const LOADED: f64 = 0.7;
/// Percent of the processors' time that the hypervisor may give to others.
const STOLEN_PERCENT: f64 = 2.0;

/// What the kernel said before.
#[derive(Debug)]
pub(super) struct Before {
    load: f64,
    stolen: f64,
    at: Instant,
}

/// Under what conditions calls were measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions {
    /// Load average of the minute before.
    pub(super) load: f64,
    /// Percent of the processors' time that others had meanwhile.
    pub(super) stolen_percent: f64,
}

impl Before {
    /// Looks; nothing where the kernel does not tell.
    pub(super) fn now() -> Option<Self> {
        Some(Self {
            load: load(&read("/proc/loadavg")?)?,
            stolen: stolen(&read("/proc/stat")?)?,
            at: Instant::now(),
        })
    }

    /// What the machine did since.
    pub(super) fn until_now(&self) -> Option<Conditions> {
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        // A tick is 10 ms: so many a second are so many percent of one processor.
        let ticks = stolen(&read("/proc/stat")?)? - self.stolen;
        let stolen_percent = ticks / self.at.elapsed().as_secs_f64().max(0.01) / processors;
        Some(Conditions { load: self.load, stolen_percent: (stolen_percent * 10.0).round() / 10.0 })
    }
}

impl Conditions {
    /// Why the figures cannot stand beside those of another run, if so.
    pub(super) fn fault(self) -> Option<String> {
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

/// Ticks of all processors that the hypervisor gave to others.
fn stolen(text: &str) -> Option<f64> {
    text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        assert_eq!(load("2.57 2.06 1.24 3/412 1234\n"), Some(2.57));
        assert_eq!(stolen("cpu  10 1 4 80 5 0 0 12 9 0\ncpu0 1\n"), Some(12.0));
        assert_eq!((load(""), stolen("intr 1\n")), (None, None));
    }

    #[test]
    fn a_loaded_machine_is_told_from_a_quiet_one() {
        let fault = |load, stolen_percent| Conditions { load, stolen_percent }.fault().unwrap_or_default();
        assert_eq!(fault(0.2, 0.5), "");
        assert!(fault(3.5, 0.0).contains("load average") && fault(3.5, 0.0).contains("3.5"));
        assert!(fault(0.2, 8.0).contains("hypervisor gave 8 %"));
    }
}
