//! `log`: a guest's lines in the host's log, under the target `toolbay::guest`. Lines are counted, truncated and
//! escaped.

use super::Capabilities;
use crate::bindings::host::log;

/// Maximum length of a message, in characters.
const MAX_MESSAGE: usize = 4000;
/// Maximum number of fields of a line.
const MAX_FIELDS: usize = 16;
/// Maximum length of a field's name and of its value, in characters.
const MAX_FIELD: usize = 200;

impl log::Host for Capabilities {
    fn write(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) {
        if !self.log.try_take() {
            return;
        }
        let mut line = self.redacted_line(&message, MAX_MESSAGE);
        for (name, value) in fields.iter().take(MAX_FIELDS) {
            line.push_str(&format!(
                " {}={:?}",
                self.redacted_line(name, MAX_FIELD),
                self.redacted_line(value, MAX_FIELD)
            ));
        }
        let plugin = &self.grantee.plugin;
        match level {
            log::Level::Trace => tracing::trace!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Debug => tracing::debug!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Info => tracing::info!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Warn => tracing::warn!(target: "toolbay::guest", %plugin, "{line}"),
            log::Level::Error => tracing::error!(target: "toolbay::guest", %plugin, "{line}"),
        }
    }
}
