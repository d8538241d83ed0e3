//! `log`: a guest's lines in the host's log, target `toolbay::guest`; counted, cut, escaped.

use super::Capabilities;
use toolbay_core::text::one_line;

use crate::bindings::host::log;

/// Longest message, in characters.
const MAX_MESSAGE: usize = 4000;
/// Most fields of a line, and their longest name and value.
const MAX_FIELDS: usize = 16;
const MAX_FIELD: usize = 200;

impl log::Host for Capabilities {
    fn write(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) {
        let Some(left) = self.log_lines_left.checked_sub(1) else { return };
        self.log_lines_left = left;
        let mut line = one_line(&message, MAX_MESSAGE);
        for (name, value) in fields.iter().take(MAX_FIELDS) {
            line.push_str(&format!(" {}={:?}", one_line(name, MAX_FIELD), one_line(value, MAX_FIELD)));
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
