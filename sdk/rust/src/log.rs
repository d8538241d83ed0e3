//! Log lines for the operator. The model never sees them.

use crate::host::log as host;

pub use crate::bindings::imports::toolbay::plugin::log::Level;

/// Writes a trace line, for the author only.
pub fn trace(message: impl AsRef<str>) {
    write(Level::Trace, message, &[]);
}

/// Writes a debug line, which helps to find a fault.
pub fn debug(message: impl AsRef<str>) {
    write(Level::Debug, message, &[]);
}

/// Writes an info line about normal operation.
pub fn info(message: impl AsRef<str>) {
    write(Level::Info, message, &[]);
}

/// Writes a warning about an unexpected event that did not stop the tool.
pub fn warn(message: impl AsRef<str>) {
    write(Level::Warn, message, &[]);
}

/// Writes an error line about a failure that stopped the tool.
pub fn error(message: impl AsRef<str>) {
    write(Level::Error, message, &[]);
}

/// Writes a line with fields: `write(Level::Info, "fetched", &[("url", url)])`.
pub fn write(level: Level, message: impl AsRef<str>, fields: &[(&str, &str)]) {
    let fields: Vec<_> = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    host::write(level, message.as_ref(), &fields);
}
