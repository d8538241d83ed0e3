//! Log lines for the operator. The model never sees them.

use crate::host::log as host;

pub use crate::bindings::imports::toolbay::plugin::log::Level;

/// Writes a line that helps nobody but the author.
pub fn trace(message: impl AsRef<str>) {
    write(Level::Trace, message, &[]);
}

/// Writes a line that helps to find a fault.
pub fn debug(message: impl AsRef<str>) {
    write(Level::Debug, message, &[]);
}

/// Writes a line about the ordinary course of things.
pub fn info(message: impl AsRef<str>) {
    write(Level::Info, message, &[]);
}

/// Writes a line about something odd that did not stop the tool.
pub fn warn(message: impl AsRef<str>) {
    write(Level::Warn, message, &[]);
}

/// Writes a line about something that stopped the tool.
pub fn error(message: impl AsRef<str>) {
    write(Level::Error, message, &[]);
}

/// Writes a line with fields: `write(Level::Info, "fetched", &[("url", url)])`.
pub fn write(level: Level, message: impl AsRef<str>, fields: &[(&str, &str)]) {
    let fields: Vec<_> = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    host::write(level, message.as_ref(), &fields);
}
