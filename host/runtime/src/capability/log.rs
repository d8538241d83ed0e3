//! `log`: a guest's lines in the host's log, target `toolbay::guest`; counted, cut, escaped.

use super::Capabilities;
use crate::engine::bindings::host::log;

/// Longest message, in characters.
const MAX_MESSAGE: usize = 4000;
/// Most fields of a line, and their longest name and value.
const MAX_FIELDS: usize = 16;
const MAX_FIELD: usize = 200;

impl log::Host for Capabilities {
    fn write(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) {
        if !self.log.take() {
            return;
        }
        let mut line = self.line(&message, MAX_MESSAGE);
        for (name, value) in fields.iter().take(MAX_FIELDS) {
            line.push_str(&format!(" {}={:?}", self.line(name, MAX_FIELD), self.line(value, MAX_FIELD)));
        }
        let plugin = &self.who.plugin;
        match level {
            log::Level::Trace => tracing::trace!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Debug => tracing::debug!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Info => tracing::info!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Warn => tracing::warn!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Error => tracing::error!(target: "toolbay::guest", %plugin, "{line}"),
        }
    }
}
