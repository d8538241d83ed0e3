//! `log`: a guest's lines in the host's log, target `toolbay::guest`; counted, cut, escaped.

use toolbay_policy::limits::Limits;

use super::Capabilities;
use super::rate::Rate;
use crate::engine::bindings::host::log;

/// Longest message, in characters.
const MAX_MESSAGE: usize = 4000;
/// Most fields of a line, and their longest name and value.
const MAX_FIELDS: usize = 16;
const MAX_FIELD: usize = 200;

/// Counts the lines of one guest entry.
#[derive(Debug)]
pub(crate) struct Meter {
    left: u32,
    rate: Rate,
    /// Lines that were not written. What is not in the log is at least counted there, when the guest has ended.
    pub(crate) dropped: u64,
}

impl Meter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { left: limits.log_lines, rate: Rate::new(limits.log_rate), dropped: 0 }
    }

    fn take(&mut self) -> bool {
        let one = self.left > 0 && self.rate.take();
        if one {
            self.left -= 1;
        } else {
            self.dropped += 1;
        }
        one
    }
}

impl log::Host for Capabilities {
    fn write(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) {
        if !self.log.take() {
            return;
        }
        let mut line = self.line(&message, MAX_MESSAGE);
        for (name, value) in fields.iter().take(MAX_FIELDS) {
            line.push_str(&format!(" {}={:?}", self.line(name, MAX_FIELD), self.line(value, MAX_FIELD)));
        }
        let plugin = &self.plugin;
        match level {
            log::Level::Trace => tracing::trace!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Debug => tracing::debug!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Info => tracing::info!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Warn => tracing::warn!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Error => tracing::error!(target: "toolbay::guest", %plugin, "{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_in_all_and_a_second() {
        let taken = |limits: &Limits| {
            let mut meter = Meter::new(limits);
            let start = std::time::Instant::now();
            let taken = (0..10_000).filter(|_| meter.take()).count();
            assert_eq!(meter.dropped, 10_000 - taken as u64);
            (taken, start.elapsed().as_secs_f64())
        };
        assert_eq!(taken(&Limits { log_lines: 7, ..Limits::default() }).0, 7);
        let (count, seconds) = taken(&Limits { log_rate: 20, log_lines: 5000, ..Limits::default() });
        assert!(count >= 20 && count as f64 <= 21.0 + 20.0 * seconds, "{count} in {seconds} s");
    }
}
